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

    def add(self, state: PyTree, transition: Transition) -> PyTree:
        """One transition more."""
        ...

    def sample(self, state: PyTree, batch_size: int, key: PRNGKeyArray) -> Batch:
        """A batch; undefined for an empty store."""
        ...

    def reprioritise(self, state: PyTree, batch: Batch, priorities: Float[Array, "B"]) -> PyTree:
        """What the learner found the batch to be worth."""
        ...
