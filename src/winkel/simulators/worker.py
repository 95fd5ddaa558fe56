"""A worker process: makes some of a pool's environments and steps them on request.

It leads a process group of its own, in a folder of its own, and ends with the pool's process,
however that ends. If the connection closes, it closes its simulators, removes the folder and kills
its group with everything that the simulators started. A guard, a shell in the same group, does the
same half a second later, for a worker that is stuck inside a step or was killed itself.
"""

import os
import pickle
import shutil
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from winkel.errors import InputError
from winkel.simulators.base import SimulatorDied, wrap_error
from winkel.simulators.stepping import Copies, map_rows

_GUARD = 'read _; sleep 0.5; rm -rf -- "$1"; kill -KILL 0'


def main(folder: str, *passed: str) -> None:
    """Answer requests until the connection closes; `Worker.start` passes the descriptors."""
    descriptors = connection_end, memory, lifeline = [int(text) for text in passed]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # else engines would keep them open
    _start_guard(lifeline, folder)
    os.close(lifeline)
    connection = Connection(connection_end)
    copies: Copies | None = None
    try:
        while True:
            message = connection.recv_bytes()
            answer: Any = None
            try:
                if copies is None:
                    copies = make_copies(memory, *pickle.loads(message))
                    answer = copies.spec
                else:
                    copies.answer(pickle.loads(message) if message else None)
            except (InputError, SimulatorDied) as error:
                answer = error
            connection.send_bytes(b"" if answer is None else pickle.dumps(answer))
    except (EOFError, ConnectionResetError, BrokenPipeError):
        if copies is not None:
            copies.close()
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)


def make_copies(descriptor: int, maker: bytes, numbers: range, num: int, path: list[str]) -> Copies:
    """Make the environments with these numbers of a pool of `num`; modules are found in `path`."""
    sys.path[:] = path
    try:
        make = pickle.loads(maker)
    except Exception as error:
        raise wrap_error(error, "loading the maker of the environment in a worker") from error
    copies = Copies(make, numbers)
    with open(descriptor, "r+b") as memory:
        copies.attach(map_rows(memory, copies.spec, num))
    return copies


def _start_guard(lifeline: int, folder: str) -> None:
    silent = [(os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0) for out in (1, 2)]
    os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", _GUARD, "winkel-guard", folder],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, lifeline, 0), *silent],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
