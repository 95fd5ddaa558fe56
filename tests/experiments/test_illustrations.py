"""The data behind the figures say what the captions claim."""

import numpy as np
import pytest

from winkel.errors import InputError
from winkel.experiments.iteration import IterationConfig, convergence, propagation
from winkel.experiments.operator import operator
from winkel.experiments.toy import ToyConfig, toy


def test_the_two_models_agree_at_the_data_and_differ_away_from_them():
    """Expected with seed 0: mean gaps of 0.04 and 0.43."""
    heard = []
    results = toy(ToyConfig(), lambda *at: heard.append(at))
    gap = np.abs(results["categorical"] - results["quantile"]).mean(axis=1)
    near = np.abs(results["grid"][:, None] - results["x"][None]).min(axis=1) < 0.05
    assert gap[near].mean() < 0.08
    assert gap[~near].mean() > 0.25
    for name in ("categorical", "quantile"):
        fitted = np.interp(results["x"], results["grid"], results[name][:, 4])
        below = (results["y"] <= fitted).mean()
        assert 0.42 < below < 0.58  # the median halves the data
    assert heard[-1] == ("quantile", 1000, 1000)


def test_the_five_stages_of_the_operator():
    stages = operator(num_atoms=7, reward=0.6, gamma=0.7)
    for stage in ("eta", "target", "quantile", "categorical", "mixture"):
        np.testing.assert_allclose(stages[f"{stage}_probs"].sum(), 1.0, atol=1e-9)
    np.testing.assert_allclose(
        stages["target_locations"], 0.6 + 0.7 * stages["eta_locations"], atol=1e-6
    )
    np.testing.assert_allclose(stages["quantile_probs"], 1 / 7)
    np.testing.assert_allclose(np.diff(stages["categorical_locations"]), 4 / 6)
    assert len(stages["mixture_probs"]) == 14


def test_value_iteration_settles_within_its_bound_and_the_oscillator_does_not():
    results = convergence(IterationConfig(num_atoms=61))
    assert results["steps"][-1] < 1e-9
    assert 0 < results["to_truth"][-1] < results["residual_bound"]
    np.testing.assert_allclose(results["oscillation"][-1], 8 / 15, atol=1e-9)


def test_the_bonus_sees_what_the_one_step_error_misses():
    maps = propagation(IterationConfig(size=6, num_atoms=31))
    visited = maps["visited"] == 1.0
    assert maps["local_error"][visited].max() < 1e-8
    assert maps["true_error"][0, 0] > 0.05
    assert maps["bonus"][0, 0] > maps["true_error"][0, 0]
    # Everywhere, up to what the quantile projection can expand.
    reached = ~np.isnan(maps["bonus"])
    assert (maps["bonus"][reached] >= maps["true_error"][reached] - 0.02).all()
    assert np.isnan(maps["bonus"][0, 1:]).all()


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: ToyConfig(steps=0), "got 0"),
        (lambda: IterationConfig(size=1), "got 1"),
        (lambda: IterationConfig(iterations=0), "got 0"),
        (lambda: operator(num_atoms=1), "got 1"),
    ],
)
def test_impossible_settings_are_refused(make, shown):
    with pytest.raises(InputError, match=shown):
        make()
