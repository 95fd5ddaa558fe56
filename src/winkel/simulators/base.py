"""What a simulator is: one environment that is stepped from outside, in plain NumPy."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from winkel.errors import InputError, require_integer


class Layout(NamedTuple):
    """Form of observations: 'float32' for numbers, 'uint8' for pictures."""

    shape: tuple[int, ...]
    """Shape of one observation, or of one frame if the agent sees a stack of frames."""
    dtype: str
    stack: int = 1
    """Number of frames that the agent sees; a simulator emits one at a time."""


class Step(NamedTuple):
    """Result of one step."""

    obs: np.ndarray
    """The observation that the transition ends in, never that of a reset."""
    reward: float
    discount: float
    """0 only on termination, else 1, unless the environment has its own discount."""
    boundary: bool
    """Whether the episode ended, by termination or truncation; the caller resets then."""
    facts: tuple[float, ...] = ()
    probes: tuple[float, ...] = ()
    """Facts and probes are in the order of the simulator's names."""


@runtime_checkable
class Simulator(Protocol):
    """One environment with discrete actions."""

    layout: Layout
    num_actions: int
    """Actions are 0 … num_actions − 1."""
    facts: tuple[str, ...]
    """Names of numbers that add up over an episode (goals, mistakes)."""
    probes: tuple[str, ...]
    """Names of numbers that are reported at every step (a position)."""

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode and return its first observation; only the first call has a seed."""

    def step(self, action: int) -> Step:
        """Make one transition."""

    def close(self) -> None:
        """Release everything outside this object."""


Maker = Callable[[], Simulator]
Notice = Callable[[str], None]
"""Gets a sentence that the user should see."""


class SimulatorDied(Exception):  # noqa: N818
    """The engine of a simulator or the worker that steps it has died; the pool replaces it."""


class SimulatorSpec(NamedTuple):
    """The attributes of a `Simulator`, which all of its copies have in common."""

    layout: Layout
    num_actions: int
    facts: tuple[str, ...]
    probes: tuple[str, ...]

    @classmethod
    def of(cls, simulator: Simulator) -> "SimulatorSpec":
        """Read and check what a simulator says about itself."""
        shape, dtype, stack = simulator.layout
        layout = Layout(tuple(int(n) for n in shape), str(dtype), stack)
        if layout.dtype not in ("float32", "uint8"):
            raise InputError(f"need observations of float32 or uint8, got {layout.dtype!r}")
        if not layout.shape or min(layout.shape) < 1:
            raise InputError(f"need observations with at least one number, got shape {shape}")
        if layout.dtype == "float32" and stack != 1:
            raise InputError(f"need uint8 frames to stack, got stack {stack} of float32")
        require_integer("stack", stack, at_least=1)
        num_actions = require_integer("num_actions", simulator.num_actions, at_least=1)
        return cls(layout, num_actions, tuple(simulator.facts), tuple(simulator.probes))
