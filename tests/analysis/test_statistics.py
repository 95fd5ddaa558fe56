"""Against rliable (tests/fixtures/make_statistics.py), SciPy, resampling in full; properties."""

import itertools
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from winkel.analysis import statistics as S
from winkel.errors import InputError

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

FIXTURE = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "statistics.json").read_text(encoding="utf-8")
)
SCORES, PAIRS = FIXTURE["scores"], FIXTURE["pairs"]
SAME = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)


def mean(scores):
    return scores.mean(axis=(-2, -1))


def median(scores):
    return np.median(scores.mean(axis=-2), axis=-1)


AGGREGATES = {"mean": mean, "median": median, "iqm": S.iqm, "optimality_gap": S.optimality_gap}


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
    SAME(S.iqm(scores), found["aggregates"]["iqm"])
    gaps = [S.optimality_gap(scores, gamma) for gamma in FIXTURE["gammas"]]
    SAME(gaps, found["optimality_gaps"])


@pytest.mark.parametrize("case", [case for case in SCORES if case != "one run"])
def test_bootstrap_ends_are_rliables(case):
    found = SCORES[case]
    scores = np.array(found["scores"])
    for name, ends in found["aggregate_ends"].items():
        ours = S.stratified_bootstrap(scores, AGGREGATES[name], repetitions=50_000)
        assert_between(ours, **ends)


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


def test_tasks_are_resampled_independently(rng):
    """Whole rows would have no spread; rows and tasks pooled would have far more."""
    first = rng.normal(size=(20, 1))
    found = S.stratified_bootstrap(np.hstack([100 + first, -100 - first]), mean)
    expected = 2 * 1.96 * first.std() / np.sqrt(20 * 2)
    assert abs((found.high - found.low) / expected - 1) < 0.15


def test_the_seed_decides(rng):
    scores = rng.normal(size=(5, 3))
    first, again, other = (S.stratified_bootstrap(scores, mean, seed=s) for s in (0, 0, 1))
    assert first == again
    assert first.low != other.low


@given(matrices(), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_the_order_of_runs_changes_nothing(scores, random):
    shuffled = np.stack([random.sample(list(task), len(task)) for task in scores.T], axis=-1)
    SAME(
        S.stratified_bootstrap(shuffled, S.iqm, repetitions=50),
        S.stratified_bootstrap(scores, S.iqm, repetitions=50),
    )
    SAME(
        S.probability_of_improvement(shuffled, scores[:2], repetitions=50),
        S.probability_of_improvement(scores, scores[:2], repetitions=50),
    )


@given(matrices(), st.floats(-10, 10), st.floats(0.1, 10))
@settings(max_examples=20)
def test_intervals_move_and_scale_with_scores(scores, shift, scale):
    same = partial(np.testing.assert_allclose, atol=1e-9)
    bootstrap = partial(S.stratified_bootstrap, statistic=S.iqm, repetitions=50)
    same(bootstrap(scale * scores + shift), scale * np.array(bootstrap(scores)) + shift)
    same(S.optimality_gap(scores + shift, gamma=shift), S.optimality_gap(scores, gamma=0.0))
    same(
        S.student_interval(scale * scores + shift),
        scale * np.array(S.student_interval(scores)) + shift,
    )


@given(matrices(), matrices())
@settings(max_examples=20)
def test_means_lie_in_their_intervals(x, y):
    """The bootstrap of anything that is a mean is centred at it."""
    tasks = min(x.shape[1], y.shape[1])
    x, y = x[:, :tasks], y[:, :tasks]
    for estimate, low, high in (
        S.stratified_bootstrap(x, S.optimality_gap, repetitions=500),
        S.probability_of_improvement(x, y, repetitions=500),
        S.student_interval(x),
    ):
        assert np.all(low - 1e-9 <= estimate)
        assert np.all(estimate <= high + 1e-9)


def test_one_run_has_no_interval(rng):
    scores = rng.normal(size=(1, 3))
    other = rng.normal(size=(4, 3))
    for interval in (
        S.stratified_bootstrap(scores, S.iqm),
        S.probability_of_improvement(scores, other),
        S.probability_of_improvement(other, scores),
        S.student_interval(scores),
    ):
        assert np.isfinite(interval.estimate).all()
        assert np.isnan(interval.low).all()
        assert np.isnan(interval.high).all()


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
    for statistic in (mean, S.iqm):
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


def test_students_interval_is_scipys(rng):
    values = rng.normal(size=(5, 7, 3))
    test = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
    SAME(S.student_interval(values), (values.mean(0), test.low, test.high))


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
    SAME(improvement(np.arctan(x), np.arctan(y)), there)  # monotone maps change nothing
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


def test_infinite_replicates_have_ends():
    samples = [np.array([1.0, 1.0, 2.0]), np.array([0.0, 0.0, 1.0])]
    with np.errstate(divide="ignore"):
        found = S.bootstrap(
            samples, lambda x, y: np.median(x, axis=-1) / np.median(y, axis=-1), repetitions=500
        )
    assert (found.estimate, found.low, found.high) == (np.inf, 1.0, np.inf)


# Bad input

GOOD = np.zeros((3, 2))
GAP = np.array([[0.0, 1.0], [2.0, np.nan], [np.nan, 5.0]])
ENDLESS = np.array([[0.0, 1.0], [2.0, np.inf]])


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda: S.iqm(GAP), r"every run, got scores\[1, 1\] = nan \(2 such of 6\)"),
        (lambda: S.optimality_gap(GAP), r"scores\[1, 1\] = nan"),
        (lambda: S.stratified_bootstrap(GAP, S.iqm), r"scores\[1, 1\] = nan"),
        (lambda: S.probability_of_improvement(GAP, GOOD), r"x\[1, 1\] = nan"),
        (lambda: S.probability_of_improvement(GOOD, GAP), r"y\[1, 1\] = nan"),
        (lambda: S.student_interval(GAP), r"values\[1, 1\] = nan"),
        (lambda: S.median_iqr(GAP[1]), r"values\[1\] = nan"),
        (lambda: S.median_iqr(GOOD), r"values\[runs\].*\(3, 2\)"),
        (lambda: S.median_iqr(np.zeros(0)), r"at least one.*\(0,\)"),
        (lambda: S.iqm(ENDLESS), r"finite number for every run, got scores\[1, 1\] = inf"),
        (lambda: S.stratified_bootstrap(np.zeros((3, 2, 9)), mean), r"a row.*\(3, 2, 9\)"),
        (lambda: S.probability_of_improvement(GOOD, GOOD.T), r"\(3, 2\) and \(2, 3\)"),
        (lambda: S.wilson_interval(3, 2), "got 3 of 2"),
        (lambda: S.wilson_interval(0, 0), "got 0 of 0"),
    ],
)
def test_unusable_input_is_refused(call, shown):
    with pytest.raises(InputError, match=shown):
        call()
