"""DLTV against numbers worked out on paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.toys import OBS, SPEC, act, batch_of, constant, first_gradient, learner_of, update
from winkel.agents.dltv import DLTV, Config, Hyper, dltv_schedule, left_truncated_variance


@pytest.mark.parametrize(
    ("theta", "expected"),
    [
        # K = 5: the median is the third, 2; (0² + 1² + 4²) / 10.
        ([-9.0, 0.0, 2.0, 3.0, 6.0], 1.7),
        # K = 4: the median is the second, 1; (0² + 2² + 6²) / 8.
        ([-9.0, 1.0, 3.0, 7.0], 5.0),
        # Crossed quantiles are not sorted: the third is 6; (0² + 3² + 4²) / 10.
        ([-9.0, 0.0, 6.0, 3.0, 2.0], 2.5),
        # K = 2: the first counts as the median; (0² + 3²) / 4.
        ([1.0, 4.0], 2.25),
        # What lies below the median does not matter.
        ([-900.0, 1.0, 1.0], 0.0),
    ],
)
def test_left_truncated_variance(theta, expected):
    np.testing.assert_allclose(left_truncated_variance(jnp.array(theta)), expected, rtol=1e-6)


THETA = [[1.0, 2.0, 3.0, 4.0], [-9.0, 2.0, 4.0, 8.0]]
"""Means 2.5 and 1.25. σ²_+ = (1 + 4)/8 = 0.625 and (4 + 36)/8 = 5; roots 0.7906 and 2.2361."""


def test_estimates():
    agent = DLTV(Config(num_atoms=4, prior=False), SPEC)
    found = jax.jit(agent.estimates)(learner_of(constant(THETA)), OBS, Hyper())
    np.testing.assert_allclose(found.value, [2.5, 1.25])
    np.testing.assert_allclose(found.bonus, np.sqrt([0.625, 5.0]), rtol=1e-6)
    np.testing.assert_allclose(found.members.locations, [THETA])
    assert np.isnan(found.disagreement).all()


def test_the_bonus_as_a_variance_is_that_of_sorted_quantiles():
    """K = 5, sorted [−9, 0, 2, 3, 6], median 2: 2/5 (0² + 1² + 4²) = 6.8, in any order."""
    theta = [[-9.0, 0.0, 2.0, 3.0, 6.0], [6.0, 2.0, 0.0, -9.0, 3.0]]
    agent = DLTV(Config(num_atoms=5, prior=False, bonus_form="variance"), SPEC)
    found = jax.jit(agent.estimates)(learner_of(constant(theta)), OBS, Hyper())
    np.testing.assert_allclose(found.bonus, [6.8, 6.8], rtol=1e-6)


def test_the_bonus_decays_until_the_mean_wins():
    """Action 1 is ahead by 1.4455 β − 1.25: as long as β > 0.865.

    β₀ = 5. At the start αt counts as e: β = 5 e^(−½) = 3.0327. After a tenth of the horizon
    αt = 100: 5 sqrt(4.6052 / 100) = 1.0730. At the end αt = 1000: 5 sqrt(6.9078 / 1000) = 0.4156.
    """
    agent = DLTV(Config(num_atoms=4, hidden=(), prior=False), SPEC)
    learner = learner_of(constant(THETA))
    for progress, beta, action in [(0.0, 3.0327, 1), (0.1, 1.0730, 1), (1.0, 0.4156, 0)]:
        assert act(agent, learner, Hyper(), progress) == action
        _, result = update(agent, learner, batch_of(), Hyper(), progress)
        np.testing.assert_allclose(result.metrics["beta"], beta, rtol=1e-4)


def test_target_and_loss_with_the_prior_in_both():
    """K = 2, γ = 0.5, r = 0.5, prior scale 10, action 0.

    Online with prior: [0, 1] + 10 [0.1, 0.1] = [1, 2] and [0, 0] + 10 [0.2, 0.2] = [2, 2]; the
    highest mean is action 1's, although the network alone would say 0. The target network gives it
    [−1, 0] + [2, 2] = [1, 2], so the atoms are 0.5 + 0.5 · 1 = 1 and 0.5 + 0.5 · 2 = 1.5.
    Levels ¼ and ¾. θ = 1: ¼ (0 + 0.5) / 2 = 0.0625. θ = 2: u = −1 and −0.5, ¼ (1 + 0.5) / 2 =
    0.1875. The sum is 0.25. Derivatives F(θ) − τ: ½ − ¼ and 1 − ¾, ¼ each.
    """
    agent = DLTV(Config(num_atoms=2, hidden=()), SPEC)
    learner = learner_of(
        constant([[0.0, 1.0], [0.0, 0.0]]),
        target=constant([[9.0, 9.0], [-1.0, 0.0]]),
        prior=constant([[0.1, 0.1], [0.2, 0.2]]),
    )
    hyper = Hyper(gamma=0.5, prior_scale=10.0)
    after, result = update(agent, learner, batch_of(), hyper)
    np.testing.assert_allclose(result.metrics["loss"], 0.25, rtol=1e-5)
    gradient = first_gradient(after.opt_state.mu)
    np.testing.assert_allclose(gradient, [0.25, 0.25, 0.0, 0.0], rtol=1e-5)
    assert "clipped" not in result.metrics


@pytest.mark.parametrize(
    ("scaled_time", "expected"),
    [
        (0.0, np.exp(-0.5)),
        (0.5, np.exp(-0.5)),
        (1.0, np.exp(-0.5)),  # log 1 = 0 would mean no exploration at all
        (np.e, np.exp(-0.5)),  # sqrt(1/e)
        (np.e**2, np.sqrt(2) / np.e),  # sqrt(2/e²)
        (100.0, 0.214597),  # sqrt(4.605170 / 100)
        (1_000.0, 0.083113),  # sqrt(6.907755 / 1000)
    ],
)
def test_the_schedule_of_dltv_by_hand(scaled_time, expected):
    np.testing.assert_allclose(dltv_schedule(1.0, float(scaled_time)), expected, rtol=1e-5)
    np.testing.assert_allclose(dltv_schedule(8.0, float(scaled_time)), 8.0 * expected, rtol=1e-5)


def test_the_schedule_of_dltv_never_increases():
    times = jnp.asarray(np.concatenate([np.linspace(0.0, 6.0, 200), np.geomspace(6.0, 1e6, 200)]))
    values = np.asarray(jax.jit(jax.vmap(dltv_schedule, in_axes=(None, 0)))(3.0, times))
    assert np.isfinite(values).all()
    assert (np.diff(values) <= 1e-7).all()
    assert values.max() <= 3.0 * np.exp(-0.5) + 1e-6
    assert 0.0 < values[-1] < 0.02
