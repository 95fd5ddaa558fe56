"""The kernels of distributions against exact functions, in Pallas' interpreter."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.agents.learning import mass_outside
from winkel.distributions import bootstrap, mean, mixture, wasserstein
from winkel.kernels.common import Layout, Outputs
from winkel.kernels.distributions import loss_and_gradient, q_values_and_disagreement
from winkel.projections import Categorical, Quantile

BATCH, ACTIONS = 6, 3
LOW, HIGH = jnp.float32(-3.0), jnp.float32(5.0)


def networks(outputs, prior=None):
    """Outputs [2, B, A, K] as networks make them: flat, filled up, with part of them as bias."""
    flat = outputs.reshape(2, outputs.shape[1], -1)
    bias = jnp.linspace(-1.0, 1.0, flat.shape[2])[None] * jnp.array([[1.0], [0.5]])
    filled = ((0, 0), (0, 0), (0, 5))
    if prior is not None:
        prior = jnp.pad(prior.reshape(1, prior.shape[1], -1), filled)
    return Outputs(jnp.pad(flat - bias[:, None], filled), jnp.pad(bias, ((0, 0), (0, 5))), prior)


@partial(jax.jit, static_argnums=1)
def random_outputs(seed, size):
    """Quantiles over the support and beyond, with ties and equal ones; logits."""
    key_theta, key_logits = jax.random.split(jax.random.key(seed))
    theta = 1.0 + 4.0 * jax.random.normal(key_theta, (BATCH, ACTIONS, size))
    theta = theta.at[0].set(jnp.round(theta[0])).at[1].set(0.25)
    logits = 3.0 * jax.random.normal(key_logits, (BATCH, ACTIONS, size))
    return jnp.stack([theta, logits])


def layout_of(size, prior_members=(), swapped=False):
    return Layout(int(swapped), int(not swapped), ACTIONS, size, prior_members)


@partial(jax.jit, static_argnames=("layout", "with_disagreement"))
def computed(outputs, layout, prior=None, prior_scale=0.0, **options):
    """Values and distances by the kernel."""
    scales = jnp.stack([LOW, HIGH, prior_scale])
    return q_values_and_disagreement(networks(outputs, prior), layout, scales, **options)


def projections(size):
    return Quantile(num_atoms=size), Categorical(num_atoms=size, z_min=LOW, z_max=HIGH)


@pytest.mark.parametrize(
    ("size", "swapped"),
    [(2, False), (7, False), (16, False), (7, True)],
)
def test_means_and_distances(size, swapped):
    outputs = random_outputs(size, size)
    quantiles, categories = projections(size)

    def expected(theta, logits):
        members = quantiles.decode(theta), categories.decode(logits)
        return mean(mixture(members)), wasserstein(*members)

    value, distance = jax.jit(jax.vmap(jax.vmap(expected)))(*outputs)
    given = outputs[::-1] if swapped else outputs
    made = computed(given, layout_of(size, swapped=swapped))
    np.testing.assert_allclose(made[0], value, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(made[1], distance, rtol=1e-4, atol=1e-4)


def test_means_alone():
    outputs = random_outputs(0, 7)
    full, alone = (computed(outputs, layout_of(7), with_disagreement=w) for w in (True, False))
    np.testing.assert_array_equal(alone[0], full[0])
    np.testing.assert_array_equal(alone[1], 0.0)


def test_priors_are_added_to_their_members():
    outputs = random_outputs(1, 7)
    prior = jax.random.normal(jax.random.key(2), (1, BATCH, ACTIONS, 7))
    found = computed(outputs, layout_of(7, prior_members=(0,)), prior, prior_scale=2.0)
    expected = computed(outputs.at[0].add(2.0 * prior[0]), layout_of(7))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@partial(jax.jit, static_argnums=4)
def learned(outputs, following, actions, steps, layout):
    """Losses and gradients by the kernel."""
    own, target = networks(outputs), networks(following)
    scales = jnp.stack([LOW, HIGH, jnp.float32(0.0)])
    return loss_and_gradient(own, target, actions, steps, layout, scales)


@pytest.mark.parametrize("size", [2, 7, 16])
def test_losses_and_gradients(size):
    """Discounts from 0 to 1, rewards that leave the support; targets on the grid itself."""
    outputs, following = random_outputs(3, size), random_outputs(4, size)[:, ::-1]
    outputs = outputs.at[0, 3, 0, 1].set(0.5)  # at the end of an episode, where the reward is
    actions = jnp.array([0, 1, 2, 0, 1, 2]), jnp.array([2, 2, 0, 1, 0, 1])
    reward = jnp.array([0.0, 1.5, -20.0, 0.5, 30.0, 0.0])
    discount = jnp.array([1.0, 0.99, 0.9, 0.0, 0.3, 0.01])
    shares = jnp.linspace(0.5, 2.0, BATCH)
    quantiles, categories = projections(size)

    def expected(own, next_own, reward, discount):
        members = quantiles.decode(next_own[0]), categories.decode(next_own[1])
        target = bootstrap(reward, discount, mixture(members))

        def loss(own):
            return quantiles.loss(own[0], target) + categories.loss(own[1], target)

        return *jax.value_and_grad(loss)(own), mass_outside(target, LOW, HIGH)

    rows = jnp.arange(BATCH)
    expected_losses, gradients, expected_clipped = jax.jit(
        jax.vmap(expected, in_axes=(1, 1, 0, 0))
    )(outputs[:, rows, actions[0]], following[:, rows, actions[1]], reward, discount)
    gradient, losses, clipped = learned(
        outputs, following, actions, (reward, discount, shares), layout_of(size)
    )
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(clipped, expected_clipped, atol=1e-5)
    spread = np.zeros((2, BATCH, ACTIONS, size))
    spread[:, rows, actions[0]] = np.swapaxes(gradients * shares[:, None, None], 0, 1)
    flat = spread.reshape(2, BATCH, -1)
    np.testing.assert_allclose(gradient[:, :, : flat.shape[2]], flat, atol=2e-4)
    np.testing.assert_array_equal(gradient[:, :, flat.shape[2] :], 0.0)


def test_a_target_that_is_no_number_makes_a_loss_that_is_none():
    outputs = random_outputs(5, 7)
    following = outputs.at[0, 2, 1, 3].set(jnp.nan)
    ones, action = jnp.ones(BATCH), jnp.ones(BATCH, jnp.int32)
    gradient, losses, _ = learned(
        outputs, following, (action, action), (ones, ones, ones), layout_of(7)
    )
    assert np.isnan(losses[2])
    assert np.isnan(gradient[0, 2, 7:14]).all()
    assert np.isfinite(np.delete(np.asarray(losses), 2)).all()
