"""The quantile representation and projection Π_Q (QR-DQN)."""

from dataclasses import KW_ONLY
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from winkel.distributions import mean, partial_moments, quantile
from winkel.errors import InputError, require_integer
from winkel.projections.base import as_outputs, total_loss
from winkel.types import Atoms


class Quantile(eqx.Module):
    """K equally likely Diracs, whose locations are free (Dabney et al. 2017).

    `huber_width` κ replaces |u| by Huber's L_κ(u)/κ in the loss; its limit 0, the default, is plain
    quantile regression, the one whose minimiser is the projection.
    """

    _: KW_ONLY
    num_atoms: int = eqx.field(static=True)
    huber_width: float = eqx.field(static=True, default=0.0)

    def __check_init__(self) -> None:
        require_integer("num_atoms", self.num_atoms, at_least=2)
        width = self.huber_width
        if not isinstance(width, int | float) or not 0.0 <= width < float("inf"):
            raise InputError(f"need a finite huber_width >= 0, got {width!r}")

    @classmethod
    def spanning(cls, num_atoms: int, z_min: float | Array, z_max: float | Array) -> "Quantile":
        """Locations are free, so the range does not matter."""
        return cls(num_atoms=num_atoms)

    @property
    def levels(self) -> Float[Array, " K"]:
        """Midpoint levels τ_k = (2k − 1)/2K."""
        return (jnp.arange(self.num_atoms) + 0.5) / self.num_atoms

    def decode(self, theta: Float[Array, " K"]) -> Atoms:
        """Locations `theta`, in any order, 1/K each (App. B)."""
        theta = as_outputs(theta, self.num_atoms)
        return Atoms(locations=theta, probs=jnp.full_like(theta, 1.0 / self.num_atoms))

    def project(self, target: Atoms) -> Atoms:
        """Π_Q: θ_k = F⁻¹(τ_k), the closest member of the representation in w_1."""
        return self.decode(quantile(target, self.levels))

    def loss(self, theta: Float[Array, " K"], target: Atoms) -> Float[Array, ""]:
        """Σ_k E_{Z ~ target}[ρ_{τ_k}(Z − θ_k)], eq. 11 without its constant factor K M.

        The target's own probabilities are the weights, which is what the ratio K p of eq. 11 does.
        The gradient in closed form: F(θ_k) − τ_k.
        """
        theta = as_outputs(theta, self.num_atoms)
        target = jax.lax.stop_gradient(Atoms(*map(jnp.asarray, target)))
        return total_loss(partial(_quantile_regression, self), theta, target)


def _quantile_regression(
    quantiles: Quantile, theta: Float[Array, " K"], target: Atoms
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """E[ρ_τ(Z − θ)] and its derivative in θ, for each output, from partial moments of the target.

    Moments are about the target's mean, which keeps differences of moments accurate.
    """
    levels, kappa = quantiles.levels, quantiles.huber_width
    center = mean(target)
    target = Atoms(locations=target.locations - center, probs=target.probs)
    theta = theta - center
    if kappa == 0.0:
        mass, moment = partial_moments(target, theta, order=1)
        overshoot = theta * mass - moment  # E[(θ − Z)⁺]
        # Ranks alone would turn a NaN into a finite slope, which no guard downstream could see.
        gradients = jnp.where(jnp.isnan(overshoot), jnp.nan, mass - levels)
        # ρ_τ as in eq. 6: E[ρ_τ(Z − θ)] = E[(θ − Z)⁺] + τ (E[Z] − θ), and E[Z] = 0 here.
        return overshoot - levels * theta, gradients

    points = jnp.stack([theta - kappa, theta, theta + kappa])
    below_points = partial_moments(target, points, order=2)
    in_all = [jnp.sum(target.probs * target.locations**power) for power in range(3)]
    mass_in, moment_in, square_in = (  # each [4, K]: far below, near below, near above, far above
        jnp.diff(jnp.vstack([below, jnp.full_like(theta, total)]), axis=0, prepend=0.0)
        for below, total in zip(below_points, in_all, strict=True)
    )
    gap = moment_in - theta[None] * mass_in  # E[(Z − θ) 1{·}]
    gap_squared = square_in - 2.0 * theta[None] * moment_in + theta[None] ** 2 * mass_in
    below = 0.5 * gap_squared[1] - kappa * (gap[0] + 0.5 * kappa * mass_in[0])
    above = 0.5 * gap_squared[2] + kappa * (gap[3] - 0.5 * kappa * mass_in[3])
    slope_below = kappa * mass_in[0] - gap[1]
    slope_above = -kappa * mass_in[3] - gap[2]
    losses = ((1.0 - levels) * below + levels * above) / kappa
    gradients = ((1.0 - levels) * slope_below + levels * slope_above) / kappa
    return losses, gradients
