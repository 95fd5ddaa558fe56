"""`winkel.make_bonus`: PE-DQN's bonus in a loop of one's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import winkel
from helpers import unchecked
from winkel.errors import InputError
from winkel.types import OneHot

SMALL = {"z_min": 0.0, "z_max": 1.0, "hidden": (16,), "num_atoms": 5, "batch_size": 8}


def transitions(rng, size=8):
    obs, next_obs = rng.normal(size=(2, size, 3))
    return obs, rng.integers(2, size=size), rng.random(size), np.ones(size), next_obs


def test_the_bonus_of_one_action_is_that_of_all():
    bonus = winkel.make_bonus((3,), 2, **SMALL)
    state, obs = bonus.init(jax.random.key(0)), np.ones(3)
    each = jnp.stack([bonus.bonus(state, obs, action) for action in range(2)])
    np.testing.assert_array_equal(each, bonus.bonus(state, obs))
    assert (each > 0).all()


def test_updates_are_those_of_the_agent_with_its_target_period():
    bonus = winkel.make_bonus((3,), 2, **SMALL, target_period=2)
    state, update = bonus.init(jax.random.key(0)), jax.jit(bonus.update)
    initial, equal = state.learner.params, []
    for number in range(4):
        batch = transitions(np.random.default_rng(number))
        state, metrics = update(state, batch, jax.random.key(number))
        same = jax.tree.map(jnp.array_equal, state.learner.params, state.learner.target_params)
        equal.append(all(jax.tree.leaves(same)))
        assert set(metrics) == {"loss", "beta", "clipped"}
    assert equal == [False, True, False, True]
    assert not all(jax.tree.leaves(jax.tree.map(jnp.array_equal, state.learner.params, initial)))
    assert metrics["beta"] == bonus.hyper.beta  # it does not decay: the loop has its own


def test_the_bonus_of_what_was_seen_decreases_and_of_the_rest_stays():
    bonus = winkel.make_bonus(OneHot((4,)), 2, **SMALL, learning_rate=1e-2)
    state, update = bonus.init(jax.random.key(0)), jax.jit(bonus.update)
    before = jax.vmap(lambda obs: bonus.bonus(state, obs))(jnp.arange(4))
    zero = np.zeros(8)
    for number in range(300):
        batch = (zero.astype(int), zero.astype(int), zero, zero, zero.astype(int) + 4)
        state, _ = update(state, batch, jax.random.key(number))
    after = jax.vmap(lambda obs: bonus.bonus(state, obs))(jnp.arange(4))
    assert after[0, 0] < 0.1 * before[0, 0]
    assert (after[1:] > 0.5 * before[1:]).all()


@pytest.mark.parametrize(
    ("observation", "num_actions", "fields", "message"),
    [
        ((3,), 2, {"z_min": None}, "need a finite z_min, got None"),
        ((3,), 0, {}, "need num_actions >= 1"),
        (3, 2, {}, r"need a shape such as \(4,\).*got 3"),
        ((), 2, {}, r"need a shape such as \(4,\)"),
        ((3.5,), 2, {}, "need each side of observation >= 1, a whole number, got 3.5"),
        ((3,), 2, {"capacity": 5}, "need no capacity, which your own loop decides, got 5"),
        ((3,), 2, {"widht": 5}, "pe_dqn has no field 'widht'"),
    ],
)
def test_bad_input_to_make_bonus_is_one_line(observation, num_actions, fields, message):
    with unchecked(), pytest.raises(InputError, match=message) as raised:
        winkel.make_bonus(observation, num_actions, **SMALL | fields)
    assert "\n" not in str(raised.value)


def test_a_bonus_without_support_asks_for_one():
    with pytest.raises(InputError, match="need z_min and z_max, the range of returns in your env"):
        winkel.make_bonus((3,), 2)


def test_bad_observations_batches_and_keys_are_one_line():
    bonus = winkel.make_bonus((3,), 2, **SMALL)
    with unchecked():
        with pytest.raises(InputError, match="need a key such as"):
            bonus.init(0.5)
        state = bonus.init(jax.random.key(0))
        with pytest.raises(InputError, match=r"need observations of shape \(3,\), got \(8, 3\)"):
            bonus.bonus(state, np.zeros((8, 3)))
        few = transitions(np.random.default_rng(0), size=5)
        with pytest.raises(InputError, match=r"need action of shape \(8,\), got \(5,\)"):
            bonus.update(state, few, jax.random.key(0))
        with pytest.raises(InputError, match="need obs, action, reward, discount and next_obs"):
            bonus.update(state, few[:4], jax.random.key(0))
