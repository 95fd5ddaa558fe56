"""A worker process as the pool sees it: started, listened to with a limit of time, ended."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import winkel
from winkel.simulators.channel import Channel

_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_MODULE = ("-P", "-X", "faulthandler", "-m", "winkel.simulators.worker")
_LOOK_EVERY = 0.2  # seconds; a worker's end shows on its channel unless a child of it has a copy


class GoneError(Exception):
    """A worker died, or did not answer in time and was killed; the message is its predicate."""


class Process:
    """One worker process, its channel and its folder.

    Args:
        memory: descriptor of the file that the arrays are in.
        lifeline: read end of a pipe whose other end only the pool's process has.
        loud: whether it may print warnings, which are the same in all workers.
    """

    def __init__(self, memory: int, lifeline: int, loud: bool):
        self.folder = tempfile.mkdtemp(prefix="winkel-worker-")
        ours, theirs = socket.socketpair()
        passed = (theirs.fileno(), memory, lifeline)
        with ours, theirs:
            self._popen = subprocess.Popen(
                [sys.executable, *_MODULE, self.folder, *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what simulators print is no output of ours
                cwd=self.folder,
                env=_environment(loud),
                pass_fds=passed,
                start_new_session=True,
            )
            self._channel = Channel(ours.detach())

    @property
    def pid(self) -> int:
        """Of the process, and of the group that it leads."""
        return self._popen.pid

    def send(self, kind: bytes, content: Any = None) -> None:
        """Send a message; a worker that is gone shows when it is asked for the answer."""
        with contextlib.suppress(EOFError):
            self._channel.send(kind, content)

    def receive(self, seconds: float) -> tuple[bytes, Any]:
        """The next message; raises `GoneError` if it does not come within this time."""
        deadline = time.monotonic() + seconds
        while not self._channel.arrives_within(min(_LOOK_EVERY, deadline - time.monotonic())):
            if self._popen.poll() is not None:
                raise GoneError(self._last_words())
            if time.monotonic() > deadline:
                self.kill()
                raise GoneError(f"did not answer for {seconds:g} s and was killed")
        try:
            return self._channel.receive()
        except EOFError:
            raise GoneError(self._last_words()) from None

    def leave(self) -> None:
        """Ask it to close its simulators and end, which `kill` waits for no longer than told."""
        self._channel.close()

    def kill(self, patience: float = 0.0) -> None:
        """End it and all that its simulators have started; repeating it does no harm."""
        self.leave()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _last_words(self) -> str:
        self.kill(patience=1.0)
        status = self._popen.returncode
        if status >= 0:
            return f"ended by itself with status {status}"
        names = {known.value: known.name for known in signal.Signals}
        return f"died of {names.get(-status, f'signal {-status}')}"


def _environment(loud: bool) -> dict[str, str]:
    """Ours, with one thread for each library, and winkel where it is for us."""
    environment = dict(os.environ) | dict.fromkeys(_ONE_THREAD, "1")
    home = str(Path(winkel.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(
        [home, *filter(None, [environment.get("PYTHONPATH")])]
    )
    environment["JAX_PLATFORMS"] = "cpu"  # an environment in JAX must not take the agent's GPU
    if not loud:
        environment["PYTHONWARNINGS"] = "ignore"
    return environment
