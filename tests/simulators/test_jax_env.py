"""A pure-JAX environment behind the pool takes the course that it takes on the accelerator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.envs.registry import make
from winkel.simulators.names import parse
from winkel.simulators.pool import Pool

STEPS = 40


def on_device(task, seed, actions):
    key = jax.random.key(seed)
    reset, run = (jax.random.fold_in(key, use) for use in (2, 3))

    def step(state, at):
        t, action = at
        key = jax.random.fold_in(jax.random.fold_in(run, t), 1)
        return task.env.step(key, state, action, task.params)

    @jax.jit
    def course():
        state, obs = task.env.reset(reset, task.params)
        return obs, jax.lax.scan(step, state, (jnp.arange(STEPS), jnp.asarray(actions)))[1]

    return course()


# Ones without arithmetic, which every compiled program rounds in its own way.
@pytest.mark.parametrize(("env", "num_workers"), [("catch/0", 1), ("memory_len/2", 0)])
def test_the_course_is_that_of_the_device_loop(env, num_workers, rng):
    task, seeds = make(env), [4, 9]
    actions = rng.integers(task.env.num_actions, size=(STEPS, 2))
    _, maker = parse(f"simulators.jax_env:make:env={env}")
    with Pool(maker, seeds, num_workers) as pool:
        first = pool.reset()
        moves = [pool.step(row) for row in actions]
    for i, seed in enumerate(seeds):
        obs, steps = on_device(task, seed, actions[:, i])
        np.testing.assert_array_equal(first[i], obs)
        np.testing.assert_array_equal([m.reward[i] for m in moves], steps.reward)
        np.testing.assert_array_equal([m.discount[i] for m in moves], steps.discount)
        np.testing.assert_array_equal([m.boundary[i] for m in moves], steps.boundary)
        np.testing.assert_array_equal([m.obs[i] for m in moves], steps.obs)
        np.testing.assert_array_equal([m.next_obs[i] for m in moves], steps.next_obs)
        for name, fact in steps.info.items():
            np.testing.assert_array_equal([m.facts[name][i] for m in moves], fact)
    assert steps.boundary.any()
