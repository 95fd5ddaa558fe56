"""What a simulator is: one environment that is stepped from outside, in plain NumPy."""

import os
import traceback
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from winkel.errors import InputError, require_integer


class Layout(NamedTuple):
    """Form of observations.

    Attributes:
        shape: of one observation, or of one frame if the agent sees a stack of frames.
        dtype: 'float32' for numbers, 'uint8' for pictures.
        stack: number of frames that the agent sees; a simulator emits one at a time.
    """

    shape: tuple[int, ...]
    dtype: str
    stack: int = 1


class Step(NamedTuple):
    """Result of one step.

    Attributes:
        obs: the observation that the transition ends in, never that of a reset.
        reward: of the transition.
        discount: 0 only on termination, else 1, unless the environment has its own discount.
        boundary: whether the episode ended, by termination or truncation.
        facts: numbers that add up over an episode, in the order of the simulator's `facts`.
        probes: numbers after this step, in the order of the simulator's `probes`.
    """

    obs: np.ndarray
    reward: float
    discount: float
    boundary: bool
    facts: tuple[float, ...] = ()
    probes: tuple[float, ...] = ()


@runtime_checkable
class Simulator(Protocol):
    """One environment with discrete actions.

    Attributes:
        layout: form of observations.
        num_actions: A; actions are 0 … A − 1.
        facts: names of numbers that add up over an episode (goals, mistakes).
        probes: names of numbers that are reported at every step (a position).
    """

    layout: Layout
    num_actions: int
    facts: tuple[str, ...]
    probes: tuple[str, ...]

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode and return its first observation; only the first call has a seed."""

    def step(self, action: int) -> Step:
        """Make one transition; the caller resets after a boundary."""

    def close(self) -> None:
        """Release everything outside this object."""


Maker = Callable[[], Simulator]


class SimulatorDied(Exception):  # noqa: N818
    """The engine of a simulator, a process of its own, or the worker that steps it has died.

    The pool replaces the worker. Any other exception is an error of the environment.
    """


class SimulatorHung(SimulatorDied):
    """A worker did not answer in time and was killed."""


class Spec(NamedTuple):
    """The attributes of a `Simulator`, which all of its copies have in common."""

    layout: Layout
    num_actions: int
    facts: tuple[str, ...]
    probes: tuple[str, ...]

    @classmethod
    def of(cls, simulator: Simulator) -> "Spec":
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


def wrap_error(error: Exception, where: str) -> InputError:
    """Describe an exception of other code in one line; the traceback becomes a note."""
    if isinstance(error, InputError):
        return InputError(f"{where}: {error}")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}, line {frame.lineno}"
    text = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    wrapped = InputError(f"{where} raised {text} ({place})")
    wrapped.add_note("".join(traceback.format_exception(error)))
    return wrapped
