"""What a simulator is: one environment that is stepped from outside, in plain NumPy."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np


class Layout(NamedTuple):
    """What observations look like.

    Attributes:
        shape: of one observation, or of one frame where the agent sees a stack of them.
        dtype: 'float32' for numbers, 'uint8' for pictures.
        stack: how many frames the agent sees; simulators emit one at a time.
    """

    shape: tuple[int, ...]
    dtype: str
    stack: int = 1


class Moved(NamedTuple):
    """What one step brings.

    Attributes:
        obs: what the transition ends in, also at the end of an episode; never a reset's.
        reward: of the transition.
        discount: 0 only on termination, 1 else, unless the environment has a discount of its own.
        boundary: whether the episode ended, by termination or truncation.
        facts: of this step, by the simulator's `facts`; they add up over an episode.
        probes: after this step, by the simulator's `probes`.
    """

    obs: np.ndarray
    reward: float
    discount: float
    boundary: bool
    facts: tuple[float, ...] = ()
    probes: tuple[float, ...] = ()


@runtime_checkable
class Simulator(Protocol):
    """One environment with discrete actions 0 … num_actions − 1; plain attributes will do."""

    @property
    def layout(self) -> Layout:
        """What observations look like."""

    @property
    def num_actions(self) -> int:
        """How many actions there are."""

    @property
    def facts(self) -> tuple[str, ...]:
        """Names of what adds up over an episode (goals, mistakes)."""

    @property
    def probes(self) -> tuple[str, ...]:
        """Names of numbers worth a look at every step (a position)."""

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode and return what it starts in; a seed is given only the first time."""

    def step(self, action: int) -> Moved:
        """Make one transition; the caller resets after a boundary."""

    def close(self) -> None:
        """Let go of everything outside this object."""


class SimulatorDied(Exception):  # noqa: N818
    """Raised by a simulator whose engine, a process of its own, is gone with the episode.

    The pool begins anew where this is raised; any other exception is the environment's fault.
    """


class Traits(NamedTuple):
    """What all copies of an environment have in common: what a `Simulator` says of itself."""

    layout: Layout
    num_actions: int
    facts: tuple[str, ...]
    probes: tuple[str, ...]

    @classmethod
    def of(cls, simulator: Simulator) -> "Traits":
        """The simulator's, as plain values that compare and travel."""
        layout = simulator.layout
        return cls(
            layout=Layout(tuple(int(n) for n in layout.shape), str(layout.dtype), layout.stack),
            num_actions=int(simulator.num_actions),
            facts=tuple(simulator.facts),
            probes=tuple(simulator.probes),
        )
