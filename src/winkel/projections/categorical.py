"""The categorical representation and projection Π_C (C51)."""

from dataclasses import KW_ONLY

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from winkel.distributions import require_single
from winkel.errors import InputError, require_integer
from winkel.projections.base import as_outputs, total_loss
from winkel.types import Atoms


class Categorical(eqx.Module):
    """Probabilities on the K evenly spaced locations z_min … z_max (Bellemare et al. 2017).

    The ends are leaves: supports that differ share one compiled program, and a search can batch
    over them. Traced ends are not checked.
    """

    _: KW_ONLY
    num_atoms: int = eqx.field(static=True)
    z_min: float | Array
    z_max: float | Array

    def __check_init__(self) -> None:
        require_integer("num_atoms", self.num_atoms, at_least=2)
        if any(isinstance(end, jax.core.Tracer) for end in (self.z_min, self.z_max)):
            return
        ends = np.asarray(self.z_min), np.asarray(self.z_max)
        numbers = all(np.issubdtype(end.dtype, np.number) for end in ends)
        if not numbers or not np.isfinite(ends).all() or (ends[0] >= ends[1]).any():
            raise InputError(f"need finite z_min < z_max, got [{self.z_min}, {self.z_max}]")
        precision = jnp.result_type(float)
        with np.errstate(over="ignore"):
            support = np.linspace(*ends, self.num_atoms).astype(precision)
        if not np.isfinite(support).all() or (np.diff(support, axis=0) <= 0).any():
            raise InputError(
                f"need a support that {precision} can tell apart, got {self.num_atoms} atoms on "
                f"[{self.z_min}, {self.z_max}]"
            )

    @classmethod
    def spanning(cls, num_atoms: int, z_min: float | Array, z_max: float | Array) -> "Categorical":
        """The support is the given range."""
        return cls(num_atoms=num_atoms, z_min=z_min, z_max=z_max)

    @property
    def support(self) -> Float[Array, " K"]:
        """Locations z_1 … z_K."""
        return jnp.linspace(self.z_min, self.z_max, self.num_atoms)

    def decode(self, theta: Float[Array, " K"]) -> Atoms:
        """Softmax probabilities on the support (App. B)."""
        return Atoms(
            locations=self.support, probs=jax.nn.softmax(as_outputs(theta, self.num_atoms))
        )

    def project(self, target: Atoms) -> Atoms:
        """Π_C: share each atom's mass between its two neighbours on the grid (eq. 5, App. A.5).

        Mass outside the support goes to its nearer end. The mean of what lies inside is kept.
        """
        require_single(target)
        support = self.support
        spacing = (support[-1] - support[0]) / (self.num_atoms - 1)
        z = jnp.clip(target.locations, support[0], support[-1])
        below = jnp.clip(jnp.floor((z - support[0]) / spacing), 0, self.num_atoms - 2).astype(int)
        # From the grid point itself, not from the scaled position: exact where z is on the grid.
        # The guard is not idle: XLA has made NaN of this quotient where it fused it with w_1 (018).
        low, high = support[below], support[below + 1]
        width = jnp.where(high > low, high - low, 1.0)
        share_above = jnp.clip(jnp.where(high > low, (z - low) / width, 0.0), 0.0, 1.0)
        probs = (
            jnp.zeros_like(support)
            .at[below]
            .add(target.probs * (1.0 - share_above))
            .at[below + 1]
            .add(target.probs * share_above)
        )
        return Atoms(locations=support, probs=probs)

    def loss(self, theta: Float[Array, " K"], target: Atoms) -> Float[Array, ""]:
        """D_KL(Π_C target ‖ decode(theta)), eq. 12: the cross-entropy less the target's entropy."""
        theta = as_outputs(theta, self.num_atoms)
        probs = jax.lax.stop_gradient(self.project(target).probs)
        return total_loss(_kl_from_logits, theta, probs)


def _kl_from_logits(
    logits: Float[Array, " K"], probs: Float[Array, " K"]
) -> tuple[Float[Array, ""], Float[Array, " K"]]:
    cross_entropy = -jnp.sum(probs * jax.nn.log_softmax(logits))
    return jnp.sum(xlogy(probs, probs)) + cross_entropy, jax.nn.softmax(logits) - probs
