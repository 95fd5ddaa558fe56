"""Verdicts on runs made by hand: values, intervals, and what is missing."""

import json
from dataclasses import replace

import numpy as np
import pytest

from report.synthetic import EPISODES, SEEDS, deep_sea, doom, official
from winkel.analysis.scores import score_runs, score_tags
from winkel.analysis.statistics import Interval
from winkel.envs.registry import EXPERIMENTS, TAGS
from winkel.files import save_arrays
from winkel.report.claims import assess, deviations, load_claims
from winkel.runs.record import load_run, save_run
from winkel.runs.results import COMPUTED, read_results
from winkel.runs.spec import run_folder
from winkel.runs.sweep import SWEEPS

CLAIMS = {claim["id"]: claim for claim in load_claims()}


class Assessed:
    """A claim on the runs of a folder."""

    def __init__(self, name, root):
        self.measured, self.verdict, self.reason = assess(CLAIMS[name], read_results(root))
        self.deviations = deviations(CLAIMS[name], self.measured)


def test_regret_is_halved(tmp_path):
    deep_sea(tmp_path, "pe_dqn", 5, [2, 2, 2, 2, 2])
    deep_sea(tmp_path, "pe_dqn", 6, [4, 4, 4, 4, 4])
    for other in ("bdqn", "ids", "dltv"):
        deep_sea(tmp_path, other, 5, [4, 4, 4, 4, 4])
        deep_sea(tmp_path, other, 6, [8, 8, 8, 8, 8])
    found = Assessed("median-regret", tmp_path)
    assert found.verdict == "holds"
    decisive = [part for part in found.measured.comparisons if part.decisive]
    assert [part.label for part in decisive] == ["bdqn", "ids", "dltv"]
    assert all(part.interval == Interval(0.5, 0.5, 0.5) for part in decisive)
    assert {part.seeds for part in decisive} == {"5 and 5"}
    assert found.deviations == [
        "seeds 5 (paper 10)", "episodes 20 (paper 10,000)", "size up to 6 (paper 100)",
    ]  # fmt: skip


def test_medians_are_summed_over_sizes_by_hand(tmp_path):
    deep_sea(tmp_path, "pe_dqn", 5, [1, 2, 3, 4, 9])  # median 3
    deep_sea(tmp_path, "pe_dqn", 6, [6, 6, 6, 6, 6])
    deep_sea(tmp_path, "pe_dqn_ind", 5, [10, 10, 10, 10, 10])
    deep_sea(tmp_path, "pe_dqn_ind", 6, [20, 20, 8, 20, 20])  # never found: the whole budget
    whole, small, large = Assessed("propagation", tmp_path).measured.comparisons
    assert whole.interval.estimate == pytest.approx(9 / 30)
    assert small.interval.estimate == pytest.approx(3 / 10)
    assert large.interval.estimate == pytest.approx(6 / EPISODES)
    assert whole.decisive
    assert not small.decisive
    assert not large.decisive


def test_a_larger_regret_contradicts(tmp_path):
    deep_sea(tmp_path, "pe_dqn", 5, [8] * SEEDS)
    deep_sea(tmp_path, "bdqn", 5, [4] * SEEDS)
    found = Assessed("median-regret", tmp_path)
    assert found.verdict == "does not hold"  # although others are missing
    assert found.reason == "contradicted"
    assert found.measured.missing == ("deep_sea by ids", "deep_sea by dltv")


def test_a_wide_interval_is_inconclusive(tmp_path):
    deep_sea(tmp_path, "pe_dqn", 5, [1, 1, 4, 18, 18])
    deep_sea(tmp_path, "pe_dqn_ind", 5, [1, 1, 6, 18, 18])
    found = Assessed("propagation", tmp_path)
    assert (found.verdict, found.reason) == ("does not hold", "inconclusive")


def test_few_seeds_and_missing_runs_are_untested(tmp_path):
    deep_sea(tmp_path, "pe_dqn", 5, [2] * 4)
    deep_sea(tmp_path, "pe_dqn_ind", 5, [8] * 4)
    found = Assessed("propagation", tmp_path)
    assert (found.verdict, found.reason) == ("untested", "needs 5 seeds or more, has 4")
    deep_sea(tmp_path, "pe_dqn", 5, [2] * 5)
    deep_sea(tmp_path, "pe_dqn_qr_qr", 5, [8] * 5)
    found = Assessed("diverse-projections", tmp_path)
    assert found.verdict == "untested"
    assert found.reason == "needs deep_sea by pe_dqn_c51_c51; holds in 1 of 1 measured"
    for name in set(CLAIMS) - {"propagation", "diverse-projections"}:
        assert Assessed(name, tmp_path).verdict == "untested", name


def test_different_sizes_are_not_compared(tmp_path):
    deep_sea(tmp_path, "pe_dqn", 5, [2] * 5)
    deep_sea(tmp_path, "pe_dqn_ind", 6, [8] * 5)
    found = Assessed("propagation", tmp_path)
    assert found.verdict == "untested"
    assert not found.measured.comparisons


@pytest.mark.parametrize(
    ("quantile", "categorical", "differ", "same"),
    [
        (0.9, 0.3, "holds", "does not hold"),
        (0.5, 0.5, "does not hold", "holds"),
    ],
)
def test_projections(tmp_path, quantile, categorical, differ, same):
    for moment in ("mean", "variance", "skewness", "kurtosis"):
        deep_sea(tmp_path, f"statistic_quantile_{moment}", 9, [20] * SEEDS, visited=quantile)
        deep_sea(tmp_path, f"statistic_categorical_{moment}", 9, [20] * SEEDS, visited=categorical)
    moments = Assessed("moments-differ", tmp_path)
    assert moments.verdict == differ
    assert [part.label for part in moments.measured.comparisons] == [
        "variance",
        "skewness",
        "kurtosis",
    ]
    for part in moments.measured.comparisons:
        assert part.interval.estimate == pytest.approx(quantile - categorical)
    assert Assessed("mean-does-not", tmp_path).verdict == same


def test_coverage(tmp_path):
    deep_sea(tmp_path, "dltv", 9, [20] * SEEDS, visited=[0.5, 0.6, 0.7, 0.8, 0.9])
    deep_sea(tmp_path, "dltv_no_prior", 9, [20] * SEEDS, visited=0.4)
    found = Assessed("dltv-prior", tmp_path)
    assert found.verdict == "holds"
    assert found.measured.comparisons[0].interval.estimate == pytest.approx(0.3)
    deep_sea(tmp_path, "ids", 9, [20] * SEEDS, visited=0.4)
    deep_sea(tmp_path, "ids_clip", 9, [20] * SEEDS, visited=0.6)
    assert Assessed("ids-clipping", tmp_path).reason == "contradicted"


def test_members(tmp_path):
    deep_sea(tmp_path, "pe_dqn", 5, [4] * SEEDS)
    for members, bad in ((2, 16), (20, 8)):
        deep_sea(
            tmp_path, f"bdqn_{members}", 5, [bad] * SEEDS, algorithm="bdqn",
            config={"num_members": members},
        )  # fmt: skip
    found = Assessed("ensemble-size", tmp_path)
    assert found.verdict == "holds"
    shown = {part.label: part.interval.estimate for part in found.measured.comparisons}
    assert shown == {"2 members": 0.25, "20 members": 0.5}


def test_scores_need_every_experiment_of_the_tag(tmp_path):
    shares = {"pe_dqn": 0.0, "bdqn": 0.95, "ids": 0.95, "dltv": 0.95}
    for agent, bad in shares.items():
        for seed in range(SEEDS):
            official(tmp_path, "deep_sea", 0, agent, seed, bad)
            official(tmp_path, "deep_sea_stochastic", 0, agent, seed, bad)
    found = Assessed("exploration-score", tmp_path)
    assert found.verdict == "untested"
    assert found.reason == "needs " + "; ".join(
        f"cartpole_swingup by {name}" for name in ("pe_dqn", "bdqn", "ids", "dltv")
    )
    for agent in shares:
        for seed in range(SEEDS):
            official(tmp_path, "cartpole_swingup", 0, agent, seed)
    found = Assessed("exploration-score", tmp_path)
    assert found.verdict == "holds"
    # Two of three experiments are solved or not; the third scores the same for all.
    for part in found.measured.comparisons:
        assert part.interval == Interval(*[pytest.approx(2 / 3)] * 3)
    assert found.deviations == ["settings in full 0 (paper 62)"]  # 100 episodes are too few
    exploring = [e for e in EXPERIMENTS.values() if "exploration" in e.tags]
    assert sum(len(e.settings) for e in exploring) == 62


def test_vizdoom(tmp_path):
    settings = ("dense", "sparse", "very-sparse")
    for setting in settings:
        doom(tmp_path, "pe_dqn", setting, [1] * SEEDS)
        for agent in ("bdqn", "ids"):
            doom(tmp_path, agent, setting, [1, 1, 0, 1, 1] if setting == "sparse" else [1] * SEEDS)
    assert Assessed("vizdoom-finds", tmp_path).verdict == "holds"
    only = Assessed("vizdoom-only", tmp_path)
    assert only.verdict == "untested"
    assert [part.label for part in only.measured.comparisons] == ["bdqn, sparse", "ids, sparse"]
    assert only.measured.comparisons[0].interval.estimate == 0.8
    for setting in settings:
        doom(tmp_path, "dltv", setting, [1] * SEEDS)
    assert Assessed("vizdoom-only", tmp_path).verdict == "holds in part"


def test_a_claim_may_hold_at_some_sizes_only(tmp_path):
    deep_sea(tmp_path, "pe_dqn", 5, [8] * SEEDS)
    deep_sea(tmp_path, "pe_dqn", 6, [4] * SEEDS)
    deep_sea(tmp_path, "pe_dqn_ind", 5, [4] * SEEDS)
    deep_sea(tmp_path, "pe_dqn_ind", 6, [16] * SEEDS)
    found = Assessed("propagation", tmp_path)
    assert found.verdict == "holds in part"
    assert found.reason == ("holds: pe_dqn_ind; contradicted: pe_dqn_ind, size 5")


def test_greedy_regret_is_judged_too(tmp_path):
    """Training never finds the treasure; greedy episodes have it from the third of 4 on."""
    for agent, first in (("pe_dqn", 2), ("pe_dqn_ind", 3)):
        deep_sea(tmp_path, agent, 5, [10] * SEEDS)
        for seed in range(SEEDS):
            folder = run_folder(tmp_path, "deep_sea:size=5", agent, seed)
            record = load_run(folder)
            reached = np.arange(4) >= first
            evaluations = {
                "episodes": np.array([5, 10, 15, 20]),
                "returns": np.where(reached, 0.99, -0.01)[:, None],
            }
            save_run(folder, replace(record, tables={"evaluations": evaluations}))
    found = Assessed("propagation", tmp_path)
    training, greedy = found.measured.comparisons
    assert (training.label, training.interval.estimate) == ("pe_dqn_ind", 1.0)
    assert (greedy.label, greedy.interval.estimate) == (
        "pe_dqn_ind, greedy",
        pytest.approx(10 / 15),
    )
    assert found.verdict == "holds in part"
    assert found.reason == "holds: pe_dqn_ind, greedy; inconclusive: pe_dqn_ind"


def add_snapshots(root, seed, visits, estimate):
    folder = run_folder(root, "deep_sea:size=4", "pe_dqn", seed)
    tables = {"snapshots": {"visits": visits, "disagreement": estimate, "bonus": estimate}}
    save_run(folder, replace(load_run(folder), tables=tables))


@pytest.mark.parametrize(("sign", "verdict"), [(-1, "holds"), (1, "does not hold")])
def test_disagreement_and_counts(tmp_path, sign, verdict):
    rng = np.random.default_rng(0)
    deep_sea(tmp_path, "pe_dqn", 4, [5] * SEEDS)
    for seed in range(SEEDS):
        visits = rng.integers(0, 50, (3, 16, 2))
        known = sign * visits + rng.normal(size=visits.shape)
        add_snapshots(tmp_path, seed, visits, known)
    found = Assessed("inverse-counts", tmp_path)
    assert found.verdict == verdict
    (only,) = found.measured.comparisons
    assert only.interval.estimate * sign > 0.9


@pytest.mark.parametrize(("of_start", "verdict"), [(6.5, "holds"), (1.5, "does not hold")])
def test_the_bonus_of_the_start(tmp_path, of_start, verdict):
    """Eight visited cells with bonuses 0 … 7, the first with another; the last snapshot is full."""
    deep_sea(tmp_path, "pe_dqn", 4, [5] * SEEDS)
    visits = np.zeros((4, 16, 2), int)
    visits[1:3, :8, 0] = 3
    visits[3, :10] = 9  # all 20 state-actions: not counted
    bonus = np.zeros((4, 16, 2))
    bonus[:, :8, 1] = np.arange(8)
    bonus[1:3, 0, 0] = of_start
    bonus[3, 0, 0] = 100.0
    for seed in range(SEEDS):
        add_snapshots(tmp_path, seed, visits, bonus)
    found = Assessed("start-bonus", tmp_path)
    assert found.verdict == verdict
    below = np.sum(np.arange(1, 8) < of_start) / 8
    assert found.measured.comparisons[0].interval == Interval(below, below, below)


def test_runs_with_a_snapshot_after_exploration_alone_do_not_count(tmp_path):
    deep_sea(tmp_path, "pe_dqn", 4, [5] * SEEDS)
    for seed in range(SEEDS):
        add_snapshots(tmp_path, seed, np.ones((2, 16, 2), int), np.ones((2, 16, 2)))
    found = Assessed("inverse-counts", tmp_path)
    assert found.reason == "needs deep_sea by pe_dqn with snapshots during exploration"


def test_what_is_computed_needs_no_runs_but_a_file(tmp_path):
    deep_sea(tmp_path, "dqn", 4, [5])
    assert Assessed("residual", tmp_path).verdict == "untested"
    shares = {11: 8.0, 21: 4.0, 41: 1.0, 81: 0.9}
    columns = {f"residual/{count}": np.full(6, share) for count, share in shares.items()}
    save_arrays(tmp_path / COMPUTED, columns)
    found = Assessed("residual", tmp_path)
    assert found.verdict == "holds in part"
    assert found.reason == "holds: 21 / 11 atoms, 41 / 21 atoms; contradicted: 81 / 41 atoms"
    assert found.measured.comparisons[1].interval == Interval(0.25, 0.25, 0.25)
    assert (
        Assessed("toy", tmp_path).reason == "needs computed.npz, from `python results/computed.py`"
    )
    (tmp_path / COMPUTED).write_bytes(b"no array")
    assert COMPUTED in " ".join(read_results(tmp_path).problems)


def test_a_harder_setting(tmp_path):
    for agent in ("bdqn", "ids", "dltv"):
        doom(tmp_path, agent, "sparse", [0] * SEEDS)
        doom(tmp_path, agent, "very-sparse", [0 if agent == "ids" else 1] * SEEDS)
    found = Assessed("vizdoom-forked", tmp_path)
    gaps = [part.interval.estimate for part in found.measured.comparisons]
    assert gaps == [-0.5, 0.0, -0.5]
    assert found.reason == "holds: bdqn, dltv; inconclusive: ids"


def test_speeds_of_sweeps(tmp_path):
    doom(tmp_path, "pe_dqn", "dense", [0])
    rates = {"pe_dqn": (100, 110), "bdqn": (100, 105), "ids": (100, 100), "dltv": (300, 310)}
    rows = [
        {"groups": [{"group": f"{name} in doom:my-way-home/{setting}", "updates_per_second": rate}]}
        for name, both in rates.items()
        for setting, rate in zip(("dense", "sparse"), both, strict=True)
    ]
    (tmp_path / SWEEPS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = Assessed("vizdoom-compute", tmp_path)
    assert found.reason == "holds: bdqn, ids; contradicted: dltv"
    assert found.measured.comparisons[2].interval.estimate == pytest.approx(105 / 305)


def test_capabilities_and_curves_of_bsuite(tmp_path):
    """A run of each experiment: all bad or not in deep sea, and a greedy return by agent."""
    names = [*EXPERIMENTS]
    for agent in ("pe_dqn", "bdqn", "ids", "dltv"):
        ahead = {"pe_dqn": names, "bdqn": names[:3], "ids": names[:20], "dltv": []}[agent]
        for seed in range(SEEDS):
            for name in names:
                official(tmp_path, name, 0, agent, seed, 0.0 if agent == "pe_dqn" else 0.95)
                folder = run_folder(tmp_path, f"{name}/0", agent, seed)
                made = 2.0 * (name in ahead) - 1.0 * (agent == "pe_dqn")
                table = {"evaluation": np.arange(1, 3), "returns": np.full((2, 1), made)}
                save_run(folder, replace(load_run(folder), tables={"evaluations": table}))
    curves = Assessed("learning-curves", tmp_path)
    shares = {part.label: part.interval.estimate for part in curves.measured.comparisons}
    assert shares == {"bdqn": 20 / 23, "ids": 3 / 23, "dltv": 1.0}
    assert curves.reason == "holds: bdqn, dltv; contradicted: ids"
    more = Assessed("more-capabilities", tmp_path)
    assert len(more.measured.comparisons) == 18
    assert more.measured.comparisons[0].label == "bdqn, basic"
    strongest = Assessed("strongest-capability", tmp_path)
    assert [part.label for part in strongest.measured.comparisons] == [
        tag for tag in TAGS if tag != "exploration"
    ]
    scores = score_tags(score_runs(read_results(tmp_path).of(agent="pe_dqn"))["pe_dqn", 0])
    for part in strongest.measured.comparisons:
        gap = scores["exploration"] - scores[part.label]
        assert part.interval.estimate == pytest.approx(gap)
