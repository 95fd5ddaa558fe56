"""Adam and clipping, against optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from winkel.agents.learning import adam, clip_by_global_norm, init_optimizer
from winkel.networks.batched import RowGradient

RATE, EPSILON = 0.01, 1e-3


def expected_after(params, gradients):
    """Some steps of optax's Adam, and its moments."""
    optimiser = optax.adam(RATE, eps=EPSILON)
    state = optimiser.init(params)
    for gradient in gradients:
        updates, state = optimiser.update(gradient, state)
        params = optax.apply_updates(params, updates)
    return params, state[0]


def step(params, gradients, state):
    updates, state = adam(RATE, EPSILON).update(gradients, state)
    return optax.apply_updates(params, updates), state


def assert_same(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_adam_is_that_of_optax():
    keys = jax.random.split(jax.random.key(0), 4)
    params = {"a": jnp.ones((2, 3)), "b": jnp.zeros(4)}
    gradients = [jax.tree.map(lambda x, k=k: jax.random.normal(k, x.shape), params) for k in keys]
    found, state = params, init_optimizer(params)
    for gradient in gradients:
        found, state = jax.jit(step)(found, gradient, state)
    assert_same((found, state), expected_after(params, gradients))


@pytest.mark.parametrize("platform", ["cpu", "default"])
@pytest.mark.parametrize("lanes", [None, 2])
def test_adam_by_rows_is_adam_on_the_table(lanes, platform, monkeypatch):
    """Rows that are named twice, rows that are not named and go on by their moments, and none."""
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *of, **ways: ways[platform](*of))
    table = jax.random.normal(jax.random.key(1), (2, 5, 3))
    batches = [
        RowGradient(jnp.array(rows), jax.random.normal(jax.random.key(2 + i), (2, 4, 3)), 5)
        for i, rows in enumerate([[0, 4, 0, 5], [1, 1, 1, 4], [5, 5, 5, 5]])
    ]
    dense = [batch.dense() for batch in batches]
    one = step if lanes is None else jax.vmap(step)

    def of_lanes(tree):
        return tree if lanes is None else jax.tree.map(lambda x: jnp.stack([x] * lanes), tree)

    found, state = of_lanes(table), of_lanes(init_optimizer(table))
    for batch in batches:
        found, state = jax.jit(one)(found, of_lanes(batch), state)
    assert_same((found, state), of_lanes(expected_after(table, dense)))


@pytest.mark.parametrize("max_norm", [0.0, 0.5, 1e3])
@pytest.mark.parametrize("rows", [False, True])
def test_clipping_is_that_of_optax(rows, max_norm):
    """All gradients are scaled together; rows that are named twice count as one."""
    keys = jax.random.split(jax.random.key(0), 2)
    table = RowGradient(jnp.array([0, 4, 0, 5]), jax.random.normal(keys[0], (2, 4, 3)), 5)
    other = jax.random.normal(keys[1], (2, 3))
    dense = {"a": other, "b": table.dense()}
    found = clip_by_global_norm({"a": other, "b": table} if rows else dense, max_norm)
    if rows and isinstance(found["b"], RowGradient):
        found = {"a": found["a"], "b": found["b"].dense()}
    expected, _ = optax.clip_by_global_norm(max_norm or jnp.inf).update(dense, optax.EmptyState())
    assert_same(found, expected)
