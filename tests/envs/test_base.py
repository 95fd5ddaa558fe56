"""What holds for every environment, whatever it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel import envs
from winkel.envs.base import check_action
from winkel.errors import InputError


def roll(task, num_steps, seed=0):
    @jax.jit
    def run(env, params, key):
        key_reset, key_steps = jax.random.split(key)
        state, first = env.reset(key_reset, params)

        def step(carry, key):
            state, obs = carry
            key_action, key_step = jax.random.split(key)
            action = jax.random.randint(key_action, (), 0, env.num_actions)
            state, result = env.step(key_step, state, action, params)
            return (state, result.obs), (obs, result, state.episode)

        return jax.lax.scan(step, (state, first), jax.random.split(key_steps, num_steps))[1]

    return jax.tree.map(np.asarray, run(task.env, task.params, jax.random.key(seed)))


@pytest.mark.parametrize("task_id", ["catch/0", "deep_sea/0", "umbrella_length/3", "cartpole/0"])
def test_a_reset_is_not_a_transition(task_id):
    """At a boundary the transition ends in the old episode, and the agent acts in the new one."""
    task = envs.make(task_id)
    obs, result, episode = roll(task, 300)
    ends = np.flatnonzero(result.boundary)
    assert len(ends) >= 3
    np.testing.assert_array_equal(result.discount, 1.0 - result.boundary)
    np.testing.assert_array_equal(obs[1:], result.obs[:-1])
    inside = ~result.boundary
    np.testing.assert_array_equal(result.obs[inside], result.next_obs[inside])
    assert (result.obs[ends] != result.next_obs[ends]).any()
    np.testing.assert_array_equal(episode, np.cumsum(result.boundary))


def test_keys_decide_everything_random():
    task = envs.make("catch_noise/19")
    first, again, other = (roll(task, 100, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first[1].reward, again[1].reward)
    assert not np.array_equal(first[1].reward, other[1].reward)


@pytest.mark.parametrize("action", [-1, 3, 1.0, np.array([0, 5])])
def test_actions_out_of_range_are_refused_with_their_value(action):
    with pytest.raises(InputError, match=r"0 … 2"):
        check_action(action, 3)
    check_action(np.int32(2), 3)


def test_stepping_by_hand_checks_the_action():
    task = envs.make("catch/0")
    state, _ = task.env.reset(jax.random.key(0), task.params)
    with pytest.raises(InputError, match="got 3"):
        task.env.step(jax.random.key(1), state, 3, task.params)
    state, result = task.env.step(jax.random.key(1), state, 2, task.params)
    assert int(state.inner.paddle_x) == 3
    assert not result.boundary


def test_settings_of_an_experiment_share_one_trace():
    traces = []

    @jax.jit
    def step(env, params, key):
        traces.append(None)
        state, _ = env.reset(key, params)
        return env.step(key, state, jnp.zeros((), jnp.int32), params)[1].reward

    for experiment in ("catch", "catch_noise", "catch_scale"):
        for task_id in envs.EXPERIMENTS[experiment].ids:
            task = envs.make(task_id)
            step(task.env, task.params, jax.random.key(0))
    assert len(traces) == 1


def test_a_batch_of_any_experiment_is_one_trace():
    traces = []

    @jax.jit
    def step(env, params, keys):
        def one(params, key):
            traces.append(None)
            state, _ = env.reset(key, params)
            return env.step(key, state, jnp.zeros((), jnp.int32), params)[1].reward

        return jax.vmap(one)(params, keys)

    batch = envs.make_batch("umbrella_distract")
    for seed in range(3):
        keys = jax.random.split(jax.random.key(seed), len(batch.ids))
        assert step(batch.env, batch.params, keys).shape == (23,)
    assert len(traces) == 1


def test_a_lane_does_not_depend_on_its_neighbours():
    """The same setting alone and in a batch of other sizes: the same rewards."""
    alone, batch = envs.make_batch(["deep_sea/3"]), envs.make_batch("deep_sea")
    keys = jax.random.split(jax.random.key(0), 200)

    @jax.jit
    def run(env, params):
        def one(params):
            state, _ = env.reset(keys[0], params)

            def step(state, key):
                action = jax.random.randint(key, (), 0, 2)
                state, result = env.step(key, state, action, params)
                return state, (result.reward, result.boundary)

            return jax.lax.scan(step, state, keys)[1]

        return jax.vmap(one)(params)

    (reward, boundary), (rewards, boundaries) = (run(b.env, b.params) for b in (alone, batch))
    np.testing.assert_array_equal(reward[0], rewards[3])
    np.testing.assert_array_equal(boundary[0], boundaries[3])
