"""Files that are never half written: text, and named arrays."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
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


def write_atomically(path: Path, write: Callable[[IO[bytes]], None]) -> None:
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

    def write(file: IO[bytes]) -> None:
        file.write(text.encode())

    write_atomically(path, write)


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


def load_arrays(
    path: Path, names: Iterable[str] | Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Load the named arrays of an .npz file, all by default. Loading runs no code.

    A mapping also gives the number of axes of each array, which must then hold numbers.
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise InputError(f"{path} is not a readable .npz file (a single array)")
        with loaded as file:
            names = file.files if names is None else names
            missing = [name for name in names if name not in file.files]
            if missing:
                raise InputError(
                    f"{path} lacks {', '.join(missing)}; it holds "
                    f"{', '.join(file.files) or 'nothing'}"
                )
            arrays = {name: file[name] for name in names}
    except FileNotFoundError as error:
        raise InputError(f"no such file: {path}") from error
    except IsADirectoryError as error:
        raise InputError(f"need an .npz file, got the folder {path}") from error
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable .npz file ({error})") from error
    if isinstance(names, Mapping):
        for name, axes in names.items():
            array = arrays[name]
            if array.ndim != axes or not np.issubdtype(array.dtype, np.number):
                raise InputError(
                    f"need {axes} axes of numbers for {name} in {path}, got shape "
                    f"{list(array.shape)} of {array.dtype}"
                )
    return arrays
