import gzip
import hashlib
import io
import struct
import urllib.error

import numpy as np
import pytest

from winkel.envs.bsuite import mnist
from winkel.envs.bsuite.mnist import (
    CHECKSUMS,
    IMAGES,
    LABELS,
    MIRROR,
    fetch_mnist,
    load_mnist,
    mnist_directory,
)
from winkel.errors import InputError

PIXELS = (np.arange(3 * 28 * 28) % 251).astype(np.uint8).reshape(3, 28, 28)
DIGITS = np.array([5, 0, 9], np.uint8)
REAL = mnist_directory()


def images_file(magic=2051, count=3, rows=28, columns=28, content=PIXELS.data):
    return struct.pack(">4I", magic, count, rows, columns) + bytes(content)


def labels_file(magic=2049, count=3, content=DIGITS.data):
    return struct.pack(">2I", magic, count) + bytes(content)


FILES = {IMAGES: images_file(), LABELS: labels_file()}


def write(directory, files=FILES):
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def message(error):
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def small_is_official(monkeypatch, tmp_path):
    monkeypatch.setenv("WINKEL_MNIST", str(tmp_path))
    for name, content in FILES.items():
        monkeypatch.setitem(CHECKSUMS, name, hashlib.sha256(content).hexdigest())


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No folder is named, and the home has no cache."""
    monkeypatch.delenv("WINKEL_MNIST", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_is_written_is_read_whatever_its_name_says(
    small_is_official, tmp_path, zipped, suffix
):
    pack = gzip.compress if zipped else bytes
    write(tmp_path, {f"{name}{suffix}": pack(content) for name, content in FILES.items()})
    images, labels = load_mnist()
    np.testing.assert_array_equal(images, PIXELS)
    np.testing.assert_array_equal(labels, DIGITS)
    assert images.dtype == labels.dtype == np.uint8


def test_a_plain_file_goes_before_a_compressed_one(small_is_official, tmp_path):
    write(tmp_path, {**FILES, f"{LABELS}.gz": gzip.compress(b"other")})
    np.testing.assert_array_equal(load_mnist()[1], DIGITS)


def test_a_folder_is_read_once_and_its_arrays_cannot_be_changed(small_is_official, tmp_path):
    write(tmp_path)
    data = load_mnist()
    write(tmp_path, {LABELS: b"changed"})
    assert load_mnist() is data
    for array in data:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)


def test_a_failure_is_not_remembered(small_is_official, tmp_path):
    with pytest.raises(InputError):
        load_mnist()
    write(tmp_path)
    assert len(load_mnist()[1]) == 3


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"", "not the official file; `winkel data mnist`"),
        (images_file()[:-1], "not the official file"),
        (gzip.compress(images_file(), mtime=0)[:-9], "Compressed file ended before"),
        (b"\x1f\x8b and nothing like it", "Unknown compression method"),
        (gzip.compress(b"", mtime=0)[:10] + b"\xff" * 20, "Error -3 while decompressing"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(small_is_official, tmp_path, content, shown):
    write(tmp_path, {**FILES, IMAGES: content})
    with pytest.raises(InputError, match=shown) as error:
        load_mnist()
    assert str(tmp_path / IMAGES) in message(error)


def test_a_folder_in_the_files_place_is_named(small_is_official, tmp_path):
    (tmp_path / IMAGES).mkdir()
    with pytest.raises(InputError, match=f"cannot read .*{IMAGES}"):
        load_mnist()


@pytest.mark.parametrize("missing", [IMAGES, LABELS])
def test_a_missing_file_says_where_and_what_to_do(small_is_official, tmp_path, missing):
    write(tmp_path, {name: content for name, content in FILES.items() if name != missing})
    with pytest.raises(InputError, match=f"no {missing}") as error:
        load_mnist()
    for part in (str(tmp_path), "winkel data mnist", "WINKEL_MNIST"):
        assert part in message(error)


def test_the_folder_of_the_variable_goes_before_the_cache(nowhere, monkeypatch, tmp_path):
    assert mnist_directory() == tmp_path / "home/.cache/winkel/mnist"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert mnist_directory() == tmp_path / "xdg/winkel/mnist"
    monkeypatch.setenv("WINKEL_MNIST", "~/mine")
    assert mnist_directory() == tmp_path / "home/mine"
    monkeypatch.setenv("WINKEL_MNIST", "")
    assert mnist_directory() == tmp_path / "xdg/winkel/mnist"


def test_a_folder_that_is_named_but_empty_is_not_passed_over(
    small_is_official, nowhere, monkeypatch, tmp_path
):
    write(tmp_path / "home/.cache/winkel/mnist")
    assert len(load_mnist()[0]) == 3
    monkeypatch.setenv("WINKEL_MNIST", str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match="elsewhere"):
        load_mnist()


def test_relative_folders_are_not_confused(small_is_official, monkeypatch, tmp_path):
    write(tmp_path / "a/mnist")
    write(tmp_path / "b/mnist", {**FILES, LABELS: b"other"})
    monkeypatch.setenv("WINKEL_MNIST", "mnist")
    monkeypatch.chdir(tmp_path / "a")
    load_mnist()
    monkeypatch.chdir(tmp_path / "b")
    with pytest.raises(InputError, match="not the official file"):
        load_mnist()


class Mirror:
    """Stands for the network: what it holds, by name, and what was asked for."""

    def __init__(self, files=None):
        self.files = files
        self.asked = []

    def __call__(self, url, timeout):
        assert timeout == 20
        assert url.startswith(MIRROR)
        assert url.endswith(".gz")
        self.asked.append(url.removeprefix(MIRROR).removesuffix(".gz"))
        if self.files is None:
            raise urllib.error.URLError("no route\nto host")
        if self.asked[-1] not in self.files:
            raise urllib.error.HTTPError(url, 404, "Not Found", None, None)
        return io.BytesIO(self.files[self.asked[-1]])


def use_mirror(monkeypatch, files=None):
    mirror = Mirror(files)
    monkeypatch.setattr(mnist.urllib.request, "urlopen", mirror)
    return mirror


def zipped(files):
    return {name: gzip.compress(content, mtime=0) for name, content in files.items()}


def test_missing_files_are_fetched_and_each_step_is_told(small_is_official, monkeypatch, tmp_path):
    use_mirror(monkeypatch, zipped(FILES))
    steps = []
    fetch_mnist(tmp_path / "new", steps.append)
    assert contents(tmp_path / "new") == FILES
    assert steps == [f"downloading {MIRROR}{name}.gz" for name in FILES]


def test_correct_files_are_kept_and_only_the_others_are_fetched(
    small_is_official, monkeypatch, tmp_path
):
    mirror = use_mirror(monkeypatch, zipped(FILES))
    write(tmp_path, {IMAGES: FILES[IMAGES], LABELS: b"wrong"})
    before = (tmp_path / IMAGES).stat()
    fetch_mnist(tmp_path)
    assert len(mirror.asked) == 1
    assert (tmp_path / IMAGES).stat().st_ino == before.st_ino
    assert contents(tmp_path) == FILES
    fetch_mnist(tmp_path)
    assert len(mirror.asked) == 1


def test_compressed_files_in_place_are_enough(small_is_official, monkeypatch, tmp_path):
    mirror = use_mirror(monkeypatch)
    write(tmp_path, {f"{name}.gz": content for name, content in zipped(FILES).items()})
    fetch_mnist(tmp_path)
    assert mirror.asked == []


@pytest.mark.parametrize(
    ("mirrored", "shown"),
    [
        (None, "no route to host"),
        ({}, "HTTP Error 404"),
        (zipped({**FILES, LABELS: b"corrupted"}), "wrong checksum"),
        (FILES, "Not a gzipped file"),
        ({**zipped(FILES), LABELS: zipped(FILES)[LABELS][:-9]}, "ended before"),
    ],
)
def test_a_failure_is_named_and_the_old_file_stays(
    small_is_official, monkeypatch, tmp_path, mirrored, shown
):
    old = {**FILES, LABELS: b"not the official file, but mine"}
    write(tmp_path, old)
    use_mirror(monkeypatch, mirrored)
    with pytest.raises(InputError, match=f"{LABELS}.gz .*{shown}.*by hand") as error:
        fetch_mnist(tmp_path)
    assert all(part in message(error) for part in (str(tmp_path), *FILES))
    assert contents(tmp_path) == old


def test_a_place_that_cannot_be_written_is_named(small_is_official, monkeypatch, tmp_path):
    use_mirror(monkeypatch, zipped(FILES))
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(InputError, match=r"need a folder .*taken"):
        fetch_mnist(tmp_path / "taken")


@pytest.mark.skipif(
    not all(list(REAL.glob(f"{name}*")) for name in CHECKSUMS),
    reason="needs MNIST: `winkel data mnist`",
)
def test_the_real_files():
    images, labels = load_mnist()
    assert images.shape == (60_000, 28, 28)
    assert labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert np.bincount(labels).min() == 5421
    signed = images.view(np.int8) / 255
    assert signed.min() == pytest.approx(-0.502, abs=1e-3)
    assert signed.max() == pytest.approx(0.498, abs=1e-3)
