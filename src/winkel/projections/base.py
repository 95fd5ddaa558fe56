"""What a projection is."""

from typing import Protocol, runtime_checkable

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
        ...

    @classmethod
    def spanning(cls, num_atoms: int, z_min: float, z_max: float) -> "Projection":
        """An instance with `num_atoms` atoms for values in [z_min, z_max], all else at its default.

        What a configuration that knows only the name of the projection calls.
        """
        ...

    def decode(self, theta: Float[Array, " K"]) -> Atoms:
        """The distribution that network outputs `theta` stand for."""
        ...

    def project(self, target: Atoms) -> Atoms:
        """Π_i target, exactly."""
        ...

    def loss(self, theta: Float[Array, " K"], target: Atoms) -> Float[Array, ""]:
        """Distance of `theta` from `target`, minimal where `decode(theta)` is `project(target)`.

        Linear in the target's probabilities, so that sampled targets give unbiased gradients. The
        target itself carries no gradient.
        """
        ...


def require_atoms(num_atoms: int, at_least: int = 2) -> None:
    """Raise unless `num_atoms` is an integer ≥ at_least."""
    if num_atoms != int(num_atoms) or num_atoms < at_least:
        raise InputError(f"need num_atoms >= {at_least}, a whole number, got {num_atoms}")
