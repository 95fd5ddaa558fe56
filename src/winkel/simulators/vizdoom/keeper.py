"""Runs between a simulator and its engine, so that the engine never outlives either of them.

An engine ignores SIGTERM and goes on after its owner was killed, with its shared memory and its
files. The keeper is the engine's parent: it ends the engine when the owner is gone, and removes
what the two have left. It is a program of its own that needs the standard library only:

    python -IS keeper.py OWNER FOLDER ENGINE ARGUMENTS...
"""

import ctypes
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

PATIENCE = 0.2
"""Seconds between two looks at whether the owner is still there."""

_PR_SET_PDEATHSIG = 1
_SHARED_MEMORY = Path("/dev/shm")


def main(owner: int, folder: str, engine: str, arguments: list[str]) -> int:
    """Run the engine in the folder to its end; its exit status."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.setpgid(0, 0)  # who kills the owner's group must not kill the one that cleans up
    os.chdir(folder)
    child = os.fork()
    if child == 0:
        _become(engine, arguments)
    threading.Thread(target=_end_after, args=(owner, child), daemon=True).start()
    _, status = os.waitpid(child, 0)
    _clean(folder, arguments)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _become(engine: str, arguments: list[str]) -> None:
    """In the child: turn into the engine, which the kernel ends if the keeper is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.execv(engine, [engine, *arguments])
    finally:
        os._exit(126)


def _end_after(owner: int, child: int) -> None:
    while os.getppid() == owner:
        time.sleep(PATIENCE)
    os.kill(child, signal.SIGKILL)


def _clean(folder: str, arguments: list[str]) -> None:
    """Remove the folder and the engine's shared memory, which carries its instance's name."""
    shutil.rmtree(folder, ignore_errors=True)
    if "+viz_instance_id" not in arguments:
        return
    instance = arguments[arguments.index("+viz_instance_id") + 1]
    for left in _SHARED_MEMORY.glob(f"ViZDoom*{instance}"):
        left.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
