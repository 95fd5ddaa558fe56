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
import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import IO, Any

import numpy as np

import winkel
from winkel.errors import InputError
from winkel.simulators.base import SimulatorDied, Spec
from winkel.simulators.stepping import Maker, check_equal, map_rows

START_TIMEOUT = 120.0
"""Seconds that a worker may take to make its environments, if `timeout` is not longer."""
CLOSE_TIMEOUT = 3.0
"""Seconds that all workers together may take to close their simulators."""

_CHECK_EVERY = 0.2  # seconds between checks whether the process that should answer has ended
_MODULE = ("-P", "-X", "faulthandler", "-m", "winkel.simulators.worker")
_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")


class WorkerLost(Exception):  # noqa: N818
    """A worker ended or was killed. The message says how: 'died of SIGKILL'."""


class Worker:
    """A worker process with some of a pool's environments.

    Attributes:
        numbers: its environments in the pool.
        restarts: how often its process was replaced.
        busy: whether it has not yet answered a request.
    """

    def __init__(self, index: int, numbers: range, descriptors: tuple[int, int]):
        self.numbers = numbers
        self.restarts = 0
        self.busy = False
        self._index = index
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
        """Start a process in a folder and a process group of its own.

        It inherits descriptors of its connection, of the shared memory and of the lifeline.
        """
        self._folder = tempfile.mkdtemp(prefix="winkel-worker-")
        self._connection, theirs = Pipe()
        self._readable = select.poll()
        self._readable.register(self._connection.fileno(), select.POLLIN)
        with theirs:
            passed = (theirs.fileno(), *self._descriptors)
            self._process = subprocess.Popen(
                [sys.executable, *_MODULE, self._folder, *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what simulators print is not winkel's output
                cwd=self._folder,
                env=_environment(warnings=self._index == 0 and self.restarts == 0),
                pass_fds=passed,
                start_new_session=True,
            )

    def send(self, request: Any = None) -> None:
        """Send a request; a lost worker is noticed when it should answer.

        The first request holds the arguments of `worker._make`. Later ones are seeds for a reset,
        or None for a step: an empty message, because a pickled one takes several times as long.
        """
        self.busy = True
        message = b"" if request is None else pickle.dumps(request)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send_bytes(message)

    def receive(self, seconds: float) -> Any:
        """Return the answer; raise an error of the environment, or `WorkerLost`."""
        deadline = time.monotonic() + seconds
        while not self._readable.poll(1000 * min(_CHECK_EVERY, seconds)):
            if self._process.poll() is not None:
                raise WorkerLost(self._describe_end())
            if time.monotonic() > deadline:
                self.kill()
                raise WorkerLost(f"did not answer for {seconds:g} s and was killed")
        try:
            message = self._connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            raise WorkerLost(self._describe_end()) from None
        self.busy = False
        answer = pickle.loads(message) if message else None
        if isinstance(answer, SimulatorDied):
            self.kill(CLOSE_TIMEOUT)
            raise WorkerLost(f"lost a simulator, {answer}")
        if isinstance(answer, InputError):
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
        if status >= 0:
            return f"ended by itself with status {status}"
        names = {known.value: known.name for known in signal.Signals}
        return f"died of {names.get(-status, f'signal {-status}')}"


class WorkerPool:
    """Worker processes that share the environments evenly; the arguments are those of `Pool`.

    Attributes:
        spec: what the environments have in common.
        rows: shared memory with a row for each environment.
    """

    def __init__(
        self,
        maker: Maker,
        seeds: Sequence[int],
        num_workers: int,
        timeout: float,
        restarts: int,
        notice: Callable[[str], None],
    ):
        self._seeds = list(seeds)
        self._timeout = timeout
        self._restarts = restarts
        self._notice = notice
        self._seeded = False
        self._job = {"maker": _pickle(maker), "num": len(seeds), "path": _search_path()}
        self._workers: list[Worker] = []
        memory = _open_memory()
        lifeline, our_end = os.pipe()  # our end closes when this process ends, however it ends
        self.close = weakref.finalize(
            self, _close, self._workers, memory, (lifeline, our_end), os.getpid()
        )
        try:
            bounds = np.linspace(0, len(seeds), num_workers + 1).astype(int).tolist()
            for i, ends in enumerate(pairwise(bounds)):
                self._workers.append(Worker(i, range(*ends), (memory.fileno(), lifeline)))
            for worker in self._workers:
                worker.send(self._job | {"numbers": worker.numbers})
            specs = [self._receive_spec(worker) for worker in self._workers]
            check_equal(specs)
        except WorkerLost as lost:
            self.close()
            raise InputError(f"a worker {lost} while it made its environments") from None
        except BaseException:
            self.close()
            raise
        self.spec = specs[0]
        self.rows = map_rows(memory, self.spec, len(seeds))

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers]

    def reset(self) -> None:
        """Begin episodes everywhere; seeds are given the first time only."""
        for worker in self._workers:
            seeds = [None if self._seeded else self._seeds[number] for number in worker.numbers]
            worker.send(seeds)
        self._seeded = True
        self.wait()

    def step(self) -> None:
        """Let all workers make the actions in the rows."""
        for worker in self._workers:
            worker.send()

    def wait(self) -> list[int]:
        """Wait for all answers; return the environments whose worker was lost and replaced."""
        lost: list[int] = []
        for worker in self._workers:
            if not worker.busy:
                continue
            try:
                worker.receive(self._timeout)
            except WorkerLost as error:
                self._replace(worker, str(error))
                lost.extend(worker.numbers)
        return lost

    def _receive_spec(self, worker: Worker) -> Spec:
        return worker.receive(max(self._timeout, START_TIMEOUT))

    def _replace(self, worker: Worker, how: str) -> None:
        while True:
            if worker.restarts == self._restarts:
                raise InputError(
                    f"{worker} {how}, after {worker.restarts} restarts, the most that are allowed"
                )
            worker.restarts += 1
            self._notice(
                f"{worker} {how}; its episodes begin anew "
                f"(restart {worker.restarts} of at most {self._restarts})"
            )
            try:
                worker.start()
                worker.send(self._job | {"numbers": worker.numbers})
                self._receive_spec(worker)
                seeds = [_derive_seed(self._seeds[n], worker.restarts) for n in worker.numbers]
                worker.send(seeds)
                worker.receive(self._timeout)
                return
            except WorkerLost as lost:
                how = str(lost)


def _derive_seed(seed: int, restarts: int) -> int:
    """Return another seed for the same environment, so that a failure is not repeated."""
    return int(np.random.SeedSequence((seed, restarts)).generate_state(1)[0]) >> 1


def _open_memory() -> IO[bytes]:
    """Open a file without a name: it disappears with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("winkel"), "r+b")
    return tempfile.TemporaryFile()


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


def _close(workers: list[Worker], memory: IO[bytes], lifeline: tuple[int, int], owner: int) -> None:
    if os.getpid() != owner:  # in a fork of the process that started the workers
        return
    for worker in workers:
        worker.leave()
    deadline = time.monotonic() + CLOSE_TIMEOUT
    for worker in workers:
        worker.kill(patience=max(0.0, deadline - time.monotonic()))
    memory.close()
    for descriptor in lifeline:
        os.close(descriptor)
