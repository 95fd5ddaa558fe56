"""A worker process: makes some of a pool's environments and steps them when it is told to.

It leads a process group of its own, in a folder of its own, and ends with the pool's process,
however that ends. Idle, it sees its channel close, closes its simulators, removes the folder and
kills its group, with whatever the simulators have started. A guard, a shell in the same group,
does the same half a second later: for a worker that is stuck inside a step, or gone itself.
"""

import os
import pickle
import shutil
import signal
import sys
from typing import Any

from winkel.errors import InputError
from winkel.simulators import channel as messages
from winkel.simulators.base import SimulatorDied
from winkel.simulators.channel import Channel
from winkel.simulators.memory import shared
from winkel.simulators.stepping import Copies, as_message, told

_GUARD = 'read _; sleep 0.5; rm -rf -- "$1"; kill -KILL 0'


def main(arguments: list[str]) -> None:
    """Work until the pool is gone. `Process` gives the arguments: its folder and descriptors."""
    folder, *descriptors = arguments
    socket, memory, lifeline = (int(descriptor) for descriptor in descriptors)
    for descriptor in (socket, memory, lifeline):
        os.set_inheritable(descriptor, False)  # else an engine would keep our end of them open
    _start_guard(lifeline, folder)
    os.close(lifeline)
    work = _Work(Channel(socket), memory)
    try:
        work.go_on()
    except EOFError:
        work.close()
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)


def _start_guard(lifeline: int, folder: str) -> None:
    silent = [(os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0) for out in (1, 2)]
    os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", _GUARD, "winkel-guard", folder],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, lifeline, 0), *silent],
    )


class _Work:
    def __init__(self, channel: Channel, memory: int):
        self._channel = channel
        self._memory = memory
        self._copies: Copies

    def go_on(self) -> None:
        """Answer messages; `EOFError` when there will be none."""
        while True:
            kind, content = self._channel.receive()
            try:
                if kind == messages.STEP:
                    self._copies.step()
                elif kind == messages.RESET:
                    self._copies.reset(content)
                elif kind == messages.MAKE:
                    self._channel.send(messages.MADE, self._make(content))
                    continue
                self._channel.send(messages.DONE)
            except InputError as error:
                self._channel.send(messages.FAILED, as_message(error))
            except SimulatorDied as error:
                self._channel.send(messages.DIED, " ".join(str(error).split()).rstrip("."))

    def _make(self, content: dict[str, Any]) -> Any:
        sys.path[:] = content["path"]
        try:
            maker = pickle.loads(content["maker"])
        except Exception as error:
            raise told(error, "a worker, loading the maker of the environment,") from error
        self._copies = Copies(maker, content["rows"])
        self._copies.attach(shared(self._memory, self._copies.traits, content["num"]))
        os.close(self._memory)
        return self._copies.traits

    def close(self) -> None:
        if hasattr(self, "_copies"):
            self._copies.close()


if __name__ == "__main__":
    main(sys.argv[1:])
