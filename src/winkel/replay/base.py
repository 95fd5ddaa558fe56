"""The protocol of a replay."""

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from winkel.types import Batch, Transition


@runtime_checkable
class Replay(Protocol):
    """A store of transitions: functions without state, for one lane, inside `jit` and `vmap`."""

    def init(self, example: Transition) -> PyTree:
        """Create an empty store for transitions shaped as the example."""
        ...

    def add(self, state: PyTree, transition: Transition, /) -> PyTree:
        """Add a transition, or one of each environment if the store is of several."""
        ...

    def sample(
        self,
        state: PyTree,
        batch_size: int,
        key: PRNGKeyArray,
        *,
        gamma: Float[Array, ""] | float = 1.0,
        progress: Float[Array, ""] | float = 0.0,
    ) -> Batch:
        """Draw a batch; undefined for an empty store.

        Samples of several steps are discounted with γ; importance weights may depend on the share
        of the horizon that is done.
        """
        ...

    def reprioritise(self, state: PyTree, batch: Batch, priorities: Float[Array, "B"]) -> PyTree:
        """Set the priorities of a batch after an update."""
        ...
