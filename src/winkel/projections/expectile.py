"""The expectile representation (Rowland et al. 2019), with an imputation in closed form."""

from dataclasses import KW_ONLY
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from winkel.distributions import mean, partial_moments
from winkel.errors import InputError, require_integer
from winkel.projections.base import as_outputs, total_loss
from winkel.types import Atoms

REACH = 100.0
"""How many times the spread of the expectiles an imputed atom may lie beyond them."""


class Expectile(eqx.Module):
    """K expectiles at the midpoint levels τ_k = (2k − 1)/2K, K odd, so that one is the mean.

    The τ-expectile e solves τ E[(Z − e)⁺] = (1 − τ) E[(e − Z)⁺]. Together with the mean μ it gives
    the integrated cdf L(e) = E[(e − Z)⁺] = τ (μ − e)/(1 − 2τ). A distribution with these expectiles
    is therefore read off the polygon through the points (e_k, L(e_k)): its slopes are cdf values,
    its corners atoms. Rowland et al. solve a root-finding problem instead.
    """

    _: KW_ONLY
    num_atoms: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        require_integer("num_atoms", self.num_atoms, at_least=3)
        if self.num_atoms % 2 == 0:
            raise InputError(
                f"need an odd num_atoms, so that one expectile is the mean, got {self.num_atoms}"
            )

    @classmethod
    def spanning(cls, num_atoms: int, z_min: float | Array, z_max: float | Array) -> "Expectile":
        """Expectiles are free, so the range does not matter."""
        return cls(num_atoms=num_atoms)

    @property
    def levels(self) -> Float[Array, " K"]:
        """Midpoint levels τ_k = (2k − 1)/2K; the middle one is 1/2."""
        return (jnp.arange(self.num_atoms) + 0.5) / self.num_atoms

    def decode(self, theta: Float[Array, " K"]) -> Atoms:
        """A distribution with expectiles `theta`, and with mean θ_mid in any case.

        Outputs that are no distribution's expectiles are sorted, and the polygon's slopes are made
        monotone within [0, 1].
        """
        theta = jnp.sort(as_outputs(theta, self.num_atoms))
        center = theta[self.num_atoms // 2]
        return _moved(self._impute(theta - center), center)

    def project(self, target: Atoms) -> Atoms:
        """The distribution imputed from the target's expectiles; it keeps the mean."""
        center = mean(target)
        # Of the centred target, so that a large mean does not round its expectiles away.
        return _moved(self.decode(self.expectiles(_moved(target, -center))), center)

    def _impute(self, theta: Float[Array, " K"]) -> Atoms:
        """The polygon's distribution, from sorted expectiles whose middle one is 0."""
        middle = self.num_atoms // 2
        outer = jnp.delete(jnp.arange(self.num_atoms), middle, assume_unique_indices=True)
        level, x = self.levels[outer], theta[outer]
        below = jnp.maximum(level * x / (2.0 * level - 1.0), 0.0)  # L(e_k) = E[(e_k − Z)⁺]
        above = jnp.maximum((1.0 - level) * x / (2.0 * level - 1.0), 0.0)  # E[(Z − e_k)⁺]
        run = jnp.diff(x)
        slope = jnp.where(run > 0, jnp.diff(below) / jnp.where(run > 0, run, 1.0), 0.0)
        # No further out than REACH times the expectiles' own spread, where slopes are no cdf's.
        spread = jnp.where(x[-1] > x[0], x[-1] - x[0], 1.0)
        slope = jax.lax.cummax(
            jnp.clip(slope, below[0] / (REACH * spread), 1.0 - above[-1] / (REACH * spread))
        )
        lowest = x[0] - below[0] / jnp.where(slope[0] > 0, slope[0], 1.0)
        highest = x[-1] + above[-1] / jnp.where(slope[-1] < 1, 1.0 - slope[-1], 1.0)
        x = x.at[0].set(lowest).at[-1].set(highest)
        locations = jnp.insert(x, middle, 0.0)
        probs = jnp.insert(jnp.diff(slope, prepend=0.0, append=1.0), middle, 0.0)
        return Atoms(locations=locations - jnp.sum(probs * locations), probs=probs)

    def expectiles(self, target: Atoms) -> Float[Array, " K"]:
        """Exact expectiles at all levels, in O((N + K) log N).

        An atom z is the expectile of level L(z)/(L(z) + R(z)), R(z) = E[(Z − z)⁺], increasing in z;
        between two atoms the defining equation is linear.
        """
        center = mean(target)
        centered = _moved(target, -center)
        z = jnp.sort(centered.locations)
        mass, moment = partial_moments(centered, z, order=1)
        total = moment[-1]
        below = z * mass - moment
        above = (total - moment) - z * (mass[-1] - mass)
        spread = below + above
        atom_level = jnp.where(spread > 0, below / jnp.where(spread > 0, spread, 1.0), 0.0)
        at = jnp.clip(jnp.searchsorted(atom_level, self.levels, side="right") - 1, 0)
        tau, mass_at, moment_at = self.levels, mass[at], moment[at]
        weight = tau * (mass[-1] - mass_at) + (1.0 - tau) * mass_at
        return center + (tau * (total - moment_at) + (1.0 - tau) * moment_at) / weight

    def loss(self, theta: Float[Array, " K"], target: Atoms) -> Float[Array, ""]:
        """Expectile regression, ½ Σ_k E[|τ_k − 1{Z ≤ θ_k}| (Z − θ_k)²]."""
        theta = as_outputs(theta, self.num_atoms)
        target = jax.lax.stop_gradient(Atoms(*map(jnp.asarray, target)))
        return total_loss(partial(_expectile_regression, self), theta, target)


def _moved(atoms: Atoms, shift: Float[Array, ""]) -> Atoms:
    return Atoms(locations=atoms.locations + shift, probs=atoms.probs)


def _expectile_regression(
    expectiles: Expectile, theta: Float[Array, " K"], target: Atoms
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    levels, center = expectiles.levels, mean(target)
    target = _moved(target, -center)
    theta = theta - center
    mass, moment, square = partial_moments(target, theta, order=2)
    second_moment = jnp.sum(target.probs * target.locations**2)
    squared_gap = second_moment + theta**2
    squared_gap_below = square - 2.0 * theta * moment + theta**2 * mass
    overshoot = theta * mass - moment  # E[(θ − Z)⁺]
    losses = 0.5 * (levels * squared_gap + (1.0 - 2.0 * levels) * squared_gap_below)
    return losses, levels * theta + (1.0 - 2.0 * levels) * overshoot
