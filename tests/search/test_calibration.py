"""Calibration: what its text says, whatever the scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from winkel.errors import InputError
from winkel.search.calibration import calibrated, final_scores

SCORES = arrays(np.float64, st.integers(2, 9), elements=st.integers(-900, 900).map(float))


def test_by_hand():
    """μ = 2, sup = 4: exponents 1, 0, −1/2, −1/2 of 2."""
    found = calibrated(np.array([4.0, 2.0, 1.0, 1.0]))
    np.testing.assert_allclose(found, [1.0, 0.5, 0.5 / np.sqrt(2), 0.5 / np.sqrt(2)])


def test_negative_scores_by_hand():
    """Of interactions: μ = −200, sup = −100."""
    found = calibrated(np.array([-100.0, -200.0, -300.0]))
    np.testing.assert_allclose(found, [1.0, 0.5, 0.25])


@given(SCORES)
def test_the_best_gets_1_and_an_average_one_a_half(scores):
    scores = np.append(scores, scores.mean())  # which leaves the mean where it is
    found = calibrated(scores)
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
    np.testing.assert_allclose(calibrated(scale * scores + shift), calibrated(scores), rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("value", [0.0, -3.0, 0.1])
def test_equal_scores_are_all_average(count, value):
    np.testing.assert_array_equal(calibrated(np.full(count, value)), 0.5)


def test_half_the_papers_formula():
    scores = np.array([3.0, 1.0, -2.0, 5.0])
    mean, best = scores.mean(), scores.max()
    paper = np.exp(0.693 * (scores - mean) / (best - mean))
    np.testing.assert_allclose(calibrated(scores), paper / 2, rtol=1e-3)


def test_the_final_score_is_the_sum_over_environments():
    columns, totals = final_scores(np.array([[4.0, -100.0], [2.0, -300.0], [0.0, -200.0]]))
    np.testing.assert_allclose(columns, [[1.0, 1.0], [0.5, 0.25], [0.25, 0.5]])
    np.testing.assert_allclose(totals, [2.0, 0.75, 0.75])


def test_no_trial_has_no_score():
    columns, totals = final_scores(np.zeros((0, 3)))
    assert columns.shape == (0, 3)
    assert totals.shape == (0,)


def test_infinite_scores_are_refused():
    with pytest.raises(InputError, match="got -inf"):
        calibrated(np.array([1.0, -np.inf]))
