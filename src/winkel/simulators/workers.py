"""The worker processes of a pool. Lost workers are replaced.

Workers are started as programs, not by `multiprocessing.Process`: its start methods either fork,
which JAX's threads do not survive, or run the user's main script again in every worker.
"""

import contextlib
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import winkel
from winkel.errors import InputError
from winkel.simulators.base import Maker, SimulatorDied
from winkel.simulators.worker import Copies

CLOSE_TIMEOUT = 3.0
"""Seconds that all workers together may take to close their simulators."""

_CHECK_EVERY = 0.2  # seconds between checks whether the process that should answer has ended
_MAIN = "import sys; from winkel.simulators.worker import main; main(*sys.argv[1:])"
_PROGRAM = (sys.executable, "-P", "-X", "faulthandler", "-c", _MAIN)
_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")


class Worker:
    """A worker process with those of a pool's `num` environments that have these `numbers`.

    The `descriptors` are those of the shared memory and of the read end of a pipe that closes when
    the pool's process ends, however it ends. `restarts` counts how often the process was replaced.
    """

    def __init__(
        self, index: int, numbers: range, maker: Maker, num: int, descriptors: tuple[int, int]
    ):
        self.numbers = numbers
        self.restarts = 0
        self._index = index
        self._arguments = (_pickle(maker), numbers, num, _search_path())
        self._descriptors = descriptors
        self.start()

    def __str__(self) -> str:
        first, last = self.numbers[0], self.numbers[-1]
        what = f"environment {first}" if first == last else f"environments {first} to {last}"
        return f"worker {self._index} ({what})"

    @property
    def pid(self) -> int:
        """Id of the process and of the group that holds everything that it started."""
        return self._process.pid

    def start(self) -> None:
        """Start a process in a folder and a process group of its own; it answers with `Spec`s."""
        self._folder = tempfile.mkdtemp(prefix="winkel-worker-")
        self._connection, theirs = Pipe()
        self._readable = select.poll()
        self._readable.register(self._connection.fileno(), select.POLLIN)
        with theirs:
            passed = (theirs.fileno(), *self._descriptors)
            self._process = subprocess.Popen(
                [*_PROGRAM, self._folder, *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what simulators print is not winkel's output
                cwd=self._folder,
                env=_environment(warnings=self._index == 0 and self.restarts == 0),
                pass_fds=passed,
                start_new_session=True,
            )
        self.send(self._arguments)

    def send(self, request: Any = None) -> None:
        """Send a request; a lost worker is noticed when it should answer.

        The first request says what to make. Later ones are seeds for a reset, or None for a step:
        an empty message, since a pickled one takes several times as long.
        """
        message = b"" if request is None else pickle.dumps(request)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send_bytes(message)

    def receive(self, seconds: float) -> Any:
        """Return the answer; raise an error of the environment, or `SimulatorDied` with how."""
        deadline = time.monotonic() + seconds
        while not self._readable.poll(1000 * min(_CHECK_EVERY, seconds)):
            if self._process.poll() is not None:
                raise SimulatorDied(self._describe_end())
            if time.monotonic() > deadline:
                self.kill()
                raise SimulatorDied(f"did not answer for {seconds:g} s and was killed")
        try:
            message = self._connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            raise SimulatorDied(self._describe_end()) from None
        answer = pickle.loads(message) if message else None
        if isinstance(answer, SimulatorDied):
            self.kill(CLOSE_TIMEOUT)
        if isinstance(answer, SimulatorDied | InputError):
            raise answer
        return answer

    def leave(self) -> None:
        """Ask the worker to close its simulators and end."""
        self._connection.close()

    def kill(self, patience: float = 0.0) -> None:
        """End the process and everything that its simulators started."""
        self.leave()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _describe_end(self) -> str:
        self.kill(patience=1.0)
        status = self._process.returncode
        if status < 0:
            return f"died of {signal.Signals(-status).name}"
        return f"ended by itself with status {status}"


class LocalWorker:
    """All environments in this process. Same interface as `Worker`."""

    pid = None

    def __init__(self, maker: Maker, num: int, memory: int):
        self.numbers = range(num)
        self.restarts = 0
        self._arguments = (maker, self.numbers, memory, num)
        self.start()

    def __str__(self) -> str:
        return "this process"

    def start(self) -> None:
        """Make the environments."""
        self._copies = copies = Copies(*self._arguments)
        self._answer: Callable[[], Any] = lambda: copies.specs

    def send(self, seeds: Any = None) -> None:
        """Keep a request until `receive`."""
        self._answer = partial(self._copies.answer, seeds)

    def receive(self, seconds: float) -> Any:
        """Do what was requested, however long it takes."""
        try:
            return self._answer()
        except SimulatorDied:
            self._copies.close()
            raise

    def leave(self) -> None:
        """Close all simulators."""
        self._copies.close()

    def kill(self, patience: float = 0.0) -> None:
        """Do nothing: this process goes on."""


def open_memory() -> int:
    """Open a file without a name: it disappears with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("winkel")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _pickle(maker: Maker) -> bytes:
    name = getattr(maker, "__qualname__", type(maker).__qualname__)
    try:
        pickled = pickle.dumps(maker)
    except Exception as error:
        raise InputError(
            f"need a maker that can be pickled for workers, got {name}: {error}"
        ) from None
    if getattr(maker, "__module__", None) == "__main__":
        raise InputError(
            f"need a maker from a module that workers can import, got {name} of the main script; "
            "move it to a module, name it 'module:function', or use num_workers=0"
        )
    return pickled


def _search_path() -> list[str]:
    """Return where modules are found, the current folder first: workers run in another one."""
    here = os.getcwd()
    return [here, *(os.path.abspath(folder) for folder in sys.path if folder not in ("", here))]


def _environment(warnings: bool) -> dict[str, str]:
    """Return environment variables for a worker: one thread per library, this winkel, no GPU."""
    home = str(Path(winkel.__file__).parents[1])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    variables = {f"{library}_NUM_THREADS": "1" for library in _THREADS}
    variables |= {"VECLIB_MAXIMUM_THREADS": "1", "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    if not warnings:  # they are the same in all workers
        variables["PYTHONWARNINGS"] = "ignore"
    return os.environ | variables


def close_workers(
    workers: list[Worker | LocalWorker], descriptors: tuple[int, ...], owner: int
) -> None:
    """Let all workers close their simulators, then end them, and close the descriptors."""
    if os.getpid() != owner:  # in a fork of the process that started the workers
        return
    for worker in workers:
        worker.leave()
    deadline = time.monotonic() + CLOSE_TIMEOUT
    for worker in workers:
        worker.kill(patience=max(0.0, deadline - time.monotonic()))
    workers.clear()
    for descriptor in descriptors:
        os.close(descriptor)
