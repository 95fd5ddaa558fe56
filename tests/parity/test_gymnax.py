"""Gymnax's deep sea and catch behave as winkel's own, step by step, on the same actions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.envs.functional import make_jax_task
from winkel.envs.registry import make

pytest.importorskip("gymnax", reason="gymnax is not installed")
SIZE = 5


@pytest.fixture(autouse=True)
def _ranks_as_gymnax_wants():
    with jax.numpy_rank_promotion("allow"):
        yield


def courses(env, begin, actions, params=()):
    """Rewards, ends and last observations of several courses of actions, each from `begin`."""

    @jax.jit
    @jax.vmap
    def course(begin, actions):
        def step(state, action):
            key = jax.random.key(0)
            state, result = env.transition(state, action, env.draw(key, params), params)
            return state, (result.reward, result.discount, result.boundary)

        state, results = jax.lax.scan(step, begin, actions)
        return *results, env.observe(state, params)

    return jax.device_get(course(begin, jnp.asarray(actions)))


def repeat(tree, count):
    return jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * count), tree)


def test_deep_sea():
    """All courses of a small one, with winkel's mapping of actions."""
    actions = np.array(list(itertools.product((0, 1), repeat=SIZE)))
    own = make(f"deep_sea:size={SIZE}")
    theirs = make_jax_task(f"gymnax:DeepSea-bsuite:size={SIZE}").env
    zero = jnp.zeros((), jnp.int32)
    ours = courses(own.env, repeat(own.env.start(None, zero, own.params), 32), actions, own.params)
    state, obs = theirs.start(jax.random.key(0), zero, ())
    mapped = state.replace(action_mapping=jnp.asarray(own.params.right))
    found = courses(theirs, repeat((mapped, obs), 32), actions)
    for mine, other in zip(ours[:3], found[:3], strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-7)
    assert ours[0].max() > 0.9
    assert not found[3].any()


def test_catch():
    """The ball in every column, under random actions."""
    actions = np.random.default_rng(0).integers(3, size=(5, 9))
    own, theirs = make("catch/0"), make_jax_task("gymnax:Catch-bsuite").env
    zero, columns = jnp.zeros((), jnp.int32), jnp.arange(5, dtype=jnp.int32)
    begin = repeat(own.env.start(zero, zero, own.params), 5)._replace(ball_x=columns)
    ours = courses(own.env, begin, actions, own.params)
    state, obs = repeat(theirs.start(jax.random.key(0), zero, ()), 5)
    found = courses(theirs, (state.replace(ball_x=columns), obs), actions)
    for mine, same in zip(ours, found, strict=True):
        np.testing.assert_array_equal(mine, same)
    assert ours[2][:, -1].all()
