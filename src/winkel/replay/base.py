"""What a replay is."""

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from winkel.types import Batch, Transition


@runtime_checkable
class Replay(Protocol):
    """A store of transitions: functions without state, for one lane, inside `jit` and `vmap`."""

    def init(self, example: Transition) -> PyTree:
        """An empty store for transitions shaped as the example."""
        ...

    def add(self, state: PyTree, transition: Transition, /) -> PyTree:
        """One transition more, or one of each environment where the store is of several."""
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
        """A batch; undefined for an empty store.

        Samples of several steps are discounted with γ; importance weights may depend on how much
        of the run is done.
        """
        ...

    def reprioritise(self, state: PyTree, batch: Batch, priorities: Float[Array, "B"]) -> PyTree:
        """What the learner found the batch to be worth."""
        ...
