"""The kernels of networks against plain products and optax, in Pallas' interpreter."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from winkel.kernels import networks
from winkel.kernels.networks import adam_step, step_scales

LANES, MEMBERS, BATCH, UNITS, OUTPUTS = 2, 2, 16, 40, 24
EPSILON, COUNT, RATE = 1e-5, 7, 0.01


@partial(jax.jit, static_argnums=1)
def random_weights(seed, inputs):
    shapes = [(inputs, UNITS), (UNITS,), (UNITS, OUTPUTS), (OUTPUTS,)]
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return networks.Weights(
        *(
            jax.random.normal(key, (LANES, MEMBERS, *shape))
            for key, shape in zip(keys, shapes, strict=True)
        )
    )


def observations(inputs, one_hot):
    """Every index there is, and the one past them, which stands for the all-zero observation."""
    key = jax.random.key(3)
    if one_hot:
        return jax.random.randint(key, (LANES, BATCH), 0, inputs).at[:, 0].set(inputs)
    return jax.random.normal(key, (LANES, BATCH, inputs))


def plain_hidden(weights, obs):
    dense = jax.nn.one_hot(obs, weights.first.shape[1]) if obs.ndim == 1 else obs
    product = jnp.einsum("bi,mih->mbh", dense, weights.first, precision="highest")
    return jax.nn.relu(product + weights.first_bias[:, None])


def plain_outputs(weights, obs):
    product = jnp.einsum(
        "mbh,mho->mbo", plain_hidden(weights, obs), weights.last, precision="highest"
    )
    return product + weights.last_bias[:, None]


KINDS = pytest.mark.parametrize(("inputs", "one_hot"), [(5, False), (70, True)])


@KINDS
def test_hidden_activations_and_what_is_active(inputs, one_hot):
    weights, obs = random_weights(0, inputs), observations(inputs, one_hot)
    work = jax.vmap(lambda w, o: networks.hidden(w, o, active=True))
    values, active = jax.jit(work)(weights, obs)
    expected = jax.jit(jax.vmap(plain_hidden))(weights, obs)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(active, jnp.swapaxes(values, 2, 3) > 0)
    assert 0 < np.mean(active) < 1


@KINDS
def test_products_of_a_batch_and_of_one_observation(inputs, one_hot):
    weights, obs = random_weights(1, inputs), observations(inputs, one_hot)
    expected = jax.jit(jax.vmap(plain_outputs))(weights, obs) - weights.last_bias[:, :, None]
    batch = jax.vmap(
        lambda w, o: networks.products(networks.hidden(w, o)[0], w)
    )(weights, obs)  # fmt: skip
    np.testing.assert_allclose(batch, expected, rtol=1e-4, atol=1e-4)
    one = jax.vmap(lambda w, o: networks.row_products(w, o[0]))(weights, obs)
    np.testing.assert_allclose(one, expected[:, :, 0], rtol=1e-4, atol=1e-4)


@KINDS
def test_a_step_of_adam_as_optax_makes_it(inputs, one_hot):
    """Gradients by JAX, Adam by optax; the target is copied in the lane where it is due."""
    weights, target = random_weights(2, inputs), random_weights(3, inputs)
    mean = jax.tree.map(lambda x: 0.1 * x, random_weights(4, inputs))
    square = jax.tree.map(jnp.square, random_weights(5, inputs))
    obs = observations(inputs, one_hot)
    gradient = jax.random.normal(jax.random.key(6), (LANES, MEMBERS, BATCH, OUTPUTS))
    due = jnp.array([True, False])

    def ours(weights, mean, square, target, obs, gradient, due):
        return adam_step(
            (weights, mean, square, target),
            obs,
            networks.hidden(weights, obs, active=True),
            gradient,
            step_scales(jnp.asarray(RATE), jnp.asarray(COUNT), due),
            EPSILON,
        )

    def theirs(weights, mean, square, target, obs, gradient, due):
        in_weights = jax.grad(lambda w: jnp.sum(plain_outputs(w, obs) * gradient))(weights)
        state = optax.ScaleByAdamState(jnp.asarray(COUNT), mean, square)
        directions, state = optax.scale_by_adam(eps=EPSILON).update(in_weights, state)
        after = jax.tree.map(lambda p, d: p - RATE * d, weights, directions)
        copied = jax.tree.map(lambda new, old: jnp.where(due, new, old), after, target)
        return after, state.mu, state.nu, copied

    given = (weights, mean, square, target, obs, gradient, due)
    names = ("weights", "mean", "square", "target")
    results = [jax.jit(jax.vmap(step))(*given) for step in (ours, theirs)]
    for name, made, expected in zip(names, *results, strict=True):
        for part, x, y in zip(networks.Weights._fields, made, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5, err_msg=f"{name} {part}")
