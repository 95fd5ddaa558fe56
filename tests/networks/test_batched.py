"""Ensembles on batches, against the same networks one observation at a time and JAX's gradients."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.networks import MLP, batched
from winkel.networks.batched import RowGradient

COUNT = 3
# Inputs, one-hot or not, triangle or not: tables with fewer and with more rows than the batch.
CASES = {
    "dense": (6, False, False),
    "small table": (6, True, False),
    "large table": (40, True, False),
    "small triangle": (9, True, True),
    "large triangle": (64, True, True),
}


@cache
def networks_of(case, hidden, actions=2):
    inputs, one_hot, triangle = CASES[case]
    init = partial(
        MLP.init,
        inputs=inputs,
        one_hot=one_hot,
        hidden=hidden,
        outputs=(actions, 1),
        triangle=triangle,
    )
    ensemble = jax.jit(jax.vmap(init))(jax.random.split(jax.random.key(0), COUNT))
    return jax.tree.map(lambda x: x + 0.1, ensemble)  # biases that are not 0


def batch_of(case, size=13):
    """Observations with repetitions, among them the one that shows nothing."""
    inputs, one_hot, triangle = CASES[case]
    if not one_hot:
        return jax.random.normal(jax.random.key(1), (size, 2, inputs // 2))
    indices = jax.random.randint(jax.random.key(1), (size,), 0, inputs + 1)
    if triangle:
        side = int(np.sqrt(inputs))
        indices = jnp.where(indices % side <= indices // side, indices, 0)
    return indices.at[:3].set(jnp.array([inputs, 0, 0]))


@jax.jit
def one_by_one(ensemble, obs):
    return jnp.swapaxes(jax.vmap(ensemble)(obs)[..., 0], 0, 1)


def dense(found):
    """Gradients of tables as tables."""
    return jax.tree.map(
        lambda g: g.dense() if isinstance(g, RowGradient) else g,
        found,
        is_leaf=lambda g: isinstance(g, RowGradient),
    )


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_each_observation(case, hidden):
    ensemble, obs = networks_of(case, hidden), batch_of(case)
    found = jax.jit(lambda e, o: batched.forward(e, o)[0])(ensemble, obs)
    np.testing.assert_allclose(found, one_by_one(ensemble, obs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_jax(case, hidden):
    ensemble, obs = networks_of(case, hidden), batch_of(case)
    gradient = jax.random.normal(jax.random.key(2), (COUNT, len(obs), 2))

    @jax.jit
    def by_hand(ensemble):
        return batched.backward(ensemble, batched.forward(ensemble, obs)[1], obs, gradient)

    found = by_hand(ensemble)
    assert isinstance(found.layers[0].weight, RowGradient) == case.startswith("large")
    expected = jax.jit(jax.grad(lambda e: jnp.sum(gradient * one_by_one(e, obs))))(ensemble)
    for a, b in zip(jax.tree.leaves(dense(found)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_lanes_do_as_one_alone(case):
    ensemble, obs = networks_of(case, (5,)), batch_of(case)
    gradient = jnp.ones((COUNT, len(obs), 2))

    def both(obs):
        outputs, residuals = batched.forward(ensemble, obs)
        return outputs, batched.backward(ensemble, residuals, obs, gradient)

    together, one = jax.jit(jax.vmap(both))(jnp.stack([obs, obs[::-1]])), jax.jit(both)(obs)
    for found, alone in zip(*map(jax.tree.leaves, (together, one)), strict=True):
        np.testing.assert_allclose(found[0], alone, rtol=1e-5, atol=1e-5)


def test_outputs_without_the_padding_of_a_wide_last_layer():
    ensemble, obs = networks_of("dense", (5,), actions=67), batch_of("dense")
    outputs, residuals = batched.forward(ensemble, obs)
    np.testing.assert_allclose(outputs, one_by_one(ensemble, obs), rtol=1e-5, atol=1e-6)
    gradient = jnp.ones((COUNT, len(obs), 67))
    found = batched.backward(ensemble, residuals, obs, gradient).layers[-1].bias
    np.testing.assert_allclose(found[:, :67], len(obs), rtol=1e-6)
    np.testing.assert_array_equal(found[:, 67:], 0.0)


def test_merged_rows_are_the_same_gradient():
    """Rows 4, 1, 4 and none of a table of 5: row 4 gets the sum of two, in one of their places."""
    values = jnp.arange(1.0, 9.0).reshape(1, 4, 2)
    gradient = RowGradient(jnp.array([4, 1, 4, 5]), values, 5)
    expected = np.zeros((1, 5, 2))
    expected[0, 4], expected[0, 1] = [1.0 + 5.0, 2.0 + 6.0], [3.0, 4.0]
    merged = jax.jit(lambda g: g.merge())(gradient)
    for found in (gradient, merged):
        np.testing.assert_array_equal(found.dense(), expected)
    np.testing.assert_array_equal(merged.map(jnp.square).dense(), expected**2)
