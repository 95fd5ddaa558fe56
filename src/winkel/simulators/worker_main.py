"""A worker process: makes some of a pool's environments and steps them on request.

It leads a process group of its own, in a folder of its own, and ends with the pool's process,
however that ends. If the connection closes, it closes its simulators. Then the pool removes the
folder and kills the group with everything that the simulators started; a guard, a shell in the same
group, does so half a second after the pool's process has ended.
"""

import faulthandler
import mmap
import os
import pickle
import struct
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from winkel.errors import InputError
from winkel.extensions import wrap_error
from winkel.simulators.base import Layout, Maker, Simulator, SimulatorDied, SimulatorSpec

_GUARD = 'read _; sleep 0.5; rm -rf -- "$1"; kill -KILL 0'
_LARGEST = float(np.finfo(np.float32).max)
_SIZE = struct.Struct("!I")


def main(folder: str, *passed: str) -> None:
    """Answer requests until the connection closes; `Worker.start` passes the descriptors."""
    descriptors = connection, memory, lifeline, report = [int(text) for text in passed]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # else engines would keep them open
    faulthandler.enable(report, all_threads=False)
    words, silent = ["sh", "-c", _GUARD, "winkel-guard", folder], subprocess.DEVNULL
    try:
        _guard = subprocess.Popen(words, stdin=lifeline, stdout=silent, stderr=silent)
    except OSError as error:
        send_message(connection, pickle.dumps(wrap_error(error, "starting a worker")))
        return
    os.close(lifeline)
    copies: Copies | None = None
    try:
        while True:
            message = receive_message(connection)
            answer: Any = None
            try:
                if copies is None:
                    maker, numbers, num = pickle.loads(message)
                    copies = Copies(pickle.loads(maker), numbers, memory, num)
                    answer = copies.specs
                else:
                    copies.answer(pickle.loads(message) if message else None)
            except (InputError, SimulatorDied) as error:
                answer = error
            except Exception as error:
                answer = wrap_error(error, "a worker")
            send_message(connection, b"" if answer is None else pickle.dumps(answer))
    except (EOFError, ConnectionResetError, BrokenPipeError):
        if copies is not None:
            os.write(report, "\n".join(copies.close()).encode())
        os._exit(0)  # the pool or the guard ends the rest, also threads of simulators


def send_message(descriptor: int, message: bytes) -> None:
    """Write bytes, none for a step, after their number: in less time than `Connection` takes."""
    message = _SIZE.pack(len(message)) + message
    while message:
        message = message[os.write(descriptor, message) :]


def receive_message(descriptor: int) -> bytes:
    """Read the bytes of a message; raise `EOFError` if the other end is closed."""
    (size,) = _SIZE.unpack(_read(descriptor, _SIZE.size))
    return _read(descriptor, size) if size else b""


def _read(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (part := os.read(descriptor, size - len(data))):
            raise EOFError
        data += part
    return data


def map_rows(memory: int, spec: SimulatorSpec, num: int) -> np.ndarray:
    """Map a file to rows, one for each environment: the action goes in, the rest comes out."""
    shape, dtype, _ = spec.layout
    fields: list[Any] = [("action", "int32"), ("reward", "float32"), ("discount", "float32")]
    fields += [("boundary", "bool"), ("next_obs", dtype, shape), ("obs", dtype, shape)]
    fields += [(name, "float32", (len(getattr(spec, name)),)) for name in ("facts", "probes")]
    row = np.dtype(fields, align=True)
    # By pwrite, and not by np.memmap: processes share the offset of an inherited descriptor.
    if os.fstat(memory).st_size < num * row.itemsize:
        os.pwrite(memory, b"\0", num * row.itemsize - 1)
    return np.frombuffer(mmap.mmap(memory, num * row.itemsize), row)


class Copies:
    """The environments of one process: those with these `numbers`, of `num` in the pool.

    They write into the rows of `memory`: at a boundary `next_obs` is the last observation of an
    episode, `obs` the first one of the next. In the pool's own process this stands for a `Worker`.
    """

    pid = None

    def __init__(self, maker: Maker, numbers: Sequence[int], memory: int, num: int):
        self.numbers, self.restarts = numbers, 0
        self._maker, self._memory, self._num = maker, memory, num
        self.start()

    def __str__(self) -> str:
        return "this process"

    def start(self) -> None:
        self._simulators: list[Simulator] = []
        self._steps, self._episodes = [0] * len(self.numbers), [0] * len(self.numbers)
        try:
            for _ in self.numbers:
                self._simulators.append(self._maker())
            self.specs = [SimulatorSpec.of(simulator) for simulator in self._simulators]
        except Exception as error:
            self.close()
            if isinstance(error, InputError):
                raise
            raise wrap_error(error, "making the environment") from error
        self._spec = self.specs[0]  # the pool requires that all are equal
        rows = map_rows(self._memory, self._spec, self._num)
        self._rows = {name: rows[name] for name in rows.dtype.names or ()}
        self._request: Callable[[], Any] = lambda: self.specs

    def send(self, seeds: Sequence[int | None] | None = None) -> None:
        self._request = partial(self.answer, seeds)

    def receive(self, seconds: float, doing: str) -> Any:
        try:
            return self._request()
        except SimulatorDied:
            self.close()
            raise

    def leave(self) -> None:
        self._errors = self.close()

    def kill(self, patience: float = 0.0) -> str:
        return "\n".join(self._errors)

    def answer(self, seeds: Sequence[int | None] | None) -> None:
        """Make one step everywhere with the actions in the rows, or reset if there are seeds."""
        for i, number in enumerate(self.numbers):
            try:
                if seeds is None:
                    self._steps[i] += 1
                    self._step(i, number)
                else:
                    first = self._reset(i, seeds[i])
                    self._rows["obs"][number] = self._rows["next_obs"][number] = first
            except SimulatorDied as error:
                how = " ".join(str(error).split()).rstrip(".")
                raise SimulatorDied(f"lost a simulator, {how}") from error
            except Exception as error:
                when = f"step {self._steps[i]} of episode {self._episodes[i]}"
                where = f"environment {number} in {when if seeds is None else 'its reset'}"
                raise wrap_error(error, where) from error

    def _step(self, i: int, number: int) -> None:
        spec, rows = self._spec, self._rows
        step = self._simulators[i].step(int(rows["action"][number]))
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
            rows[name][number] = [check_number(value, name[:-1]) for value in values]
        rows["obs"][number] = self._reset(i, None) if boundary else next_obs

    def _reset(self, i: int, seed: int | None) -> np.ndarray:
        self._steps[i] = 0
        self._episodes[i] += 1
        return check_observation(self._simulators[i].reset(seed), self._spec.layout)

    def close(self) -> list[str]:
        """Close every simulator, and return a line for each one that raised."""
        errors = []
        for number, simulator in zip(self.numbers, self._simulators, strict=False):
            try:
                simulator.close()
            except Exception as error:
                errors.append(str(wrap_error(error, f"environment {number} in its close")))
        self._simulators = []
        return errors


def check_observation(value: Any, layout: Layout) -> np.ndarray:
    """Convert an observation to an array of the layout; scalars and other real numbers pass."""
    array = np.asarray(value)
    frames = layout.dtype == "uint8"
    if frames and array.dtype != np.uint8:
        raise InputError(f"need frames of uint8, got {array.dtype}")
    if array.dtype.kind not in "fiub":
        raise InputError(f"need an observation of real numbers, got {_shorten(value)}")
    if array.shape == () and layout.shape == (1,):
        array = array.reshape(1)
    if array.shape != layout.shape:
        raise InputError(f"need an observation of shape {layout.shape}, got {array.shape}")
    if array.dtype != layout.dtype:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    if not frames and not np.isfinite(array).all():
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
