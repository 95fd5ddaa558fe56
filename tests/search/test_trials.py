"""Calibrated scores, the median rule and suggestions, from trials alone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from optuna.trial import TrialState, create_trial

from search.tiny import RATES, problem, step_of
from winkel.search.population import is_below_median, score_at
from winkel.search.study import calibrate, calibrated_scores, final_scores, suggest

SCORES = arrays(np.float64, st.integers(2, 9), elements=st.integers(-900, 900).map(float))
PROBLEM = problem()
DONE, PRUNED, RUNNING = TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING


def frozen(number, scores, state=DONE, rate=None):
    """A trial with scores by step."""
    params = {} if rate is None else {"learning_rate": rate}
    trial = create_trial(
        state=state,
        value=0.0 if state == DONE else None,
        params=params,
        distributions={name: PROBLEM.parameters[name] for name in params},
        intermediate_values=scores,
    )
    trial.number = number
    return trial


def test_calibration_by_hand():
    """μ = 2, sup = 4: exponents 1, 0, −1/2, −1/2 of 2; and negative scores, of interactions."""
    found = calibrate(np.array([4.0, 2.0, 1.0, 1.0]))
    np.testing.assert_allclose(found, [1.0, 0.5, 0.5 / np.sqrt(2), 0.5 / np.sqrt(2)])
    np.testing.assert_allclose(calibrate(np.array([-100.0, -200.0, -300.0])), [1.0, 0.5, 0.25])


@given(SCORES)
def test_the_best_gets_1_and_an_average_one_a_half(scores):
    scores = np.append(scores, scores.mean())  # which leaves the mean where it is
    found = calibrate(scores)
    if np.ptp(scores[:-1]) == 0:
        np.testing.assert_array_equal(found, 0.5)
        return
    np.testing.assert_allclose(found[scores == scores.max()], 1.0)
    np.testing.assert_allclose(found[-1], 0.5, rtol=1e-6)
    order = np.argsort(scores, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    assert (found > 0).all()


@given(SCORES, st.sampled_from([0.5, 2.0, 16.0]), st.integers(-50, 50))
def test_units_do_not_matter(scores, scale, shift):
    np.testing.assert_allclose(calibrate(scale * scores + shift), calibrate(scores), rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("value", [0.0, -3.0, 0.1])
def test_equal_scores_are_all_average(count, value):
    np.testing.assert_array_equal(calibrate(np.full(count, value)), 0.5)


def test_half_the_papers_formula():
    scores = np.array([3.0, 1.0, -2.0, 5.0])
    mean, best = scores.mean(), scores.max()
    paper = np.exp(0.693 * (scores - mean) / (best - mean))
    np.testing.assert_allclose(calibrate(scores), paper / 2, rtol=1e-3)


def test_the_final_score_is_the_sum_over_environments():
    at = {0: step_of(0, 5), 1: step_of(1, 5)}
    rows = [(4.0, -100.0), (2.0, -300.0), (0.0, -200.0)]
    trials = [frozen(i, {at[0]: a, at[1]: b}) for i, (a, b) in enumerate(rows)]
    np.testing.assert_allclose(calibrated_scores(trials, 2), [[1.0, 1.0], [0.5, 0.25], [0.25, 0.5]])
    running = frozen(3, {at[0]: 9.0}, RUNNING)
    assert final_scores([*trials, running], 2) == {0: 2.0, 1: 0.75, 2: 0.75}
    assert final_scores([running], 2) == {}


@pytest.mark.parametrize(
    ("score", "others", "below"),
    [
        (1.0, [0.0, 2.0, 3.0], True),
        (2.0, [0.0, 2.0, 3.0], False),
        (1.0, [2.0, 3.0], False),
        (1.0, [-math.inf, -math.inf, 3.0], False),
        (-math.inf, [0.0, 0.0, 1.0], True),
    ],
)
def test_the_median_rule_by_hand(monkeypatch, score, others, below):
    monkeypatch.setattr("winkel.search.population.STARTUP", 3)
    trials = [frozen(i, {1: value}, RUNNING) for i, value in enumerate([score, *others])]
    assert is_below_median(0, 1, trials) == below


def test_pruned_trials_count_as_lower_in_their_environment():
    scores = {step_of(0, milestone): 5.0 for milestone in range(1, 6)} | {step_of(1, 1): 2.0}
    pruned, running = frozen(0, scores, PRUNED), frozen(0, scores, RUNNING)
    assert score_at(pruned, step_of(1, 1)) == 2.0
    assert score_at(pruned, step_of(1, 2)) == -math.inf
    assert score_at(pruned, step_of(2, 1)) is None
    assert score_at(running, step_of(1, 2)) is None
    assert score_at(pruned, step_of(0, 3)) == 5.0
    assert score_at(frozen(0, {}, PRUNED), step_of(0, 1)) is None


def test_suggestions_follow_from_the_trials_and_do_not_repeat():
    assert suggest(PROBLEM, [], count=4) == suggest(PROBLEM, [], count=4)
    tried = frozen(0, {step_of(0, 5): 1.0}, rate=RATES[2])
    batch = suggest(PROBLEM, [tried], count=len(RATES) - 1)
    assert sorted(params["learning_rate"] for params in batch) == sorted({*RATES} - {RATES[2]})
