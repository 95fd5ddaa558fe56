import io
import os

import numpy as np
import pytest

from winkel.errors import InputError
from winkel.files import ensure_folder, load_arrays, save_arrays, write_atomically


def _npy():
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue()


def _corrupt_npz():
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=np.arange(1000))
    content = bytearray(buffer.getvalue())
    content[60:80] = b"\xff" * 20
    return bytes(content)


NPY, CORRUPT = _npy(), _corrupt_npz()


def test_arrays_survive_the_disk(tmp_path):
    path = tmp_path / "deep" / "er" / "results.npz"
    save_arrays(path, {"a": np.arange(3), "b": np.array([[1.5]])})
    loaded = load_arrays(path)
    np.testing.assert_array_equal(loaded["a"], [0, 1, 2])
    np.testing.assert_array_equal(loaded["b"], [[1.5]])


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "results.npz"
    save_arrays(path, {"a": np.arange(3)})

    def half(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, half)
    assert [p.name for p in tmp_path.iterdir()] == ["results.npz"]
    np.testing.assert_array_equal(load_arrays(path)["a"], [0, 1, 2])


def test_ctrl_c_just_after_a_write_is_ctrl_c_and_no_other_error(tmp_path, monkeypatch):
    replace = os.replace

    def interrupted(*names):
        replace(*names)
        raise KeyboardInterrupt

    monkeypatch.setattr("winkel.files.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_arrays(tmp_path / "results.npz", {"a": np.arange(3)})
    assert [p.name for p in tmp_path.iterdir()] == ["results.npz"]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (None, "no such file"),
        (b"", "not a readable .npz file"),
        (b"hello, world", "not a readable .npz file"),
        (b"PK\x03\x04 truncated", "not a readable .npz file"),
        (NPY, "a single array"),
        (CORRUPT, "not a readable .npz file"),
    ],
    ids=["missing", "empty", "text", "truncated", "npy", "corrupt"],
)
def test_unreadable_files_are_named(tmp_path, content, shown):
    path = tmp_path / "results.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=shown) as error:
        load_arrays(path)
    assert str(path) in str(error.value)


def test_folders_and_missing_arrays_are_named(tmp_path):
    with pytest.raises(InputError, match="folder"):
        load_arrays(tmp_path)
    save_arrays(tmp_path / "r.npz", {"a": np.arange(3), "b": np.arange(2)})
    with pytest.raises(InputError, match=r"1 axes of numbers for c .* got none"):
        load_arrays(tmp_path / "r.npz", {"a": 1, "c": 1})


def test_arrays_of_the_wrong_shape_or_kind_are_named(tmp_path):
    save_arrays(tmp_path / "r.npz", {"a": np.arange(3), "b": np.array(["x"])})
    with pytest.raises(InputError, match=r"2 axes of numbers for a .* got shape \[3\]"):
        load_arrays(tmp_path / "r.npz", {"a": 2})
    with pytest.raises(InputError, match="1 axes of numbers for b"):
        load_arrays(tmp_path / "r.npz", {"b": 1})


def test_a_folder_in_the_files_place_is_named(tmp_path):
    (tmp_path / "r.npz").mkdir()
    with pytest.raises(InputError, match=r"r\.npz"):
        save_arrays(tmp_path / "r.npz", {"a": np.arange(3)})
    assert [p.name for p in tmp_path.iterdir()] == ["r.npz"]


def test_pickled_objects_are_not_loaded(tmp_path):
    path = tmp_path / "r.npz"
    np.savez(path, a=np.array([{"code": 1}], dtype=object))
    with pytest.raises(InputError, match="not a readable"):
        load_arrays(path)


def test_a_file_in_the_folders_place_is_named(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(InputError, match="taken"):
        ensure_folder(tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"
