"""Spectral normalisation: weights divided by an estimate of their largest singular value.

Miyato et al. (2018). The estimate is σ = uᵀ W v, of weights as a matrix [outputs, inputs · 9],
with vectors u and v that one step of power iteration at each update keeps near the leading ones.
Gradients flow through W, also where it is in σ, and never through u and v.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

FIRST_STEPS = 15
"""Steps of power iteration before a weight is first used."""
LEAST_NORM = 1e-12
"""Shorter vectors are not made longer."""


class Spectrum(NamedTuple):
    """Estimates of a weight's leading singular vectors, u and v."""

    left: Float[Array, "*S O"]
    right: Float[Array, "*S I"]


def fresh(key: PRNGKeyArray, weight: Float[Array, "O ..."]) -> Spectrum:
    """From random vectors by several steps."""
    left, right = (
        _unit(jax.random.normal(jax.random.fold_in(key, use), (length,)))
        for use, length in enumerate(_matrix(weight).shape)
    )

    def step(_: Int[Array, ""], spectrum: Spectrum) -> Spectrum:
        return sharpened(weight, spectrum)

    return jax.lax.fori_loop(0, FIRST_STEPS, step, Spectrum(left=left, right=right))


def sharpened(weight: Float[Array, "O ..."], spectrum: Spectrum) -> Spectrum:
    """One step of power iteration: v ← Wᵀu, u ← Wv, both of length one."""
    matrix = jax.lax.stop_gradient(_matrix(weight))
    right = _unit(spectrum.left @ matrix)
    return Spectrum(left=_unit(matrix @ right), right=right)


def norm(weight: Float[Array, "O ..."], spectrum: Spectrum) -> Float[Array, ""]:
    """σ."""
    left, right = jax.lax.stop_gradient(spectrum)
    return left @ (_matrix(weight) @ right)


def normalised(weight: Float[Array, "O ..."], spectrum: Spectrum) -> Float[Array, "O ..."]:
    """W / σ."""
    return weight / norm(weight, spectrum)


def _matrix(weight: Float[Array, "O ..."]) -> Float[Array, "O I"]:
    return weight.reshape(len(weight), -1)


def _unit(vector: Float[Array, " N"]) -> Float[Array, " N"]:
    return vector / jnp.maximum(jnp.linalg.norm(vector), LEAST_NORM)
