"""One writer for each run folder.

Every process that writes runs holds one lock file in `<root>/.writers`, beside a file that says who
it is and which runs it writes. The operating system frees the lock when the process ends, also when
it is killed. (A lock for each run would need a file descriptor for each.)
"""

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from winkel.errors import InputError
from winkel.files import ensure_folder, write_text

WRITERS = ".writers"
"""Folder beside the runs."""
MUTEX_SECONDS = 30.0
"""Longest wait for others that are just taking runs."""


@contextlib.contextmanager
def hold_runs(root: Path, runs: Iterable[Path], task: str, wait: float = 1.0) -> Iterator[None]:
    """Hold run folders under `root` for writing.

    Raise, naming the other process, if one of them is held for `wait` seconds by another.
    """
    folder = root / WRITERS
    for made in (root, folder):
        ensure_folder(made)
    names = sorted(str(run.relative_to(root)) for run in runs)
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    entry = {
        "writer": f"{task} on {socket.gethostname()}, process {os.getpid()}, since {since}",
        "runs": names,
    }
    path = folder / f"{uuid.uuid4().hex}.json"
    lock = FileLock(path.with_suffix(".lock"))
    deadline = time.monotonic() + wait
    try:
        while True:
            with FileLock(folder / "mutex").acquire(timeout=MUTEX_SECONDS):
                if not (held := _find_writer(folder, set(names))):
                    lock.acquire()
                    write_text(path, json.dumps(entry))
                    break
            if time.monotonic() >= deadline:
                raise InputError(f"{root}/{held}; wait for it, or end it")
            time.sleep(0.05)
    except Timeout as error:
        raise InputError(f"{folder / 'mutex'} is held by another process") from error
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        _remove(path)
        lock.release()


def _find_writer(folder: Path, runs: set[str]) -> str:
    """Say which of some runs another process writes; remove what dead processes have left."""
    for lock in folder.glob("*.lock"):
        path = lock.with_suffix(".json")
        try:
            with FileLock(lock).acquire(timeout=0):
                _remove(path)
        except Timeout:
            if path.is_file():
                entry = json.loads(path.read_bytes())
                if shared := runs.intersection(entry["runs"]):
                    return f"{min(shared)} is being written by {entry['writer']}"
    return ""


def _remove(path: Path) -> None:
    for left in (path, path.with_suffix(".lock")):
        left.unlink(missing_ok=True)
