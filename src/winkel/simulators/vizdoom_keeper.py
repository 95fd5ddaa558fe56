"""Runs an engine, ends it when the simulator's process has ended, and removes its files.

An engine ignores SIGTERM, and after its owner was killed it keeps running, with its shared memory
and its files. The keeper, its parent, needs only the standard library:

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

CHECK_EVERY = 0.2  # seconds between checks whether the owner has ended
_PR_SET_PDEATHSIG = 1


def main(owner: int, folder: str, engine: str, arguments: list[str]) -> int:
    """Run the engine in the folder until it ends, and return its exit status."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.setpgid(0, 0)  # so that killing the owner's group does not kill the keeper
    os.chdir(folder)
    child = os.fork()
    if child == 0:
        try:
            if sys.platform == "linux":  # the kernel ends the engine if the keeper is killed
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.execv(engine, [engine, *arguments])
        finally:
            os._exit(126)
    threading.Thread(target=_kill_after, args=(owner, child), daemon=True).start()
    _, status = os.waitpid(child, 0)
    shutil.rmtree(folder, ignore_errors=True)
    if "+viz_instance_id" in arguments:  # part of the name of the engine's shared memory
        instance = arguments[arguments.index("+viz_instance_id") + 1]
        for left in Path("/dev/shm").glob(f"ViZDoom*{instance}"):
            left.unlink(missing_ok=True)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _kill_after(owner: int, child: int) -> None:
    while os.getppid() == owner:
        time.sleep(CHECK_EVERY)
    os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
