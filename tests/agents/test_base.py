from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.agents.base import Spec, epsilon_greedy, epsilon_schedule, linear_schedule
from winkel.types import Clock, Dense

KEYS = jax.random.split(jax.random.key(5), 20_000)
decayed = jax.jit(linear_schedule)
SPEC = Spec(Dense((1,)), num_actions=4)


@jax.jit
def many(keys, scores, epsilon):
    return jax.vmap(lambda key: epsilon_greedy(key, scores, epsilon, SPEC))(keys)


def test_without_epsilon_the_choice_is_greedy():
    actions = many(KEYS, jnp.array([0.0, 2.0, 1.0, 2.0]), 0.0)
    np.testing.assert_array_equal(actions, 1)


@pytest.mark.parametrize("epsilon", [1.0, 0.3])
def test_epsilon_is_the_share_of_uniform_actions(epsilon):
    """The greedy action comes up with 1 − ε + ε/4, each other one with ε/4."""
    actions = many(KEYS, jnp.array([0.0, 2.0, 1.0, -5.0]), epsilon)
    expected = np.full(4, epsilon / 4) + (1 - epsilon) * np.array([0, 1, 0, 0])
    found = np.bincount(actions, minlength=4) / len(KEYS)
    errors = np.abs(found - expected) / np.sqrt(expected * (1 - expected) / len(KEYS))
    assert len(found) == 4
    assert errors.max() < 4.0  # standard errors


def test_whether_to_explore_does_not_tell_which_action():
    """One random number for both would explore with low actions only."""
    half = np.asarray(many(KEYS, jnp.array([0.0, 0.0, 0.0, 9.0]), 0.5))
    explored = half[half < 3]
    np.testing.assert_allclose(np.bincount(explored) / len(explored), 1 / 3, atol=0.03)


def test_keys_decide():
    value = jnp.zeros(4)
    first, again = (many(KEYS[:50], value, 1.0) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, many(KEYS[50:100], value, 1.0))


@pytest.mark.parametrize(
    ("at", "expected"), [(0.0, 5.0), (1 / 12, 3.75), (1 / 6, 2.5), (1 / 3, 0.0), (0.9, 0.0)]
)
def test_a_linear_schedule_over_a_third_of_the_horizon(at, expected):
    np.testing.assert_allclose(decayed(5.0, 0.0, 1 / 3, at), expected, atol=1e-6)
    np.testing.assert_allclose(linear_schedule(5.0, 0.0, 1 / 3, at), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("at", "expected"),
    [(-3.0, 1.0), (0.0, 1.0), (25.0, 0.775), (50.0, 0.55), (100.0, 0.1), (101.0, 0.1), (1e6, 0.1)],
)
def test_a_linear_schedule_in_other_units_and_to_other_ends(at, expected):
    """From 1 to 0.1 over a hundred of anything; after 25 of them, 1 − 0.9/4."""
    np.testing.assert_allclose(decayed(1.0, 0.1, 100.0, at), expected, rtol=1e-6)


def test_a_linear_schedule_may_rise_or_stay():
    np.testing.assert_allclose(decayed(0.4, 1.0, 2.0, 0.5), 0.55, rtol=1e-6)
    np.testing.assert_allclose(decayed(5.0, 5.0, 1 / 3, 0.2), 5.0)


def test_lanes_decay_on_their_own():
    starts, at = jnp.array([5.0, 1.0, 0.2]), jnp.array([0.0, 0.1, 0.5])
    found = jax.jit(jax.vmap(linear_schedule, in_axes=(0, None, None, 0)))(starts, 0.0, 0.2, at)
    np.testing.assert_allclose(found, [5.0, 0.5, 0.0], atol=1e-6)


class Hyper(NamedTuple):
    epsilon: float = 1.0
    epsilon_final: float = 0.2
    epsilon_steps: float = 0.0


class Decaying(NamedTuple):
    epsilon: float = 1.0
    epsilon_final: float = 0.2
    epsilon_decay: float = 0.5
    epsilon_steps: float = 0.0


@pytest.mark.parametrize(
    ("hyper", "at", "expected"),
    [
        *(
            (Hyper(epsilon_steps=100.0), at, e)
            for at, e in [(0, 1.0), (50, 0.6), (100, 0.2), (999, 0.2)]
        ),
        (Hyper(), 0, 1.0),
        (Hyper(), 999, 1.0),
        (Decaying(), 0, 0.8),  # a quarter of its decay, after an eighth of the horizon
        (Decaying(epsilon_steps=100.0), 50, 0.6),
    ],
)
def test_epsilon_decays_over_steps_over_a_share_of_the_horizon_or_not_at_all(hyper, at, expected):
    zero = jnp.zeros((), int)
    progress = 0.125 if isinstance(hyper, Decaying) else 0.5
    clock = Clock(env_steps=jnp.asarray(at), episodes=zero, updates=zero, progress=progress)
    assert float(epsilon_schedule(clock, hyper)) == pytest.approx(expected)


def test_unavailable_actions_score_lowest():
    scores = jnp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    spec = Spec(Dense((1,)), num_actions=3)
    assert spec.mask_unavailable(scores) is scores
    expected = [[1.0, 2.0, -np.inf], [4.0, 5.0, -np.inf]]
    np.testing.assert_array_equal(spec._replace(available=2).mask_unavailable(scores), expected)
