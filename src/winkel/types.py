"""The pytrees that travel between modules."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, PyTree
from numpy.typing import ArrayLike

from winkel.errors import InputError

AnyArray = jax.Array | np.ndarray

MASS_TOLERANCE = 1e-5
"""How far from one the sum of given probabilities may be: the rounding of float32 input."""


class Atoms(NamedTuple):
    """A finite mixture of Diracs, Σ_n probs[n] δ_{locations[n]}; leading axes are a batch.

    Locations may repeat and stand in any order. Atoms of zero mass are padding, which no result
    depends on as long as it is finite and within the range of the others (far outside, it takes
    part in rounding). The constructor checks nothing, so that traced values, gradients and
    tangents fit in; `Atoms.of` checks.
    """

    locations: Float[AnyArray, "*batch N"]
    probs: Float[AnyArray, "*batch N"]

    @classmethod
    def of(cls, locations: ArrayLike, probs: ArrayLike | None = None) -> "Atoms":
        """Checked atoms from plain numbers, equally likely where `probs` is not given.

        Probabilities that sum to one up to rounding are made to do so. The arrays are NumPy's, in
        float64: JAX takes them at the precision it is set to, and the exact operators of
        `winkel.operators` lose nothing.
        """
        z = np.asarray(locations, dtype=np.float64)
        if z.ndim == 0 or z.size == 0:
            raise InputError(f"need at least one location, got an array of shape {z.shape}")
        if not np.isfinite(z).all():
            raise InputError(f"need finite locations, got {z[~np.isfinite(z)][0]} in {z}")
        if probs is None:
            return cls(locations=z, probs=np.full(z.shape, 1.0 / z.shape[-1]))
        p = np.asarray(probs, dtype=np.float64)
        if p.shape != z.shape:
            raise InputError(
                f"need one probability for each location, got shapes {p.shape} and {z.shape}"
            )
        return cls(locations=z, probs=normalised(p, "probabilities"))


def normalised(probs: ArrayLike, what: str) -> Float[np.ndarray, "*batch N"]:
    """Probability vectors (last axis) in float64; raises unless they are that up to rounding."""
    probs = np.asarray(probs, np.float64)
    if not np.isfinite(probs).all():
        raise InputError(f"need finite {what}, got {probs[~np.isfinite(probs)][0]} in {probs}")
    if (probs < 0).any():
        raise InputError(f"need non-negative {what}, got {probs.min()} in {probs}")
    total = probs.sum(axis=-1)
    worst = np.unravel_index(np.argmax(np.abs(total - 1.0)), total.shape)
    if abs(total[worst] - 1.0) > MASS_TOLERANCE:
        where = f" in row {tuple(int(i) for i in worst)}" if worst else ""
        raise InputError(
            f"need {what} that sum to one, got a sum of {total[worst]:.6g}{where}: {probs[worst]}"
        )
    return probs / total[..., None]


class EnvStep(NamedTuple):
    """What one step of an environment shows; a reset is part of the step and never a transition.

    Attributes:
        reward: of this transition.
        discount: 0 only on termination, 1 else; γ is the agent's.
        next_obs: the observation that the transition ends in, before any reset.
        obs: what to act on next: the same, or the first observation of a new episode.
        boundary: whether the episode ended here, by termination or truncation.
        info: facts that add up over an episode (mistakes, bad episodes), never running totals.
    """

    reward: Float[AnyArray, "*batch"]
    discount: Float[AnyArray, "*batch"]
    next_obs: PyTree
    obs: PyTree
    boundary: Bool[AnyArray, "*batch"]
    info: Mapping[str, AnyArray]
