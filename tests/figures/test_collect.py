"""Arrays collected from runs: numbers worked out by hand, and nothing missing without a note."""

import numpy as np
import pytest
from scipy import stats

from winkel.envs.registry import is_simulator, parse
from winkel.errors import InputError
from winkel.figures import COLLECTED, FIGURES
from winkel.runs.record import RunRecord, save_run
from winkel.runs.results import read_results
from winkel.runs.spec import run_folder


def add(root, env, agent, seed, episodes, *, evaluations=None, snapshots=None, **config):
    count = len(next(iter(episodes.values())))
    columns = {"return": np.zeros(count), "length": np.full(count, 2)}
    folder = run_folder(root, env, agent, seed)
    config = {"env": env, "agent": agent, "seed": seed, **config}
    if not is_simulator(env):
        config["setting"] = parse(env)[1]
    tables = {"evaluations": evaluations or {}, "snapshots": snapshots or {}}
    save_run(folder, RunRecord(config, columns | episodes, tables=tables))
    return folder


def deep_sea(root, agent, size, seed, bad, env=None, seen=None, **config):
    episodes = {"bad": np.asarray(bad, bool)}
    if seen is not None:
        episodes["visited"] = np.asarray(seen)
    return add(root, env or f"deep_sea:size={size}", agent, seed, episodes, **config)


def collected(name, root):
    return FIGURES[name].collect(read_results(root))


def notes(arrays):
    return " | ".join(arrays["notes"].tolist())


def bads(total, first=1):
    """Ten episodes, bad up to the first treasure and so many in all."""
    bad = np.zeros(10, bool)
    bad[: first - 1] = True
    bad[first : first + total - (first - 1)] = True
    assert bad.sum() == total
    return bad


def test_regret_is_the_median_number_of_bad_episodes_by_size(tmp_path):
    for seed, regret in enumerate([2, 8, 3, 5]):
        deep_sea(tmp_path, "pe_dqn", 10, seed, bads(regret), env="deep_sea/0")
    for seed, regret in enumerate([1, 2, 3, 4]):
        deep_sea(tmp_path, "bdqn", 6, seed, bads(regret))
    arrays = collected("regret", tmp_path)
    assert arrays["agents"].tolist() == ["bdqn", "pe_dqn"]
    assert arrays["sizes"].tolist() == [6, 10]
    assert arrays["budget"] == 10
    np.testing.assert_array_equal(arrays["estimate"], [[2.5, np.nan], [np.nan, 4.0]])
    np.testing.assert_array_equal(arrays["low"], [[1.75, np.nan], [np.nan, 2.75]])
    np.testing.assert_array_equal(arrays["high"], [[3.25, np.nan], [np.nan, 5.75]])
    np.testing.assert_array_equal(arrays["seed_regrets"][1, 1], [2, 8, 3, 5])
    assert "of 8 pairs of setting and seed some agents have fewer: bdqn 4, pe_dqn 4" in notes(
        arrays
    )


def test_a_run_without_treasure_is_infinite_and_counted(tmp_path):
    for seed, bad in enumerate([bads(3), np.ones(10), bads(5)]):
        deep_sea(tmp_path, "pe_dqn", 4, seed, bad)
    for seed, bad in enumerate([bads(3), np.ones(10), np.ones(10), bads(4)]):
        deep_sea(tmp_path, "dltv", 4, seed, bad)
    arrays = collected("regret", tmp_path)
    np.testing.assert_array_equal(arrays["estimate"], [[np.inf], [5]])  # of 3, 4, inf, inf: no 3.5
    np.testing.assert_array_equal(arrays["low"], [[3.75], [4]])
    np.testing.assert_array_equal(arrays["high"], [[np.inf], [np.inf]])
    assert "runs without any treasure, shown at the budget: dltv 2/4, pe_dqn 1/3" in notes(arrays)


def test_nothing_is_left_out_or_mixed_without_a_note(tmp_path):
    for seed in range(3):
        deep_sea(tmp_path, "pe_dqn", 10, seed, bads(2 + seed), hyper={"beta": 5.0 + (seed == 2)})
    deep_sea(tmp_path, "pe_dqn", 10, 0, bads(9), env="deep_sea/0")  # the same agent, size and seed
    deep_sea(tmp_path, "pe_dqn", 6, 0, np.zeros(7))  # another budget
    deep_sea(tmp_path, "pe_dqn", 8, 0, bads(9), env="deep_sea:size=8,move_cost=0.5")
    deep_sea(tmp_path, "bdqn", 4, 0, bads(4), status="failed", reason="loss is nan")
    add(tmp_path, "deep_sea:size=4", "random", 0, {"return": np.ones(10)})
    (tmp_path / "deep_sea" / "ids" / "size=4" / "seed-0").mkdir(parents=True)
    add(
        tmp_path,
        "catch/0",
        "ids",
        0,
        {"return": np.ones(10)},
        status="failed",
        reason="of no matter",
    )
    arrays = collected("regret", tmp_path)
    np.testing.assert_array_equal(arrays["seed_regrets"], [[[9, 3, 4]]])
    said = notes(arrays)
    assert "bdqn/size=4/seed-0: failed, loss is nan" in said
    assert "ids/size=4/seed-0: empty" in said
    assert "1 run without bad" in said
    assert "only runs of 10 episodes; left out: 1 of 7 episodes" in said
    assert "left out: 1 with settings" in said
    assert "1 further runs of the same agent, size and seed" in said
    assert "runs differ: pe_dqn in beta" in said
    assert "of no matter" not in said


def test_statistics_are_shares_of_reachable_state_actions_at_the_end(tmp_path):
    for seed, seen in enumerate([4, 8, 20]):
        deep_sea(tmp_path, "statistic_quantile_variance", 4, seed, np.ones(3), seen=[1, 2, seen])
    deep_sea(tmp_path, "statistic_categorical_mean", 4, 0, np.ones(3), seen=[1, 2, 5])
    deep_sea(tmp_path, "pe_dqn", 4, 0, np.ones(3), seen=[1, 2, 20])
    arrays = collected("statistics", tmp_path)
    place = [arrays["projections"].tolist().index("quantile"), 1]
    assert arrays["moments"].tolist() == ["mean", "variance", "skewness", "kurtosis"]
    np.testing.assert_allclose(arrays["seed_shares"][*place], [0.2, 0.4, 1.0])
    found = [arrays[name][*place] for name in ("estimate", "low", "high")]
    np.testing.assert_allclose(found, [0.4, 0.3, 0.7])
    assert np.isnan(arrays["estimate"]).sum() == 6
    assert "no runs of statistic_quantile_mean, " in notes(arrays)
    assert "pe_dqn" not in notes(arrays)


def test_coverage_is_the_share_visited_over_episodes(tmp_path):
    for seed, seen in enumerate([[2, 4, 6], [2, 6, 12], [4, 8, 8]]):
        deep_sea(tmp_path, "dltv", 3, seed, np.ones(3), seen=seen)
    deep_sea(tmp_path, "dltv", 5, 0, np.ones(3), seen=[1, 1, 1])
    arrays = collected("coverage", tmp_path)
    assert arrays["episodes"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(arrays["estimate"], [[2 / 12, 6 / 12, 8 / 12]])
    np.testing.assert_allclose(arrays["high"], [[3 / 12, 7 / 12, 10 / 12]])
    assert arrays["size"] == 3
    assert "only runs of size 3; left out: 1 of size 5" in notes(arrays)


def test_ensemble_sizes_are_read_from_the_config_whatever_the_label(tmp_path):
    def bdqn(label, members, seed, bad, size=6):
        config = {"algorithm": "bdqn", "config": {"num_members": members}}
        deep_sea(tmp_path, label, size, seed, bad, **config)

    for seed in range(3):
        bdqn("few", 2, seed, np.ones(10) if seed else bads(4, first=3))
        bdqn("bdqn", 20, seed, bads(3 + seed, first=2 + seed))
        deep_sea(tmp_path, "pe_dqn", 6, seed, bads(5, first=4), algorithm="pe_dqn")
    bdqn("bdqn", 20, 0, bads(1), size=8)
    arrays = collected("ensemble-size", tmp_path)
    assert arrays["members"].tolist() == [0, 2, 20]  # PE-DQN first
    assert (arrays["size"], arrays["budget"]) == (6, 10)
    np.testing.assert_array_equal(arrays["estimate"], [5, np.inf, 4])
    assert "bdqn with 2 members 2/3" in notes(arrays)
    assert "left out: 1 of size 8" in notes(arrays)


def catch(root, agent, seed, wrong, settings=range(20), name="catch", num=10):
    episodes = {"wrong": np.arange(num) < wrong, "return": 1.0 - 2 * (np.arange(num) < wrong)}
    for index in settings:
        add(root, f"{name}/{index}", agent, seed, episodes)


def test_scores_are_means_over_seeds_with_student_intervals(tmp_path):
    wrong = [0, 2, 4]
    for seed, n in enumerate(wrong):
        catch(tmp_path, "pe_dqn", seed, n)
    catch(tmp_path, "bdqn", 0, 10, settings=range(19))
    deep_sea(tmp_path, "bdqn", 4, 0, np.ones(10))
    arrays = collected("scores", tmp_path)
    scores = [1 - 2 * n / 10 / 1.6 for n in wrong]
    assert arrays["experiments"].tolist() == ["catch"]
    np.testing.assert_allclose(arrays["seed_scores"][1, 0], scores)
    np.testing.assert_allclose(arrays["estimate"][:, 0], [0, np.mean(scores)])
    reach = stats.t.ppf(0.975, 2) * np.std(scores, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(arrays["low"][:, 0], [np.nan, np.mean(scores) - reach])
    assert arrays["high"][1, 0] == 1  # no score is higher
    said = notes(arrays)
    assert "bdqn has 19 of 468 settings, in 1 of 23 experiments; 19 of 19 runs are shorter" in said
    assert "left out: 1 run in settings not among bsuite's 468" in said
    assert (
        "pe_dqn has 20 of 468 settings, in 1 of 23 experiments; 60 of 60 runs are shorter" in said
    )


def test_the_radar_averages_each_seeds_capabilities(tmp_path):
    for seed, n in enumerate([0, 4]):
        catch(tmp_path, "pe_dqn", seed, n)
    arrays = collected("radar", tmp_path)
    by_tag = dict(zip(arrays["tags"].tolist(), arrays["estimate"][0], strict=True))
    assert by_tag["basic"] == by_tag["credit_assignment"] == pytest.approx(0.75)
    assert np.isnan(by_tag["memory"])
    np.testing.assert_allclose(arrays["seed_scores"][0, 0], [1.0, 0.5])


def evaluated(at, returns):
    return {"episodes": np.array(at), "env_steps": 2 * np.array(at), "returns": np.array(returns)}


def curves(root, **options):
    return FIGURES["learning-curves"].collect(read_results(root), **options)


def test_curves_are_means_over_settings_then_over_seeds(tmp_path):
    returns = {0: ([0.0, 2.0], [2.0, 4.0]), 1: ([1.0, 1.0], [5.0, 1.0])}  # by setting, then seed
    for setting, by_seed in returns.items():
        for seed, (first, last) in enumerate(by_seed):
            add(tmp_path, f"catch/{setting}", "pe_dqn", seed, {"return": np.zeros(20)},
                evaluations=evaluated([10, 20], [[first, first], [last, last]]))  # fmt: skip
    arrays = curves(tmp_path)
    assert arrays["environments"].tolist() == ["catch"]
    assert arrays["clocks"].tolist() == ["episodes"]
    assert arrays["greedy"].tolist() == [1]
    assert arrays["x"][0, :2].tolist() == [10, 20]
    means = np.array([[0.5, 1.5], [3.5, 2.5]])  # [seeds, times]
    np.testing.assert_allclose(arrays["estimate"][0, 0, :2], means.mean(axis=0))
    reach = stats.t.ppf(0.95, 1) * means.std(axis=0, ddof=1) / np.sqrt(2)
    ends = np.clip([means.mean(axis=0) - reach, means.mean(axis=0) + reach], 0, 5)
    np.testing.assert_allclose([arrays[name][0, 0, :2] for name in ("low", "high")], ends)
    assert np.isnan(arrays["x"][0, 2:]).all()
    assert arrays["num_seeds"].tolist() == [[2]]
    assert notes(arrays) == ""


def test_training_returns_are_smoothed_and_scales_divided_out(tmp_path):
    for index, scale in ((0, 0.001), (16, 1000.0)):
        add(tmp_path, f"catch_scale/{index}", "pe_dqn", 0, {"return": scale * np.arange(100)})
    arrays = curves(tmp_path)
    assert arrays["greedy"].tolist() == [0]
    np.testing.assert_allclose(at := arrays["x"][0], np.linspace(1, 100, 50))
    means = arrays["estimate"][0, 0]  # over windows of five episodes
    np.testing.assert_allclose(means[2:], at[2:] - 3)
    np.testing.assert_allclose(means[0], 0.0, atol=1e-12)  # the one episode that there is
    assert np.isnan(arrays["low"]).all()  # one seed


def test_any_environment_is_a_panel_over_what_its_budget_counts(tmp_path):
    for env in ("gym:CartPole-v1", "deep_sea:size=10", "deep_sea:size=8"):
        budget = {"steps": 400} if env.startswith("gym") else {"episodes": 100}
        for seed, returns in enumerate((3.0, 5.0, 10.0)):
            episodes = {"return": np.full(100, returns), "length": np.full(100, 4)}
            add(tmp_path, env, "mine", seed, episodes, horizon=budget)
    add(tmp_path, "catch/0", "mine", 0, {"return": np.ones(100)})
    arrays = curves(tmp_path)
    names = ["catch", "deep_sea:size=8", "deep_sea:size=10", "gym:CartPole-v1"]
    assert arrays["environments"].tolist() == names
    assert arrays["clocks"].tolist() == ["episodes", "episodes", "episodes", "steps"]
    assert arrays["x"][:, -1].tolist() == [100, 100, 100, 400]
    np.testing.assert_allclose(arrays["estimate"][1:, 0], 6.0)
    over_steps = curves(tmp_path, over="steps")
    assert over_steps["x"][:, -1].tolist() == [200, 400, 400, 400]
    assert curves(tmp_path, over="episodes")["x"][3, -1] == 100


def test_evaluations_or_training_returns_can_be_chosen(tmp_path):
    evaluations = evaluated([10, 20], [[5.0], [7.0]])
    for env in ("gym:A", "gym:C"):
        add(tmp_path, env, "dqn", 0, {"return": np.ones(20)}, evaluations=evaluations)
    add(tmp_path, "gym:A", "random", 0, {"return": np.ones(20)})
    add(tmp_path, "gym:B", "random", 0, {"return": np.ones(20)})
    greedy = curves(tmp_path, returns="greedy")
    assert greedy["environments"].tolist() == ["gym:A", "gym:C"]
    assert greedy["agents"].tolist() == ["dqn"]
    np.testing.assert_array_equal(greedy["estimate"][0, 0, :2], [5, 7])
    assert "left out: 2 runs without greedy evaluations" in notes(greedy)
    training = curves(tmp_path, returns="training")
    assert training["environments"].tolist() == ["gym:A", "gym:B", "gym:C"]
    assert np.nanmax(training["estimate"]) == 1
    assert "lacks evaluations" not in notes(training)


def test_greedy_and_training_returns_are_never_compared(tmp_path):
    evaluations = evaluated([10, 20], [[5.0], [5.0]])
    add(tmp_path, "catch/0", "pe_dqn", 0, {"return": np.zeros(20)}, evaluations=evaluations)
    add(tmp_path, "catch/0", "bdqn", 0, {"return": np.ones(20)})
    add(tmp_path, "catch/0", "ids", 0, {"return": np.ones(30)}, evaluations=evaluations)
    arrays = collected("learning-curves", tmp_path)
    assert arrays["greedy"].tolist() == [0]
    assert np.nanmax(arrays["estimate"]) == 1
    said = notes(arrays)
    assert "catch: training returns, for bdqn lacks evaluations" in said
    assert "catch: only runs of 20 episodes; left out: 1 of 30 episodes" in said


@pytest.mark.parametrize("columns", [{}, {"env_steps": np.cumsum(np.full(100, 10))}])
def test_runs_of_planned_steps_are_shown_over_steps(tmp_path, columns):
    dense, length = "doom:my-way-home/dense", np.full(100, 10)
    for env, reward in ((dense, 1.0), ("doom:my-way-home/very-sparse", 0.0)):
        for seed in range(2):
            episodes = {"return": np.full(100, reward * seed), "length": length, **columns}
            add(tmp_path, env, "pe_dqn", seed, episodes, horizon={"steps": 1000})
    short = {"return": np.ones(50), "length": length[:50]}
    add(tmp_path, dense, "bdqn", 0, short, horizon={"steps": 1000})
    arrays = collected("learning-curves", tmp_path)
    assert [name.rpartition("/")[2] for name in arrays["environments"]] == ["dense", "very-sparse"]
    np.testing.assert_allclose(arrays["estimate"][0, 1], 0.5)
    np.testing.assert_allclose(arrays["estimate"][1, 1], 0.0)
    assert np.isnan(arrays["estimate"][1, 0]).all()
    assert arrays["x"][:, -1].tolist() == [500, 1000]
    assert "dense: curves end after 500 steps" in notes(arrays)


def test_heatmaps_are_of_pe_dqns_first_run_with_snapshots(tmp_path):
    def snapshots(value):
        cells = np.full((2, 16, 2), value)
        quantities = dict.fromkeys(("visits", "disagreement", "bonus"), cells)
        return {"episodes": np.array([0, 9]), **quantities}

    deep_sea(tmp_path, "bdqn", 4, 0, np.ones(3), snapshots=snapshots(1.0))
    deep_sea(tmp_path, "pe_dqn", 4, 0, np.ones(3))
    assert (collected("heatmaps", tmp_path)["bonus"] == 1).all()
    deep_sea(tmp_path, "pe_dqn", 4, 1, np.ones(3), snapshots=snapshots(2.0))
    arrays = collected("heatmaps", tmp_path)
    assert arrays["bonus"].shape == (2, 4, 4, 2)
    assert (arrays["bonus"] == 2).all()
    assert "pe_dqn in deep_sea:size=4, seed 1" in notes(arrays)


def test_heatmaps_of_a_padded_grid_show_its_own_cells(tmp_path):
    cells = np.arange(7 * 7)[None, :, None] * np.ones((1, 1, 2))
    quantities = dict.fromkeys(("visits", "disagreement", "bonus"), cells)
    deep_sea(
        tmp_path, "pe_dqn", 4, 0, np.ones(3), snapshots={"episodes": np.array([3]), **quantities}
    )
    arrays = collected("heatmaps", tmp_path)
    np.testing.assert_array_equal(arrays["visits"][0, 2, :, 0], [14, 15, 16, 17])
    assert arrays["visits"].shape == (1, 4, 4, 2)
    assert arrays["right"].shape == (4, 4)


@pytest.mark.parametrize("name", COLLECTED)
def test_where_there_is_nothing_to_show_one_line_says_so(tmp_path, name):
    num_episodes = 0 if name == "learning-curves" else 3  # these show runs of any environment
    add(tmp_path, "gym:CartPole-v1", "pe_dqn", 0, {"return": np.zeros(num_episodes)})
    with pytest.raises(InputError, match=r"no .*runs") as caught:
        collected(name, tmp_path)
    assert "\n" not in str(caught.value)
