"""Step copies of a simulator in this process, and write checked results into arrays."""

import traceback
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np

from winkel.errors import InputError
from winkel.simulators.base import Layout, Simulator, SimulatorDied, Spec, wrap_error

Maker = Callable[[], Simulator]

_LARGEST = float(np.finfo(np.float32).max)


def row_dtype(spec: Spec) -> np.dtype[Any]:
    """Return the type of one environment's row: the action goes in, everything else comes out."""
    shape, dtype, _ = spec.layout
    fields = [
        ("action", "int32"),
        ("reward", "float32"),
        ("discount", "float32"),
        ("boundary", "bool"),
        ("next_obs", dtype, shape),
        ("obs", dtype, shape),
        ("facts", "float32", (len(spec.facts),)),
        ("probes", "float32", (len(spec.probes),)),
    ]
    return np.dtype(fields, align=True)


def map_rows(memory: IO[bytes], spec: Spec, num: int) -> np.ndarray:
    """Map a file to an array of `num` rows, which outlives the open file."""
    return np.asarray(np.memmap(memory, row_dtype(spec), "r+", shape=(num,)))


def check_equal(specs: Sequence[Spec]) -> None:
    """Raise unless all copies are of one kind."""
    for other in specs[1:]:
        if other != specs[0]:
            kinds = [f"{s.num_actions} actions with observations of {s.layout}" for s in specs]
            raise InputError(
                f"need environments of one kind, got {kinds[0]} and {kinds[specs.index(other)]}"
            )


class Copies:
    """Copies of a simulator, some of a pool's environments. `attach` comes before `reset`.

    At a boundary an environment is reset immediately: `next_obs` is the last observation of the
    ended episode, `obs` the first one of the next episode.
    """

    def __init__(self, maker: Maker, numbers: Sequence[int]):
        self._numbers = numbers
        self._simulators: list[Simulator] = []
        self._steps = [0] * len(numbers)
        self._episodes = [0] * len(numbers)
        try:
            for _ in numbers:
                self._simulators.append(maker())
            specs = [Spec.of(simulator) for simulator in self._simulators]
            check_equal(specs)
        except InputError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise wrap_error(error, "making the environment") from error
        self.spec = specs[0]

    def attach(self, rows: np.ndarray) -> None:
        """Set the array of `row_dtype` that has a row for each environment of the pool."""
        self._rows = {name: rows[name] for name in row_dtype(self.spec).names or ()}

    def answer(self, seeds: Sequence[int | None] | None) -> None:
        """Make a step, or reset if there are seeds; `SimulatorDied` has one line."""
        try:
            self.step() if seeds is None else self.reset(seeds)
        except SimulatorDied as error:
            raise SimulatorDied(" ".join(str(error).split()).rstrip(".")) from error

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Begin an episode everywhere."""
        for i, seed in enumerate(seeds):
            number = self._numbers[i]
            self._begin_episode(i)
            try:
                first = check_observation(self._simulators[i].reset(seed), self.spec.layout)
            except SimulatorDied:
                raise
            except Exception as error:
                raise wrap_error(error, f"environment {number} in its reset") from error
            self._rows["obs"][number] = self._rows["next_obs"][number] = first

    def step(self) -> None:
        """Make one step everywhere, with the actions in the rows."""
        for i, number in enumerate(self._numbers):
            self._steps[i] += 1
            try:
                self._step_one(i, number)
            except SimulatorDied:
                raise
            except Exception as error:
                when = f"step {self._steps[i]} of episode {self._episodes[i]}"
                raise wrap_error(error, f"environment {number} in {when}") from error

    def _step_one(self, i: int, number: int) -> None:
        spec, rows, simulator = self.spec, self._rows, self._simulators[i]
        step = simulator.step(int(rows["action"][number]))
        next_obs = check_observation(step.obs, spec.layout)
        rows["next_obs"][number] = next_obs
        rows["reward"][number] = check_number(step.reward, "reward")
        discount = check_number(step.discount, "discount")
        if not 0.0 <= discount <= 1.0:
            raise InputError(f"need a discount from 0 to 1, got {discount}")
        rows["discount"][number] = discount
        rows["boundary"][number] = boundary = bool(step.boundary)
        for name, values in (("facts", step.facts), ("probes", step.probes)):
            if len(values) != len(getattr(spec, name)):
                raise InputError(f"need {name} {getattr(spec, name)}, got {_shorten(values)}")
            rows[name][number] = values
        if boundary:
            self._begin_episode(i)
            next_obs = check_observation(simulator.reset(None), spec.layout)
        rows["obs"][number] = next_obs

    def _begin_episode(self, i: int) -> None:
        self._steps[i] = 0
        self._episodes[i] += 1

    def close(self) -> None:
        """Close every simulator, also if one of them raises."""
        while self._simulators:
            try:
                self._simulators.pop().close()
            except Exception:
                traceback.print_exc()


def check_observation(value: Any, layout: Layout) -> np.ndarray:
    """Convert an observation to an array of the layout; scalars and other real numbers pass."""
    array = np.asarray(value)
    if layout.dtype == "uint8":
        if array.dtype != np.uint8:
            raise InputError(f"need frames of uint8, got {array.dtype}")
    elif array.dtype.kind not in "fiub":
        raise InputError(f"need an observation of real numbers, got {_shorten(value)}")
    if array.shape == () and layout.shape == (1,):
        array = array.reshape(1)
    if array.shape != layout.shape:
        raise InputError(f"need an observation of shape {layout.shape}, got {array.shape}")
    if layout.dtype == "uint8":
        return array
    if array.dtype != np.float32:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise InputError(f"need a finite observation, got {_shorten(value)}")
    return array


def check_number(value: Any, what: str) -> float:
    """Convert a number to a float that float32 can hold."""
    if type(value) is not float:
        if isinstance(value, str) or np.ndim(value) or not hasattr(value, "__float__"):
            raise InputError(f"need a {what} that is a number, got {_shorten(value)}")
        value = float(value)
    if not -_LARGEST <= value <= _LARGEST:
        raise InputError(f"need a finite {what}, got {value}")
    return value


def _shorten(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else text[:100] + " …"
