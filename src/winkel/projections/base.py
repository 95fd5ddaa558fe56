"""What a projection is, and what projections share."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from winkel.errors import InputError
from winkel.types import Atoms


@runtime_checkable
class Projection(Protocol):
    """A representation F_i together with the map Π_i of any distribution into it.

    Implementations are equinox modules, immutable pytrees whose arrays' sizes are static fields and
    whose real parameters are leaves. They act on one (s, a) and are batched with `jax.vmap`.
    """

    @property
    def num_atoms(self) -> int:
        """K: the number of outputs `theta` and of atoms."""

    @classmethod
    def spanning(cls, num_atoms: int, z_min: float | Array, z_max: float | Array) -> "Projection":
        """An instance with `num_atoms` atoms for values in [z_min, z_max], all else at its default.

        What a configuration that knows only the name of the projection calls.
        """

    def decode(self, theta: Float[Array, " K"]) -> Atoms:
        """The distribution that network outputs `theta` stand for."""

    def project(self, target: Atoms) -> Atoms:
        """Π_i target, exactly."""

    def loss(self, theta: Float[Array, " K"], target: Atoms) -> Float[Array, ""]:
        """Distance of `theta` from `target`, minimal where `decode(theta)` is `project(target)`.

        Its gradient is linear in the target's probabilities, so that sampled targets give unbiased
        gradients. The target itself carries no gradient. Exception: with `huber_width` > 0, the
        loss of `Quantile` is smooth, and its minimiser is only near the projection.
        """


def as_outputs(theta: Array, num_atoms: int) -> Float[Array, " K"]:
    """The outputs as floats; raises unless there are `num_atoms` of them, for one (s, a)."""
    if jnp.shape(theta) != (num_atoms,):
        raise InputError(
            f"need outputs of shape [{num_atoms}], got {list(jnp.shape(theta))}; "
            "batch with jax.vmap"
        )
    theta = jnp.asarray(theta)
    return theta if jnp.issubdtype(theta.dtype, jnp.floating) else theta.astype(float)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def total_loss(
    function: Callable[[Array, Any], tuple[Array, Array]], theta: Float[Array, " K"], target: Any
) -> Float[Array, ""]:
    """The sum of losses, from a function that returns them with their gradients in `theta`."""
    return jnp.sum(function(theta, target)[0])


@total_loss.defjvp
def _total_loss_jvp(
    function: Callable[[Array, Any], tuple[Array, Array]],
    primals: tuple[Array, Any],
    tangents: tuple[Array, Any],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    losses, gradients = function(*primals)
    return jnp.sum(losses), jnp.sum(gradients * tangents[0])
