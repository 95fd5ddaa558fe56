"""MNIST from IDX files on disk: the training set, checked byte for byte."""

import gzip
import hashlib
import math
import os
import zlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from winkel.errors import InputError

IMAGES = "train-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte"

# SHA-256 of the uncompressed content: the .gz files in circulation differ in their headers.
CHECKSUMS = {
    IMAGES: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    LABELS: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


class Mnist(NamedTuple):
    """The training set, and only it. The arrays are read-only: every caller shares them."""

    images: UInt8[np.ndarray, "N 28 28"]
    labels: UInt8[np.ndarray, " N"]


def mnist_directory(directory: Path | None = None) -> Path:
    """The folder given, else the one WINKEL_MNIST names, else the cache folder.

    The first that is named is the only one looked at: a mistyped folder is an error, not a
    reason to use another.
    """
    if directory is None:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        directory = Path(os.environ.get("WINKEL_MNIST") or Path(cache, "winkel", "mnist"))
    return directory.expanduser().absolute()


def load_mnist(directory: Path | None = None, *, official: bool = True) -> Mnist:
    """Load the training set from `mnist_directory(directory)`.

    A folder is read once per process: files that change later are not seen. With
    `official=False`, other data of the same format will do.
    """
    return _load(mnist_directory(directory), official)


def check_official(directory: Path) -> None:
    """Raise an `InputError` unless all four files, test set included, are the official ones."""
    for name in CHECKSUMS:
        path, content = read_idx(directory, name)
        if not is_official(name, content):
            raise InputError(f"{_difference(path, name, content)}; `winkel data mnist` fetches it")


def is_official(name: str, content: bytes) -> bool:
    """Whether this is the official file's uncompressed content."""
    return hashlib.sha256(content).hexdigest() == CHECKSUMS[name]


@lru_cache(maxsize=2)
def _load(directory: Path, official: bool) -> Mnist:
    image_path, image_content = read_idx(directory, IMAGES)
    label_path, label_content = read_idx(directory, LABELS)
    images = _parse(image_path, image_content, magic=2051, item=(28, 28))
    labels = _parse(label_path, label_content, magic=2049, item=())
    if len(images) != len(labels):
        raise InputError(
            f"need one label per image, got {len(images)} images in {image_path} "
            f"and {len(labels)} labels in {label_path}"
        )
    if labels.max() > 9:
        raise InputError(f"{label_path} holds the label {labels.max()}, need labels from 0 to 9")
    for path, name, content in (
        (image_path, IMAGES, image_content),
        (label_path, LABELS, label_content),
    ):
        if official and not is_official(name, content):
            raise InputError(
                f"{_difference(path, name, content)}; "
                "official=False accepts other data of the same format"
            )
    return Mnist(images, labels)


def read_idx(directory: Path, name: str) -> tuple[Path, bytes]:
    """Which file it is, plain before .gz, and its uncompressed content.

    The content decides whether it is compressed, not the name, because downloads get it wrong.
    No IDX file starts like a gzip file.
    """
    for path in (directory / name, directory / f"{name}.gz"):
        try:
            content = path.read_bytes()
            return path, gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{path} is truncated or not a gzip file ({error})") from error
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
    raise InputError(
        f"no {name} (plain or .gz) in {directory}; `winkel data mnist` fetches MNIST, "
        "--mnist-dir or WINKEL_MNIST names another folder"
    )


def _parse(path: Path, content: bytes, magic: int, item: tuple[int, ...]) -> np.ndarray:
    """An array over the bytes of an IDX file, which NumPy never lets become writable."""
    header = 4 * (2 + len(item))
    fields = [int.from_bytes(content[i : i + 4], "big") for i in range(0, header, 4)]
    if len(content) < header:
        raise InputError(f"{path} is truncated: {len(content)} bytes, need a header of {header}")
    if fields[0] != magic:
        raise InputError(
            f"{path} is not the IDX file its name says: it starts with {fields[0]}, need {magic}"
        )
    shape = tuple(fields[1:])
    if shape[1:] != item:
        raise InputError(f"{path} holds images of {shape[1]}x{shape[2]}, need 28x28")
    if shape[0] == 0:
        raise InputError(f"{path} is empty, need at least one item")
    need = header + math.prod(shape)
    if len(content) != need:
        raise InputError(
            f"{path} is {'truncated' if len(content) < need else 'too long'}: "
            f"{len(content)} bytes, need {need} for the {shape[0]} items its header promises"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _difference(path: Path, name: str, content: bytes) -> str:
    found = hashlib.sha256(content).hexdigest()
    return (
        f"{path} is not the official MNIST file: its content has the SHA-256 {found[:12]}…, "
        f"need {CHECKSUMS[name][:12]}…"
    )
