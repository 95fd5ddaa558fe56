"""Files that are never half written: text, and named arrays."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from winkel.errors import InputError

Arrays = Mapping[str, np.ndarray]


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
