"""Messages between the pool and a worker: a kind of one byte, and anything picklable with some.

A step is one byte each way. The other end having gone raises `EOFError`, however it went.
"""

import os
import pickle
import select
import struct
from typing import Any

# From the pool.
MAKE, RESET, STEP = b"m", b"r", b"s"
# From a worker.
MADE, DONE, FAILED, DIED = b"M", b"d", b"f", b"x"

_WITH_CONTENT = {MAKE, RESET, MADE, FAILED, DIED}
_LENGTH = struct.Struct("<I")


class Channel:
    """One end of a socket, by its descriptor."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        self._readable = select.poll()
        self._readable.register(descriptor, select.POLLIN)

    def send(self, kind: bytes, content: Any = None) -> None:
        """Send a message."""
        message = kind
        if kind in _WITH_CONTENT:
            body = pickle.dumps(content)
            message += _LENGTH.pack(len(body)) + body
        try:
            while message:
                message = message[os.write(self._descriptor, message) :]
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError from None

    def receive(self) -> tuple[bytes, Any]:
        """The next message, however long it takes."""
        kind = self._read(1)
        if kind not in _WITH_CONTENT:
            return kind, None
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return kind, pickle.loads(self._read(length))

    def arrives_within(self, seconds: float) -> bool:
        """Whether there is something to receive (also the end) within this time."""
        return bool(self._readable.poll(max(0.0, seconds) * 1000))

    def close(self) -> None:
        """Let the other end know that this one goes; once is enough."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            try:
                part = os.read(self._descriptor, length)
            except ConnectionResetError:
                part = b""
            if not part:
                raise EOFError
            parts.append(part)
            length -= len(part)
        return b"".join(parts)
