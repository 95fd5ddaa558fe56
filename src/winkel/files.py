"""Files that are never half written, and folders with one writer each.

Every process that writes runs holds one lock file in `<root>/.writers`, beside a file that says who
it is and which runs it writes. The operating system frees the lock when the process ends, also when
it is killed. (A lock for each run would need a file descriptor for each.)
"""

import contextlib
import json
import os
import socket
import tempfile
import time
import tomllib
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import FileLock, Timeout

from winkel.errors import InputError

Arrays = Mapping[str, np.ndarray]

WRITERS = ".writers"
"""Folder beside the runs."""
MUTEX_SECONDS = 30.0
"""Longest wait for others that are just taking runs."""


def ensure_folder(path: Path) -> None:
    """Make a folder and check that files can be made in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except FileExistsError as error:
        raise InputError(f"need a folder to write to, got the file {path}") from error
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror}") from error


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file under a temporary name beside it, then rename it."""
    ensure_folder(path.parent)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)  # Ctrl-C may come just after the rename
        if isinstance(error, OSError):
            raise InputError(f"cannot write {path}: {error.strerror}") from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    write_atomically(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> Any:
    """Read a JSON file. Deep nesting, which exhausts Python's stack, is an error like any other."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not TOML ({error})") from error


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Save named arrays as one .npz file."""
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))  # type: ignore[arg-type]


def load_arrays(path: Path, axes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """Load the arrays of an .npz file. Loading runs no code.

    Those named in `axes` must be there and hold numbers with so many axes.
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ValueError("a single array")
        with loaded as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise InputError(f"no such file: {path}") from error
    except IsADirectoryError as error:
        raise InputError(f"need an .npz file, got the folder {path}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable .npz file ({error})") from error
    for name, count in (axes or {}).items():
        array = arrays.get(name)
        if array is None or array.ndim != count or not np.issubdtype(array.dtype, np.number):
            got = "none" if array is None else f"shape {list(array.shape)} of {array.dtype}"
            raise InputError(f"need {count} axes of numbers for {name} in {path}, got {got}")
    return arrays


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
            with contextlib.suppress(FileNotFoundError):  # its process has just ended
                entry = json.loads(path.read_bytes())
                if shared := runs.intersection(entry["runs"]):
                    return f"{min(shared)} is being written by {entry['writer']}"
    return ""


def _remove(path: Path) -> None:
    for left in (path, path.with_suffix(".lock")):
        left.unlink(missing_ok=True)
