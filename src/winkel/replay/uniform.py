"""A ring of transitions, drawn uniformly with replacement."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from winkel.errors import InputError, require_integer
from winkel.types import Batch, Transition


class Ring(NamedTuple):
    """Items `[capacity, …]`, and how many were added in all."""

    items: PyTree
    added: Int[Array, "*batch"]


def read_before_write(priorities: Float[Array, "B"]) -> Int[Array, ""]:
    """Return 0, as a function of an update's losses, to be added to the place of the next write.

    On a CPU only: there XLA copies the whole replay at every step unless it must read a batch
    before it overwrites a transition (docs/performance.md).
    """
    return jax.lax.platform_dependent(
        priorities,
        cpu=lambda losses: jnp.any(losses < -jnp.inf).astype(jnp.int32),
        default=lambda _: jnp.zeros((), jnp.int32),
    )


@dataclass(frozen=True)
class Uniform:
    """Replay of the last `capacity` transitions, any pytrees of fixed shapes."""

    capacity: int = 10_000

    def __post_init__(self) -> None:
        require_integer("capacity", self.capacity, at_least=1)

    def init(self, example: Transition) -> Ring:
        """Create an empty ring for transitions like one, or like several of a leading axis."""
        axes = jnp.ndim(example.boundary)
        items = jax.tree.map(
            lambda x: jnp.zeros((self.capacity, *jnp.shape(x)[axes:]), jnp.asarray(x).dtype),
            example,
        )
        return Ring(items=items, added=jnp.zeros((), jnp.int32))

    def add(
        self, state: Ring, transition: Transition, keep: Bool[Array, "E"] | None = None
    ) -> Ring:
        """Add one over the oldest, or several of a leading axis: those to keep, in order."""
        if jnp.ndim(transition.boundary) == 0:
            after = state.added + 1
            slot = state.added % self.capacity

            def write(stored: Array, new: Any) -> Array:
                new = jnp.asarray(new, stored.dtype)
                return jax.lax.dynamic_update_index_in_dim(stored, new, slot, axis=0)

        else:
            count = len(transition.boundary)
            if count > self.capacity:
                raise InputError(
                    f"need at most {self.capacity} transitions at a time, the capacity, got {count}"
                )
            kept = jnp.ones(count, bool) if keep is None else keep
            ends = jnp.cumsum(kept)
            after = state.added + ends[-1]
            slots = jnp.where(kept, (state.added + ends - 1) % self.capacity, self.capacity)

            def write(stored: Array, new: Any) -> Array:
                return stored.at[slots].set(jnp.asarray(new, stored.dtype), mode="drop")

        return Ring(items=jax.tree.map(write, state.items, transition), added=after)

    def sample(
        self,
        state: Ring,
        batch_size: int,
        key: PRNGKeyArray,
        *,
        gamma: Float[Array, ""] | float = 1.0,
        progress: Float[Array, ""] | float = 0.0,
    ) -> Batch:
        """Draw uniformly with replacement; γ and progress have no effect."""
        del gamma, progress
        stored = jnp.minimum(state.added, self.capacity)
        indices = jax.random.randint(key, (batch_size,), 0, stored)
        return Batch(
            transitions=jax.tree.map(lambda x: x[indices], state.items),
            weights=jnp.ones(batch_size),
            indices=indices,
            gamma_power=jnp.ones(batch_size),
        )

    def reprioritise(self, state: Ring, batch: Batch, priorities: Float[Array, "B"]) -> Ring:
        """No effect on what is drawn: draws are uniform. See `read_before_write`."""
        return state._replace(added=state.added + read_before_write(priorities))
