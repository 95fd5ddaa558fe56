"""Locks on a shared folder: who works there, and whether they still do.

A lock is a file that only one can make, and whose holder touches it again and again. Of a
holder in reach, on the same machine, it is known whether its process still exists; of any other,
only when its lock was last touched, by the clock of the file system. The lock of a holder that is
gone is taken over.
"""

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from winkel.errors import InputError

HEARTBEAT, STALE = 15.0, 120.0
"""Seconds between two touches, and without one after which a holder out of reach is gone."""


class Holder(NamedTuple):
    """Who holds a lock.

    Attributes:
        host: name of the machine.
        reach: within which process numbers mean the same: a boot of a machine, a namespace.
        pid: of the process.
        born: when that process began, by the machine's count: numbers are used again.
        since: when the lock was taken, for people.
        what: is being done, for people.
        manifest: id of the manifest that it belongs to, if to any.
        token: different for every lock ever taken.
    """

    host: str
    reach: str
    pid: int
    born: str
    since: str
    what: str
    manifest: str | None
    token: str

    def __str__(self) -> str:
        """For an error."""
        return f"{self.what} on {self.host}, process {self.pid}, since {self.since}"


@dataclass
class Lock:
    """A lock, held within a `with` block.

    Attributes:
        path: the file.
        what: is being done while it is held.
        manifest: id of the manifest that this belongs to.
        patience: seconds to wait for whoever holds it.
    """

    path: Path
    what: str
    manifest: str | None = None
    patience: float = 0.0
    _me: Holder = field(init=False)
    _stop: threading.Event = field(init=False, default_factory=threading.Event)
    _lost: bool = field(init=False, default=False)

    def __enter__(self) -> "Lock":
        self._me = Holder(
            host=socket.gethostname(),
            reach=_reach(),
            pid=os.getpid(),
            born=_born(os.getpid()) or "",
            since=datetime.now().astimezone().isoformat(" ", "seconds"),
            what=self.what,
            manifest=self.manifest,
            token=uuid.uuid4().hex,
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._take()
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}") from error
        self._stop.clear()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stop.set()
        if read(self.path) == self._me:
            self.path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise if another has taken the lock over: this process stood still for too long."""
        if self._lost:
            raise InputError(f"{self.path} was taken over by {read(self.path)}; stopped here")

    def _take(self) -> None:
        give_up = time.monotonic() + self.patience
        while not (_made(self.path, self._me) or self._taken_over()):
            holder = read(self.path)
            if time.monotonic() >= give_up and holder is not None:
                raise InputError(
                    f"{self.path} is held by {holder}; wait for it, or end it "
                    f"(if it is gone, its lock ends {STALE:.0f} s after its last sign of life)"
                )
            time.sleep(min(0.05 if holder is None else 0.5, max(self.patience, 0.05)))

    def _taken_over(self) -> bool:
        """Whether the lock was that of a holder who is gone, and is ours now.

        Only one at a time may look and act, or two who find the same old lock could both replace
        it; a guard left behind by a process that was killed in between is removed when stale.
        """
        guard = self.path.with_name(self.path.name + ".taking")
        if not _made(guard, self._me):
            if _age(guard) > STALE:
                guard.unlink(missing_ok=True)
            return False
        try:
            if is_held(self.path):
                return False
            self.path.unlink(missing_ok=True)
            return _made(self.path, self._me)
        finally:
            guard.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            if read(self.path) != self._me:
                self._lost = not self._stop.is_set()
                return
            with contextlib.suppress(OSError):
                os.utime(self.path)


def read(path: Path) -> Holder | None:
    """Who a lock's file names; None where there is none, or one just being written."""
    try:
        return Holder(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def is_held(path: Path) -> bool:
    """Whether a lock is held by somebody who, as far as can be known, is still there."""
    if not path.exists():
        return False
    holder = read(path)
    if holder is not None and (holder.host, holder.reach) == (socket.gethostname(), _reach()):
        return _born(holder.pid) == holder.born
    return _age(path) <= STALE


def _made(path: Path, holder: Holder) -> bool:
    """Make a file that was not there, all at once: a link to one that is whole."""
    handle, whole = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(holder._asdict(), file)
        os.link(whole, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        with contextlib.suppress(FileExistsError), path.open("x") as file:
            json.dump(holder._asdict(), file)
            return True
        return False
    finally:
        os.unlink(whole)
    return True


def _age(path: Path) -> float:
    """Seconds since a file was touched, by the file system's own clock; 0 where there is none."""
    with tempfile.TemporaryFile(dir=path.parent) as now:
        now.write(b".")
        now.flush()
        try:
            return os.fstat(now.fileno()).st_mtime - path.stat().st_mtime
        except FileNotFoundError:
            return 0.0


def _reach() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _born(pid: int) -> str | None:
    """When a process began, as text to compare; None if it has ended."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]
    except FileNotFoundError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""
