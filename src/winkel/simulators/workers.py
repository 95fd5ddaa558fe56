"""The worker processes of a pool. Lost workers are replaced.

Workers are started as programs, not by `multiprocessing.Process`: its start methods either fork,
which JAX's threads do not survive, or run the user's main script again in every worker.
"""

import contextlib
import os
import pickle
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from winkel.errors import InputError
from winkel.simulators.base import Maker, Notice, SimulatorDied
from winkel.simulators.worker_main import Copies, receive_message, send_message

CLOSE_TIMEOUT = 3.0
"""Seconds that all workers together may take to close their simulators."""

MAKING, RESET = "while it made its environments", "in a reset"
STEP = "in a step or the reset after it"
"""What a worker is doing, in messages."""

_CHECK_EVERY = 0.2  # seconds between checks whether the process that should answer has ended
_MAIN = "import sys; from winkel.simulators.worker_main import main; main(*sys.argv[1:])"
_THREADS = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "NUMEXPR_NUM", "VECLIB_MAXIMUM")
_STANDARD = os.path.dirname(os.__file__)
_CRASH = "Fatal Python error: "
_FRAME = re.compile(r'File "(.*)", line (\d+) in (.*)')


@dataclass(eq=False)
class Worker:
    """A worker process with some of a pool's environments."""

    index: int
    numbers: range
    """Numbers of its environments, among the `num` of the pool."""
    maker: Maker
    num: int
    descriptors: tuple[int, int]
    """Shared memory, and the read end of a pipe that closes when the pool's process ends."""
    search_here: bool
    """Whether modules of the current folder are found, first."""
    restarts: int = 0

    def __post_init__(self) -> None:
        here = [os.getcwd()] if self.search_here else []
        path = [os.path.abspath(folder) for folder in sys.path if folder not in ("", *here)]
        self._environment = os.environ | {f"{library}_THREADS": "1" for library in _THREADS}
        search = os.pathsep.join([*here, *path])
        self._environment |= {"PYTHONPATH": search, "JAX_PLATFORMS": "cpu"}  # no GPU
        self._arguments = pickle.dumps(self.maker), self.numbers, self.num
        self.start()

    def __str__(self) -> str:
        first, last = self.numbers[0], self.numbers[-1]
        what = f"environment {first}" if first == last else f"environments {first} to {last}"
        return f"worker {self.index} ({what})"

    def start(self) -> None:
        """Start a process in a folder and a process group of its own; it answers with its specs.

        It reports where it crashed, and what its simulators raise in `close`, in a nameless file.
        """
        if self.index or self.restarts:  # warnings are the same in all workers
            self._environment["PYTHONWARNINGS"] = "ignore"
        with contextlib.ExitStack() as undo:
            self._folder = tempfile.mkdtemp(prefix="winkel-worker-")
            undo.callback(os.rmdir, self._folder)  # which needs no descriptor
            self._report = undo.enter_context(open(open_memory(), "rb", buffering=0))
            self._connection, theirs = socket.socketpair()
            undo.enter_context(self._connection)
            self._readable = select.poll()
            self._readable.register(self._connection.fileno(), select.POLLIN)
            with theirs:
                passed = (theirs.fileno(), *self.descriptors, self._report.fileno())
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _MAIN, self._folder, *map(str, passed)],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # what simulators print is not winkel's output
                    cwd=self._folder,
                    env=self._environment,
                    pass_fds=passed,
                    start_new_session=True,
                )
            undo.pop_all()
        self.pid = self._process.pid  # also of the group of everything that it starts
        self.send(self._arguments)

    def send(self, request: Any = None) -> None:
        """Send what to make, then seeds for a reset, or None for a step, which is fast."""
        message = b"" if request is None else pickle.dumps(request)
        self._sent = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            send_message(self._connection.fileno(), message)

    def receive(self, seconds: float, doing: str) -> Any:
        """Return the answer; raise an error of the environment, or `SimulatorDied` with how."""
        while not self._readable.poll(1000 * min(_CHECK_EVERY, seconds)):
            if self._process.poll() is not None:
                raise SimulatorDied(self._describe_end(doing))
            if time.monotonic() > self._sent + seconds:
                self.kill()
                how = f"did not answer for {seconds:g} s {doing} and was killed"
                how += " (--timeout SECONDS allows more)"
                raise SimulatorDied(how) if doing is STEP else InputError(f"{self} {how}")
        try:
            message = receive_message(self._connection.fileno())
        except (EOFError, ConnectionResetError):
            raise SimulatorDied(self._describe_end(doing)) from None
        answer = pickle.loads(message) if message else None
        if isinstance(answer, SimulatorDied):
            self.kill(CLOSE_TIMEOUT)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def leave(self) -> None:
        """Let the simulators be closed."""
        self._connection.close()

    def kill(self, patience: float = 0.0) -> str:
        """End the process and all that its simulators started; return what it reported."""
        if self._report.closed:
            return ""
        self.leave()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        with self._report:
            self._report.seek(0)
            return self._report.read().decode(errors="replace")

    def _describe_end(self, doing: str) -> str:
        report, status = self.kill(patience=1.0), self._process.returncode
        how = f"ended by itself with status {status}"
        if status < 0:
            how = f"died of {signal.Signals(-status).name}"
        return f"{how} {doing}{_find_crash(report)}"


def open_memory() -> int:
    """Open a file without a name: it disappears with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("winkel")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _find_crash(report: str) -> str:
    """Return the innermost line outside of Python's own modules in which a process crashed."""
    for path, line, function in _FRAME.findall(report):
        if not path.startswith(_STANDARD) or "site-packages" in path:
            return f" ({function} in {os.path.basename(path)}, line {line})"
    return ""


def close_workers(
    workers: list[Worker | Copies], descriptors: list[int], owner: int, notice: Notice
) -> None:
    """Let all workers close their simulators, then end them; notice if simulators raise."""
    if os.getpid() != owner:  # in a fork of the process that started the workers
        return
    for worker in workers:
        worker.leave()
    deadline = time.monotonic() + CLOSE_TIMEOUT
    errors: list[str] = []
    for worker in workers:
        report = worker.kill(patience=max(0.0, deadline - time.monotonic()))
        raised, crash, _ = report.partition(_CRASH)
        errors += raised.splitlines()
        if crash:
            errors.append(f"closing environments crashed{_find_crash(report)}")
    workers.clear()
    for descriptor in descriptors:
        os.close(descriptor)
    if errors:
        more = f", and {len(errors) - 1} more did so" if len(errors) > 1 else ""
        notice(errors[0] + more)
