"""Spectral normalisation against NumPy's singular values."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.networks import Body
from winkel.networks.impala import Spectrum
from winkel.types import Image

KEY = jax.random.key(2)
SHAPES = pytest.mark.parametrize("shape", [(4, 3, 3, 4), (7, 3, 3, 2), (3, 5)], ids=str)


def weight_of(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def matrix(weight):
    return np.asarray(weight, np.float64).reshape(len(weight), -1)


@SHAPES
def test_after_many_steps_it_is_the_largest_singular_value(shape):
    weight = weight_of(shape)

    @jax.jit
    def iterate(weight):
        step = lambda _, found: found.power_iteration(weight)  # noqa: E731
        found = jax.lax.fori_loop(0, 500, step, Spectrum.init(KEY, weight))
        return found, found.norm(weight), found.normalise(weight)

    found, norm, made = iterate(weight)
    left, values, right = np.linalg.svd(matrix(weight))
    np.testing.assert_allclose(norm, values[0], rtol=1e-4)
    np.testing.assert_allclose(abs(found.left @ left[:, 0]), 1.0, rtol=1e-3)
    np.testing.assert_allclose(abs(found.right @ right[0]), 1.0, rtol=1e-3)
    np.testing.assert_allclose(np.linalg.svd(matrix(made))[1], values / values[0], atol=1e-3)


@SHAPES
def test_a_step_is_one_of_power_iteration(shape):
    weight = weight_of(shape)
    dense = matrix(weight)
    rng = np.random.default_rng(1)
    before = Spectrum(*(jnp.asarray(rng.normal(size=n), jnp.float32) for n in dense.shape))
    after = jax.jit(Spectrum.power_iteration)(before, weight)
    right = dense.T @ np.asarray(before.left)
    right /= np.linalg.norm(right)
    left = dense @ right
    np.testing.assert_allclose(after.right, right, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.left, left / np.linalg.norm(left), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.norm(weight), np.linalg.norm(left), rtol=1e-4)


def test_fresh_estimates_are_near():
    """Else the weights would be far too large before the first update."""
    weight = weight_of((16, 3, 3, 16))
    norm = jax.jit(Spectrum.init)(KEY, weight).norm(weight)
    largest = np.linalg.svd(matrix(weight))[1][0]
    assert 0.9 * largest < norm <= 1.0001 * largest


def test_the_gradient_flows_through_weights_and_not_through_vectors():
    """∇ of Σ C ⊙ W/σ is C/σ − (Σ C ⊙ W)/σ² · u vᵀ, with u and v as they are."""
    shape = (3, 3, 3, 2)
    weight, cotangent = weight_of(shape), weight_of(shape, seed=3)
    rng = np.random.default_rng(4)
    spectrum = Spectrum(*(jnp.asarray(rng.normal(size=n), jnp.float32) for n in (3, 18)))

    def total(weight, spectrum):
        return jnp.sum(cotangent * spectrum.normalise(weight))

    in_weight, in_spectrum = jax.jit(jax.grad(total, argnums=(0, 1)))(weight, spectrum)
    dense, c = matrix(weight), matrix(cotangent)
    u, v = (np.asarray(x, np.float64) for x in spectrum)
    sigma = u @ dense @ v
    wanted = c / sigma - np.sum(c * dense) / sigma**2 * np.outer(u, v)
    np.testing.assert_allclose(matrix(in_weight), wanted, rtol=1e-4, atol=1e-5)
    for x in in_spectrum:
        np.testing.assert_array_equal(x, 0.0)

    def after_a_step(weight):
        return jnp.sum(spectrum.power_iteration(weight).left)

    np.testing.assert_array_equal(jax.grad(after_a_step)(weight), 0.0)


def test_a_zero_weight_has_no_nan_in_its_vectors():
    after = Spectrum(jnp.ones(2), jnp.ones(3)).power_iteration(jnp.zeros((2, 3)))
    for x in after:
        assert np.isfinite(x).all()


def test_a_body_normalises_its_residual_convolutions_only(monkeypatch):
    """Larger residual weights make no other features; a larger first convolution does."""
    monkeypatch.setattr("winkel.networks.impala.CHANNELS", (3, 4))
    observation = Image((8, 8), 2)
    frames = jnp.asarray(np.random.default_rng(0).integers(0, 256, (2, *observation.shape)))

    shapes = jax.eval_shape(
        lambda: Body.init(KEY, observation, multiplier=1, normalise=True, dtype="float32")
    )
    rng = np.random.default_rng(1)
    body = jax.tree.map(lambda x: jnp.asarray(0.5 * rng.normal(size=x.shape), x.dtype), shapes)
    features = jax.jit(lambda body: body(frames.astype(jnp.uint8)))

    def with_factors(factor, first_factor):
        weights = [factor * weight for weight in body.torso.residual_weights]
        torso = eqx.tree_at(lambda t: t.residual_weights, body.torso, weights)
        torso = eqx.tree_at(
            lambda t: t.blocks[0].conv.weight, torso, replace_fn=lambda w: w * first_factor
        )
        return features(eqx.tree_at(lambda b: b.torso, body, torso))

    plain = with_factors(1.0, 1.0)
    assert [len(spectrum.left) for spectrum in body.spectra] == [4, 4]
    np.testing.assert_allclose(with_factors(3.0, 1.0), plain, rtol=1e-3, atol=1e-4)
    assert np.abs(with_factors(1.0, 3.0) - plain).max() > 0.1
    without = Body(torso=body.torso, spectra=(), dtype="float32")
    assert without.power_iteration() is without
    assert np.abs(features(without) - plain).max() > 0.1


def test_a_body_can_go_without():
    shapes = jax.eval_shape(
        lambda: Body.init(KEY, Image((8, 8), 1), multiplier=1, normalise=False, dtype="float32")
    )
    assert shapes.spectra == ()
