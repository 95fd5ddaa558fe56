"""Figures from runs: what is drawn is what was given, all of it on the page; errors in a line."""

import itertools

import matplotlib.image
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from winkel import cli
from winkel.envs.registry import TAGS, parse
from winkel.figures import COLLECTED, FIGURES, style
from winkel.runs.record import RunRecord, save_run
from winkel.runs.spec import run_folder

AGENTS = [
    "pe_dqn", "bdqn", "ids", "dltv", "pe_dqn_qr_qr", "pe_dqn_c51_c51", "pe_dqn_ind", "dqn",
    "random", "something_new",
]  # fmt: skip
LONG = "a note that is far too long for one line of a figure, " * 6
LONG_ENV = "my_module:make_a_maze_with_a_long_name:size=30,goal_reward=1.5,slippery=True,cost=0.1"
NOTES = np.array([LONG, *(f"note {n}" for n in range(20))])


def band(rng, *shape, scale=1.0):
    middle = scale * rng.uniform(0.3, 0.7, shape)
    reach = scale * rng.uniform(0.0, 0.2, shape)
    return {"estimate": middle, "low": middle - reach, "high": middle + reach}


def curves(rng, names, key, agents):
    points = np.tile(np.arange(1.0, 51) * 200, (len(names), 1))
    return band(rng, len(names), len(agents), 50) | {
        key: np.array(names), "agents": np.array(agents), "x": points,
        "greedy": np.arange(len(names)) % 2, "num_seeds": np.full((len(names), len(agents)), 10),
        "clocks": np.resize(["steps", "episodes"], len(names)),
    }  # fmt: skip


def results_of(name, rng, agents, long=False):
    """Arrays of a figure; many of everything when `long`."""
    count, names = len(agents), np.array(agents)
    experiments = [f"experiment_number_{n}" for n in range(23 if long else 2)]
    environments = [*experiments[2:], LONG_ENV, "gym:CartPole-v1"]
    few = {"size": np.asarray(50), "budget": np.asarray(10_000)}
    sizes = np.arange(10, 101, 10) if long else np.array([4, 5])
    made = {
        "radar": lambda: {
            "agents": names,
            "tags": np.array(TAGS),
            "estimate": rng.uniform(size=(count, 7)),
            "seed_scores": rng.uniform(size=(count, 7, 3)),
        },
        "scores": lambda: band(rng, count, len(experiments)) | {
            "agents": names, "experiments": np.array(experiments),
            "seed_scores": rng.uniform(size=(count, len(experiments), 4)),
        },
        "learning-curves": lambda: curves(rng, environments, "environments", agents),
        "regret": lambda: band(rng, count, len(sizes), scale=1e4) | few | {
            "agents": names, "sizes": sizes, "num_seeds": np.full((count, len(sizes)), 5),
            "seed_regrets": rng.uniform(size=(count, len(sizes), 5)),
        },
        "coverage": lambda: band(rng, count, 60) | few | {
            "agents": names, "episodes": np.arange(60), "num_seeds": np.full(count, 3),
        },
        "statistics": lambda: band(rng, 2, 4) | few | {
            "projections": np.array(["quantile", "categorical"]),
            "moments": np.array(["mean", "variance", "skewness", "kurtosis"]),
            "seed_shares": rng.uniform(size=(2, 4, 30 if long else 3)),
            "num_seeds": np.full((2, 4), 30 if long else 3),
        },
        "ensemble-size": lambda: band(rng, 5, scale=1e4) | few | {
            "members": np.array([0, 2, 5, 10, 20]), "num_seeds": np.full(5, 10),
            "seed_regrets": 1e4 * rng.uniform(0.1, 1, size=(5, 10)),
        },
    }  # fmt: skip
    return made[name]() | {"notes": NOTES if long else np.array([], np.str_)}


NAMES = [name for name in COLLECTED if name != "heatmaps"]


def draw(name, results):
    with style.paper_style():
        return FIGURES[name].draw(results)


def by_label(axes, label):
    """The line of an agent in a panel."""
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return line


def words(figure):
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def drawn_words(figure, monkeypatch):
    """All texts that reach the page, ticks out of view not among them, and where."""
    drawn = {}
    draw_text = Text.draw

    def record(self, renderer):
        if self.get_text() and self.get_visible():
            drawn[id(self)] = self, self.get_window_extent(renderer).padded(-1)
        draw_text(self, renderer)

    monkeypatch.setattr(Text, "draw", record)
    FigureCanvasAgg(figure).draw()
    return list(drawn.values())


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_all_words_are_on_the_page_and_none_on_another(rng, name, long, monkeypatch):
    results = results_of(name, rng, AGENTS if long else AGENTS[:2], long)
    with style.paper_style():
        figure = FIGURES[name].draw(results)
        words = drawn_words(figure, monkeypatch)
    assert len(words) > 8
    page = figure.bbox
    for text, box in words:
        inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        assert inside, f"{text.get_text()!r} leaves the page"
    level = [(text.get_text(), box) for text, box in words if not text.get_rotation()]
    for (one, box), (other, there) in itertools.combinations(level, 2):
        assert not box.overlaps(there), f"{one!r} lies on {other!r}"
    assert figure.get_size_inches()[0] <= style.TEXT_WIDTH
    assert figure.get_size_inches()[1] <= 9.0


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_draws_in_every_format_and_the_same_each_time(rng, tmp_path, name):
    results = results_of(name, rng, AGENTS[:4])
    with style.paper_style():
        first, second = (
            style.save(FIGURES[name].draw(results), tmp_path / stem, ("png", "pdf", "svg"))
            for stem in "ab"
        )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    picture = matplotlib.image.imread(first[0])
    assert 0.005 < (picture[..., :3].min(axis=-1) < 0.9).mean() < 0.6  # neither empty nor full


@pytest.mark.parametrize("name", NAMES)
def test_notes_are_written_beneath_and_many_are_counted(rng, name):
    few = results_of(name, rng, AGENTS[:2]) | {"notes": np.array(["one run failed"])}
    assert "Note: one run failed" in words(draw(name, few))
    many = words(draw(name, results_of(name, rng, AGENTS[:2]) | {"notes": NOTES}))
    assert f"and {len(NOTES) - style.MOST_NOTES} notes more" in " ".join(many.split())


def test_regret_shows_the_medians_and_opens_what_is_infinite(rng):
    results = results_of("regret", rng, ["bdqn", "pe_dqn", "pe_dqn_ind"])
    results["estimate"][:] = [[5, np.inf], [3, 4], [1, np.nan]]
    left, right = draw("regret", results | {"budget": np.asarray(9)}).axes[:2]
    np.testing.assert_array_equal(by_label(left, "bdqn").get_ydata(), [5, 9])
    np.testing.assert_array_equal(by_label(right, "pe_dqn_ind").get_ydata(), [1])
    assert not [line for line in left.lines if line.get_label() == "pe_dqn_ind"]
    assert by_label(right, "pe_dqn").get_ydata().tolist() == [3, 4]
    opened = [line for line in left.lines if line.get_markerfacecolor() == "white"]
    assert [line.get_ydata().tolist() for line in opened] == [[9]]
    distance = by_label(left, "pe_dqn").get_xdata() - results["sizes"]
    assert np.abs(distance).max() < 0.1 * np.diff(results["sizes"])[0]


def test_curves_show_means_and_bold_titles_and_say_what_they_are(rng):
    results = results_of("learning-curves", rng, AGENTS[:2])
    results["environments"] = np.array(["gym:CartPole-v1", "deep_sea"])
    first, second = (figure := draw("learning-curves", results)).axes[:2]
    np.testing.assert_array_equal(by_label(second, "bdqn").get_ydata(), results["estimate"][1, 1])
    np.testing.assert_array_equal(by_label(second, "bdqn").get_xdata(), results["x"][1])
    weights = [axes.title.get_fontweight() for axes in (first, second)]
    assert weights == ["normal", "bold"]
    assert [axes.get_title()[-1] for axes in (first, second)] == ["*", "a"]
    assert [axes.get_xlabel() for axes in (first, second)] == ["environment steps", "episodes"]
    said = " ".join(words(figure).split())
    assert "Means over 10 seeds, each the mean of all settings, with 90 % Student t bands" in said
    assert "panels with * of training" in said
    assert "training returns are averaged over 5 % of the episodes" in said
    greedy = draw("learning-curves", results | {"greedy": np.array([1, 1])})
    assert greedy.axes[0].get_ylabel() == "greedy return"


def test_the_radar_holds_the_scores_and_breaks_where_one_is_missing(rng):
    results = results_of("radar", rng, AGENTS[:2])
    results["estimate"][1, 5] = np.nan
    axes = draw("radar", results).axes[0]
    for agent, name in enumerate(AGENTS[:2]):
        angles, scores = by_label(axes, name).get_data()
        np.testing.assert_allclose(angles[:-1], 2 * np.pi * np.arange(7) / 7)
        np.testing.assert_allclose(scores[:-1], results["estimate"][agent])
    results["estimate"][0, 5] = np.nan
    assert "memory\n(no runs)" in words(draw("radar", results))


@pytest.mark.parametrize("long", [False, True])
def test_bars_hold_the_scores_in_order_with_a_dot_for_each_of_few_seeds(rng, long):
    results = results_of("scores", rng, AGENTS if long else AGENTS[:2], long)
    panels = draw("scores", results).axes
    drawn = [
        np.concatenate([[bar.get_height() for bar in bars[agent]] for bars in
                        (axes.containers for axes in panels)])
        for agent in range(len(results["agents"]))
    ]  # fmt: skip
    np.testing.assert_allclose(
        drawn, results["estimate"][[*style.in_order(results["agents"]).values()]]
    )
    labels = [tick.get_text() for axes in panels for tick in axes.get_xticklabels()]
    assert labels == [name.replace("_", " ") for name in results["experiments"]]
    bold = draw("scores", results | {"experiments": np.resize(["catch", "deep_sea"], len(labels))})
    weights = [tick.get_fontweight() for axes in bold.axes for tick in axes.get_xticklabels()]
    assert weights == np.resize(["normal", "bold"], len(labels)).tolist()
    dots = np.concatenate([line.get_ydata() for line in panels[0].lines])
    assert set(dots) <= set(results["seed_scores"].ravel())
    many = np.repeat(results["seed_scores"], 3, axis=-1)
    assert not draw("scores", results | {"seed_scores": many}).axes[0].lines


def test_statistics_hold_medians_quartiles_and_seeds(rng):
    results = results_of("statistics", rng, [])
    (axes,) = draw("statistics", results).axes
    for place, bars in enumerate(axes.containers):
        heights = [bar.get_height() for bar in bars]
        np.testing.assert_allclose(heights, 100 * results["estimate"][place])
        seeds = axes.lines[place].get_ydata()
        np.testing.assert_allclose(seeds, 100 * results["seed_shares"][place].ravel())
    whiskers = np.array(axes.collections[0].get_segments())
    np.testing.assert_allclose(whiskers[:, 0, 1], 100 * results["low"][0])


def test_coverage_has_the_baselines_apart(rng):
    results = results_of("coverage", rng, AGENTS)
    left, right = draw("coverage", results).axes[:2]
    assert {line.get_label() for line in left.lines} == {"ids", "dltv"}
    assert {line.get_label() for line in right.lines} == set(AGENTS) - {"ids", "dltv"}
    place = AGENTS.index("ids")
    np.testing.assert_allclose(by_label(left, "ids").get_ydata(), 100 * results["estimate"][place])


def test_members_stand_beside_pe_dqn_if_there_is_one(rng):
    results = results_of("ensemble-size", rng, [])
    results["estimate"][2] = np.inf
    axes = draw("ensemble-size", results).axes[0]
    heights = by_label(axes, "bdqn").get_ydata()
    np.testing.assert_allclose(heights, np.minimum(results["estimate"][1:], 10_000))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2", "5", "10", "20", "PE-DQN"]
    alone = {key: results[key][1:] for key in ("estimate", "low", "high", "seed_regrets")}
    alone["members"] = results["members"][1:]
    assert "PE-DQN" not in words(draw("ensemble-size", results | alone))


def test_an_agent_looks_the_same_everywhere_and_like_no_other():
    looks = [style.agent_style(name) for name in AGENTS]
    assert len({(look.colour, look.dashes) for look in looks}) == len(looks)
    assert style.agent_style("pe_dqn").label == "PE-DQN"
    assert style.agent_style("something_new") == style.agent_style("something_new")
    assert style.agent_style("something_new")[1:] != style.agent_style("something_else")[1:]
    ordered = style.in_order(["b", "random", "a", "bdqn", "pe_dqn"])
    assert list(ordered.items()) == [("pe_dqn", 4), ("bdqn", 3), ("random", 1), ("a", 2), ("b", 0)]


def runs_in(tmp_path):
    for seed in range(2):
        for env, agent in (("deep_sea:size=4", "pe_dqn"), ("deep_sea:size=5", "bdqn")):
            bad = np.arange(8) < 3 + seed
            config = {"env": env, "agent": agent, "seed": seed, "setting": parse(env)[1]}
            columns = {"return": 1.0 - bad, "length": np.full(8, 4), "bad": bad}
            save_run(
                run_folder(tmp_path, env, agent, seed), RunRecord(config=config, episodes=columns)
            )
    return tmp_path


def test_a_figure_of_runs_is_drawn(tmp_path, capsys):
    runs = runs_in(tmp_path / "runs")
    cli.main(["figure", "regret", str(runs), "--out", str(tmp_path / "a"), "--formats", "png"])
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"regret.npz", "regret.png"}
    assert "note: of 4 pairs of setting and seed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["regret"], "need a folder of runs: winkel figure regret RUNS"),
        (["regret", "/nowhere"], "no such folder: /nowhere"),
        (["toy", "RUNS"], "toy is computed and needs no runs"),
        (["learning-curves", "RUNS", "--returns", "greedy"], "no training runs with greedy eval"),
        (["regret", "RUNS", "--over", "steps"], "need learning-curves for --unfinished"),
        (["radar", "RUNS"], "no bsuite runs in bsuite's own settings"),
        (["statistics", "RUNS"], "no statistic runs in "),
        (["coverage", "RUNS"], "no deep_sea runs with visited in "),
        (["ensemble-size", "RUNS"], "no deep_sea runs of bdqn in "),
        (["heatmaps", "RUNS"], "no deep_sea runs with snapshots in "),
    ],
)
def test_bad_input_is_one_line(arguments, shown, tmp_path, capsys):
    given = {"RUNS": str(runs_in(tmp_path / "runs"))}
    out = ["--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stop:
        cli.main(["figure", *(given.get(a, a) for a in arguments), *out])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("winkel: error: ")
    assert message.count("\n") == 1
    assert shown in message


def test_every_figure_from_runs_has_a_title():
    assert all(FIGURES[name].TITLE for name in COLLECTED)
