"""Against rliable (tests/fixtures/make_statistics.py), SciPy, exhaustive resampling, and laws."""

import itertools
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from winkel.errors import InputError
from winkel.experiments import statistics as S
from winkel.experiments.statistics import Interval

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

FIXTURE = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "statistics.json").read_text(encoding="utf-8")
)
SCORES, PAIRS = FIXTURE["scores"], FIXTURE["pairs"]
THRESHOLDS = np.array(FIXTURE["thresholds"])
SAME = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
AGGREGATES = {f.__name__: f for f in (S.mean, S.median, S.iqm, S.optimality_gap)}
SHIFTED = (S.mean, S.median, S.iqm)


def matrices(min_runs=2, elements=None):
    shapes = st.tuples(st.integers(min_runs, 6), st.integers(1, 5))
    return hnp.arrays(np.float64, shapes, elements=elements or st.floats(-10, 10))


def assert_between(ours, low, high):
    """Ends of ours between the neighbours of theirs; 50,000 repetitions, see the fixture."""
    for end, (outer, _, inner) in ((ours.low, low), (ours.high, high)):
        least, most = sorted((outer, inner))
        assert least - 1e-12 <= end <= most + 1e-12


# Equal to rliable


@pytest.mark.parametrize("case", SCORES)
def test_aggregates_equal_rliables(case):
    found = SCORES[case]
    scores = np.array(found["scores"])
    for name, expected in found["aggregates"].items():
        SAME(AGGREGATES[name](scores), expected)
    gaps = [S.optimality_gap(scores, gamma) for gamma in FIXTURE["gammas"]]
    SAME(gaps, found["optimality_gaps"])
    SAME(S.performance_profile(scores, THRESHOLDS, repetitions=1).estimate, found["profile"])


@pytest.mark.parametrize("case", [case for case in SCORES if case != "one run"])
def test_bootstrap_ends_are_rliables(case):
    found = SCORES[case]
    scores = np.array(found["scores"])
    for name, ends in found["aggregate_ends"].items():
        ours = S.stratified_bootstrap(scores, AGGREGATES[name], repetitions=50_000)
        assert_between(ours, **ends)
    ours = S.performance_profile(scores, THRESHOLDS, repetitions=50_000)
    for i, (low, high) in enumerate(zip(*found["profile_ends"].values(), strict=True)):
        assert_between(Interval(*(field[i] for field in ours)), low, high)


@pytest.mark.parametrize("case", PAIRS)
def test_probability_of_improvement_is_rliables(case):
    found = PAIRS[case]
    x, y = np.array(found["x"]), np.array(found["y"])
    ours = S.probability_of_improvement(x, y, repetitions=50_000)
    SAME(ours.estimate, found["probability"])
    assert_between(ours, **found["ends"])


# The bootstrap


@pytest.mark.parametrize("statistic", AGGREGATES.values())
@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_ends_are_those_of_all_resamples(statistic, confidence):
    """All 27 · 27 of 3 runs of 2 tasks; by DKW a share is off by 0.02 with a chance of 2e-7."""
    scores = np.array([[0.1, 0.9], [0.2, 1.4], [0.7, 0.3]])
    draws = np.array(list(itertools.product(range(3), repeat=3)))  # [27, 3]
    pairs = np.stack([np.repeat(draws, 27, axis=0), np.tile(draws, (27, 1))], axis=-1)
    replicates = statistic(scores[pairs, np.arange(2)])
    assert replicates.shape == (729,)
    ours = S.stratified_bootstrap(scores, statistic, repetitions=20_000, confidence=confidence)
    tail = (1 - confidence) / 2
    for end, level in ((ours.low, tail), (ours.high, 1 - tail)):
        least, most = np.quantile(replicates, [level - 0.02, level + 0.02])
        assert least - 1e-12 <= end <= most + 1e-12


def test_tasks_are_resampled_apart(rng):
    """Rows taken whole would have no spread; rows and tasks pooled would have far more."""
    first = rng.normal(size=(20, 1))
    found = S.stratified_bootstrap(np.hstack([100 + first, -100 - first]), S.mean)
    expected = 2 * 1.96 * first.std() / np.sqrt(20 * 2)
    assert abs((found.high - found.low) / expected - 1) < 0.15


def test_blocks_change_nothing(rng, monkeypatch):
    scores = rng.normal(size=(5, 3))

    def found():
        return [
            S.stratified_bootstrap(scores, S.iqm, repetitions=101),
            S.probability_of_improvement(scores, scores[:3] + 0.1, repetitions=101),
        ]

    at_once = found()
    for block in (1, 100):
        monkeypatch.setattr(S, "_BLOCK", block)
        SAME(found(), at_once)


def test_fifty_thousand_repetitions_take_seconds(rng):
    """About 1 s on one core; a loop over repetitions with SciPy's trim_mean takes 10."""
    before = time.process_time()
    S.stratified_bootstrap(rng.uniform(size=(10, 23)), S.iqm, repetitions=50_000)
    assert time.process_time() - before < 5


def test_the_seed_decides(rng):
    scores = rng.normal(size=(5, 3))
    first, again, other = (S.stratified_bootstrap(scores, S.mean, seed=s) for s in (0, 0, 1))
    assert first == again
    assert first.low != other.low


@given(matrices(), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_the_order_of_runs_changes_nothing(scores, random):
    shuffled = np.stack([random.sample(list(task), len(task)) for task in scores.T], axis=-1)
    for statistic in AGGREGATES.values():
        SAME(
            S.stratified_bootstrap(shuffled, statistic, repetitions=50),
            S.stratified_bootstrap(scores, statistic, repetitions=50),
        )
    at = np.array([-1.0, 0.0, 3.0])
    SAME(
        S.performance_profile(shuffled, at, repetitions=50),
        S.performance_profile(scores, at, repetitions=50),
    )
    SAME(
        S.probability_of_improvement(shuffled, scores[:2], repetitions=50),
        S.probability_of_improvement(scores, scores[:2], repetitions=50),
    )


@given(matrices(), st.floats(-10, 10), st.floats(0.1, 10))
@settings(max_examples=30)
def test_intervals_move_and_scale_with_scores(scores, shift, scale):
    same = partial(np.testing.assert_allclose, atol=1e-9)
    for statistic in SHIFTED:
        bootstrap = partial(S.stratified_bootstrap, statistic=statistic, repetitions=50)
        same(bootstrap(scale * scores + shift), scale * np.array(bootstrap(scores)) + shift)
    gap = partial(S.optimality_gap, gamma=shift)
    moved = partial(S.optimality_gap, gamma=0.0)
    same(gap(scores + shift), moved(scores))
    same(
        S.student_interval(scale * scores + shift),
        scale * np.array(S.student_interval(scores)) + shift,
    )


@given(matrices(), matrices())
@settings(max_examples=30)
def test_means_lie_in_their_intervals(x, y):
    """The bootstrap of anything that is a mean is centred at it."""
    tasks = min(x.shape[1], y.shape[1])
    runs = min(x.shape[0], y.shape[0])
    x, y = x[:, :tasks], y[:, :tasks]
    options = {"repetitions": 500, "confidence": 0.95}
    for estimate, low, high in (
        S.stratified_bootstrap(x, S.mean, **options),
        S.stratified_bootstrap(x, S.optimality_gap, **options),
        S.probability_of_improvement(x, y, **options),
        S.performance_profile(x, np.array([-1.0, 0.0, 3.0]), **options),
        S.paired_difference(x[:runs], y[:runs], **options),
        S.student_interval(x),
    ):
        assert np.all(low - 1e-9 <= estimate)
        assert np.all(estimate <= high + 1e-9)


@given(matrices())
@settings(max_examples=30)
def test_a_higher_confidence_is_wider(scores):
    narrow, wide = (
        S.stratified_bootstrap(scores, S.iqm, repetitions=100, confidence=c) for c in (0.8, 0.95)
    )
    assert wide.low <= narrow.low <= narrow.high <= wide.high


@pytest.mark.parametrize("statistic", AGGREGATES.values())
def test_statistics_take_leading_axes(statistic, rng):
    many = rng.normal(size=(2, 3, 7, 5))
    SAME(statistic(many), [[statistic(scores) for scores in row] for row in many])


def test_one_run_has_no_interval(rng):
    scores = rng.normal(size=(1, 3))
    other = rng.normal(size=(4, 3))
    for interval in (
        S.stratified_bootstrap(scores, S.mean),
        S.performance_profile(scores, np.zeros(2)),
        S.probability_of_improvement(scores, other),
        S.probability_of_improvement(other, scores),
        S.paired_difference(scores, scores),
        S.student_interval(scores),
    ):
        assert np.isfinite(interval.estimate).all()
        assert np.isnan(interval.low).all()
        assert np.isnan(interval.high).all()


def test_means_of_float32_are_those_of_float64():
    scores = np.full((10, 23), 0.1, np.float32)
    scores[0] = 1e6
    assert S.mean(scores) == S.mean(scores.astype(np.float64))


# Coverage


def coverage(interval, truth, simulations):
    rng = np.random.default_rng(0)
    found = (interval(rng) for _ in range(simulations))
    return np.mean([low <= truth <= high for _, low, high in found])


def test_coverage_of_the_bootstrap():
    """10 runs of 5 tasks: 95 % are 0.933 and 0.940 in 3,000 simulations of 1,000 repetitions.

    Here 400 of 400, with a standard error of 0.013. Pooling the tasks would cover 1.00, and
    taking 20 equal episodes of each run for runs 0.33.
    """
    offsets = np.linspace(-3, 3, 5)
    for statistic in (S.mean, S.iqm):
        found = coverage(
            lambda rng, statistic=statistic: S.stratified_bootstrap(
                rng.normal(offsets, 1.0, (10, 5)), statistic, repetitions=400
            ),
            truth=0.0,
            simulations=400,
        )
        assert 0.89 < found < 0.975


def test_coverage_of_the_probability_of_improvement():
    """0.938 in 2,000 simulations; here 300, with a standard error of 0.014."""
    found = coverage(
        lambda rng: S.probability_of_improvement(
            rng.normal(0.5, 1.0, (10, 5)), rng.normal(0.0, 1.0, (10, 5)), repetitions=400
        ),
        truth=scipy.stats.norm.cdf(0.5 / np.sqrt(2)),
        simulations=300,
    )
    assert 0.89 < found < 0.98


def test_coverage_of_students_interval():
    """Exact for normal values; 20,000 curves of 5 runs have a standard error of 0.002."""
    values = np.random.default_rng(0).normal(size=(5, 20_000))
    _, low, high = S.student_interval(values)
    assert abs(np.mean((low <= 0) & (high >= 0)) - 0.9) < 0.009


def test_coverage_of_wilsons_interval():
    """Exact, from the binomial law: 0.954 over all p for 10 runs, and 0.836 at worst, p = 0.018."""
    for trials in (10, 20, 30):
        share = np.linspace(0.01, 0.99, 9801)
        ends = [S.wilson_interval(solved, trials) for solved in range(trials + 1)]
        covers = np.array([(low <= share) & (share <= high) for _, low, high in ends])
        chance = scipy.stats.binom.pmf(np.arange(trials + 1)[:, None], trials, share)
        covered = (covers * chance).sum(axis=0)
        assert 0.945 < covered.mean() < 0.96
        assert covered.min() > 0.83


# Single functions


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe (1998), table I, method 3; then 5 of 10 by hand: 1/2 ± z/2 / sqrt(10 + z²)
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (5, 10, 0.2366, 0.7634),
    ],
)
def test_wilsons_interval_is_the_published_one(successes, trials, low, high):
    SAME(S.wilson_interval(successes, trials), (successes / trials, low, high), rtol=0, atol=5e-5)


@given(st.integers(1, 200), st.floats(0, 1), st.floats(0.5, 0.999))
def test_wilsons_interval_is_scipys(trials, share, confidence):
    solved = round(share * trials)
    test = scipy.stats.binomtest(solved, trials).proportion_ci(confidence, method="wilson")
    ours = S.wilson_interval(np.int64(solved), trials, confidence)
    SAME(ours, (solved / trials, test.low, test.high))
    assert 0 <= ours.low <= ours.estimate <= ours.high <= 1
    failed = S.wilson_interval(trials - solved, trials, confidence)
    SAME((failed.low, failed.high), (1 - ours.high, 1 - ours.low))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_students_interval_is_scipys(axis, rng):
    values = rng.normal(size=(5, 7, 3))
    ours = S.student_interval(values, axis=axis)
    test = scipy.stats.ttest_1samp(values, 0.0, axis=axis).confidence_interval(0.9)
    SAME(ours, (values.mean(axis), test.low, test.high))


def test_students_interval_by_hand():
    """Mean 2, standard deviation 1, t_2(0.95) = 2.919986."""
    half = 2.919986 / np.sqrt(3)
    SAME(S.student_interval(np.array([1.0, 2.0, 3.0])), (2, 2 - half, 2 + half), rtol=1e-6)


@given(hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(-1e6, 1e6)))
def test_quartiles_are_numpys_when_all_are_finite(values):
    np.testing.assert_allclose(
        S.median_iqr(values), np.quantile(values, [0.5, 0.25, 0.75]), rtol=1e-12, atol=1e-9
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3, 4, np.inf], (3, 2, 4)),
        ([4, np.inf, 2, np.inf, 1], (4, 2, np.inf)),
        ([1, 2, np.inf, np.inf, np.inf], (np.inf, 2, np.inf)),
        ([1, 2, 3, np.inf], (2.5, 1.75, np.inf)),
        ([1, 2, np.inf, np.inf], (np.inf, 1.75, np.inf)),
        ([np.inf, np.inf], (np.inf, np.inf, np.inf)),
        ([7], (7, 7, 7)),
    ],
)
def test_unsolved_runs_count_as_later_than_any(values, expected):
    SAME(S.median_iqr(np.array(values, np.float64)), expected)


@given(
    hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1000)),
    st.floats(0, 1000),
)
def test_quartiles_are_limits_of_longer_budgets(times, budget):
    """Where those of runs that end long after the budget are long, ours are inf; else equal."""
    censored = np.where(times <= budget, times, np.inf)
    ours = np.array(S.median_iqr(censored))
    late = np.quantile(np.where(times <= budget, times, 1e12), [0.5, 0.25, 0.75])
    assert not np.isnan(ours).any()
    np.testing.assert_allclose(ours, np.where(late > 1e6, np.inf, late), atol=1e-9)


@given(matrices(1), matrices(1))
@settings(max_examples=50)
def test_improvement_either_way_adds_up_to_one(x, y):
    tasks = min(x.shape[1], y.shape[1])
    x, y = np.round(x[:, :tasks]), np.round(y[:, :tasks])
    improvement = partial(S.probability_of_improvement, repetitions=50)
    there, back = improvement(x, y), improvement(y, x)
    SAME(there.estimate + back.estimate, 1)
    monotone = improvement(np.arctan(x), np.arctan(y))
    SAME(monotone, there)
    by_hand = np.mean(
        [
            np.mean([(a > b) + 0.5 * (a == b) for a in left for b in right])
            for left, right in zip(x.T, y.T, strict=True)
        ]
    )
    SAME(there.estimate, by_hand)


def test_infinite_scores_can_be_compared():
    lost, won = np.full((3, 2), -np.inf), np.full((4, 2), np.inf)
    assert S.probability_of_improvement(won, lost) == (1, 1, 1)
    assert S.probability_of_improvement(won, won) == (0.5, 0.5, 0.5)
    SAME(S.performance_profile(won, np.zeros(1)), np.ones((3, 1)))


def test_a_profile_falls_and_a_score_is_not_above_itself(rng):
    scores = rng.uniform(size=(6, 4)).round(1)
    profile = S.performance_profile(scores, np.linspace(0, 1, 11).round(1))
    for curve in profile:
        assert (np.diff(curve) <= 1e-12).all()
    assert profile.estimate[-1] == 0
    assert profile.estimate[0] == np.mean(scores != 0)


def test_the_area_above_a_profile_is_the_optimality_gap(rng):
    """∫ P(score ≤ τ) dτ over [0, 1], for scores in [0, 1]; by midpoints on their lattice."""
    scores = rng.uniform(size=(6, 4)).round(2)
    midpoints = np.arange(0.005, 1, 0.01)
    profile = S.performance_profile(scores, midpoints, repetitions=1)
    SAME(np.mean(1 - profile.estimate), S.optimality_gap(scores), atol=1e-9)


def test_what_a_seed_does_to_both_cancels(rng):
    luck = 10 * rng.normal(size=(8, 3))
    gain = rng.normal(0.5, 0.1, size=(8, 3))
    paired = S.paired_difference(luck + gain, luck)
    SAME(paired, S.stratified_bootstrap(gain, S.mean), rtol=1e-9)
    assert 0.4 < paired.low < paired.high < 0.6
    misaligned = S.paired_difference(luck + gain, luck[::-1])
    SAME(misaligned.estimate, paired.estimate, rtol=1e-9)
    assert misaligned.high - misaligned.low > 20 * (paired.high - paired.low)


# Bad input

GOOD = np.zeros((3, 2))
GAP = np.array([[0.0, 1.0], [2.0, np.nan], [np.nan, 5.0]])
ENDLESS = np.array([[0.0, 1.0], [2.0, np.inf]])


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda: S.mean(GAP), r"every run, got scores\[1, 1\] = nan \(2 such of 6\)"),
        (lambda: S.median(GAP), r"scores\[1, 1\] = nan"),
        (lambda: S.iqm(GAP), r"scores\[1, 1\] = nan"),
        (lambda: S.optimality_gap(GAP), r"scores\[1, 1\] = nan"),
        (lambda: S.stratified_bootstrap(GAP, S.iqm), r"scores\[1, 1\] = nan"),
        (lambda: S.performance_profile(GAP, np.zeros(1)), r"scores\[1, 1\] = nan"),
        (lambda: S.performance_profile(GOOD, GAP[1]), r"thresholds\[1\] = nan"),
        (lambda: S.probability_of_improvement(GAP, GOOD), r"x\[1, 1\] = nan"),
        (lambda: S.probability_of_improvement(GOOD, GAP), r"y\[1, 1\] = nan"),
        (lambda: S.paired_difference(GOOD, GAP), r"y\[1, 1\] = nan"),
        (lambda: S.student_interval(GAP), r"values\[1, 1\] = nan"),
        (lambda: S.median_iqr(GAP[1]), r"values\[1\] = nan"),
        (lambda: S.median_iqr(np.array([-np.inf])), r"above -inf, got values\[0\] = -inf"),
        (lambda: S.median_iqr(GOOD), r"values\[runs\].*\(3, 2\)"),
        (lambda: S.median_iqr(np.zeros(0)), r"at least one.*\(0,\)"),
        (lambda: S.iqm(ENDLESS), r"finite numbers, got scores\[1, 1\] = inf"),
        (lambda: S.stratified_bootstrap(ENDLESS, S.mean), r"scores\[1, 1\] = inf"),
        (lambda: S.paired_difference(GOOD[:2], ENDLESS), r"y\[1, 1\] = inf"),
        (lambda: S.iqm(np.zeros(3)), r"runs, tasks\], got shape \(3,\)"),
        (lambda: S.iqm(np.zeros((0, 3))), r"at least one.*\(0, 3\)"),
        (lambda: S.stratified_bootstrap(np.zeros((3, 2, 9)), S.mean), r"episodes.*\(3, 2, 9\)"),
        (lambda: S.stratified_bootstrap(GOOD, np.mean), r"leading axes: for \d+ .*shape \(\), "),
        (lambda: S.stratified_bootstrap(GOOD, lambda s: s.mean(-2)), r"one number.*\(2,\)"),
        (lambda: S.stratified_bootstrap(GOOD, lambda s: np.inf + s.mean((-2, -1))), "finite for"),
        (lambda: S.stratified_bootstrap(GOOD, S.mean, confidence=95.0), "confidence < 1, got 95"),
        (lambda: S.stratified_bootstrap(GOOD, S.mean, repetitions=0), "repetitions >= 1.*got 0"),
        (lambda: S.stratified_bootstrap(GOOD, S.mean, seed=-1), "seed >= 0.*got -1"),
        (lambda: S.probability_of_improvement(GOOD, GOOD.T), r"\(3, 2\) and \(2, 3\)"),
        (lambda: S.paired_difference(GOOD, GOOD[:2]), r"same seeds.*\(3, 2\) and \(2, 2\)"),
        (lambda: S.performance_profile(GOOD, GOOD), r"list of thresholds, got shape \(3, 2\)"),
        (lambda: S.student_interval(GOOD, axis=2), r"axis 2 of shape \(3, 2\)"),
        (lambda: S.student_interval(GOOD, 1.0), "got 1.0"),
        (lambda: S.wilson_interval(3, 2), "got 3 of 2"),
        (lambda: S.wilson_interval(0, 0), "trials >= 1.*got 0"),
        (lambda: S.wilson_interval(-1, 2), "successes >= 0.*got -1"),
        (lambda: S.wilson_interval(1, 2, 0.0), "got 0.0"),
    ],
)
def test_unusable_input_is_refused(call, shown):
    with pytest.raises(InputError, match=shown):
        call()
