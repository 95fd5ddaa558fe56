"""What agents are made of, against optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from winkel.agents import base
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


def adam(params, gradients, state):
    return base.adam(params, gradients, state, RATE, EPSILON)


def assert_same(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_adam_is_that_of_optax():
    keys = jax.random.split(jax.random.key(0), 4)
    params = {"a": jnp.ones((2, 3)), "b": jnp.zeros(4)}
    gradients = [jax.tree.map(lambda x, k=k: jax.random.normal(k, x.shape), params) for k in keys]
    found, state = params, base.init_adam(params)
    for gradient in gradients:
        found, state = jax.jit(adam)(found, gradient, state)
    assert_same((found, state), expected_after(params, gradients))


@pytest.mark.parametrize("platform", ["cpu", "default"])
@pytest.mark.parametrize("lanes", [None, 2])
def test_adam_by_rows_is_adam_on_the_table(lanes, platform, monkeypatch):
    """Rows that are named twice, rows that are not named and go on by their moments, and none."""
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *of, **ways: ways[platform](*of))
    table = jax.random.normal(jax.random.key(1), (2, 5, 3))
    batches = [
        RowGradient(jnp.array(rows), jax.random.normal(jax.random.key(2 + i), (2, 4, 3)))
        for i, rows in enumerate([[0, 4, 0, 5], [1, 1, 1, 4], [5, 5, 5, 5]])
    ]
    dense = [batch.added_to(jnp.zeros_like(table)) for batch in batches]
    step = adam if lanes is None else jax.vmap(adam)

    def of_lanes(tree):
        return tree if lanes is None else jax.tree.map(lambda x: jnp.stack([x] * lanes), tree)

    found, state = of_lanes(table), of_lanes(base.init_adam(table))
    for batch in batches:
        found, state = jax.jit(step)(found, of_lanes(batch), state)
    assert_same((found, state), of_lanes(expected_after(table, dense)))
