import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from winkel.errors import InputError
from winkel.runs import checkpoint
from winkel.runs.checkpoint import (
    FORMAT,
    has_checkpoint,
    load_checkpoint,
    pack,
    save_checkpoint,
    unpack,
)

ARRAYS = {"a": np.arange(5.0), "b[0].w": np.ones((2, 3), jnp.bfloat16), "n": np.array(3)}
META = {"env_steps": 7, "git": "é", "nested": {"x": [1, None, 0.5]}}


class Pair(NamedTuple):
    left: Any
    right: Any


dtypes = st.sampled_from(["bool", "int8", "uint32", "int64", "float32", "float64", "complex64"])
shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
arrays = st.builds(hnp.arrays, dtypes, shapes).flatmap(lambda strategy: strategy)
leaves = st.one_of(
    arrays,
    arrays.map(np.asfortranarray),
    hnp.arrays("uint16", shapes).map(lambda bits: bits.view(jnp.bfloat16)),
    st.integers(0, 9).map(jnp.int32),
    st.none(),
    st.builds(jax.random.key, st.integers(0, 9), impl=st.sampled_from(["threefry2x32", "rbg"])),
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=6,
)


def same(left, right):
    left, right = np.asarray(left), np.asarray(right)
    return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


def is_key(leaf):
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain(leaf):
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def shape_only(leaf):
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def run(code, folder):
    """Run code in another process, where `save(arrays, meta)` saves to the folder."""
    start = (
        "import os, pathlib, resource, signal, sys, numpy as np\n"
        "from winkel.runs.checkpoint import save_checkpoint\n"
        "save = lambda *what: save_checkpoint(pathlib.Path(sys.argv[1]), *what)\n"
    )
    command = [sys.executable, "-c", start + code, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@given(trees)
@settings(max_examples=200)
def test_any_tree_survives_the_disk(tree):
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), pack(tree), {})
        loaded = load_checkpoint(Path(folder))[0]
        for like in (tree, jax.tree.map(shape_only, tree)):
            again = unpack(loaded, like)
            assert jax.tree.structure(again) == jax.tree.structure(tree)
            for new, old in zip(jax.tree.leaves(again), jax.tree.leaves(tree), strict=True):
                assert same(plain(new), plain(old))
                assert new.dtype == old.dtype if is_key(old) else isinstance(new, np.ndarray)


def make_state(key):
    params = {"value": [eqx.nn.Linear(2, 3, key=key, dtype=jnp.bfloat16)], "bias": jnp.zeros(())}
    opt_state = optax.adamw(1e-3).init(params)
    return {"learner": Pair(params, opt_state), "keys": jax.random.split(key, 4)}


def test_the_state_of_a_learner_goes_on_where_it_stopped(tmp_path):
    state = make_state(jax.random.key(3))
    save_checkpoint(tmp_path, pack(state), {})
    like = jax.eval_shape(make_state, jax.random.key(0))
    again = unpack(load_checkpoint(tmp_path)[0], like)
    draw = jax.vmap(jax.random.normal)
    np.testing.assert_array_equal(draw(again["keys"]), draw(state["keys"]))
    assert isinstance(again["learner"].left["value"][0], eqx.nn.Linear)
    assert again["learner"].left["value"][0].weight.dtype == jnp.bfloat16


def test_names_are_paths():
    assert list(pack(make_state(jax.random.key(0))))[:4] == [
        "keys", "learner.left.bias", "learner.left.value[0].weight", "learner.left.value[0].bias",
    ]  # fmt: skip
    one = np.ones(())
    tricky = {"a.b": one, "a": {"b": one, "": one}, "x['y']": one, "é/\0": one}
    assert set(pack(tricky)) == {"['a.b']", "['é/\\x00']", "[\"x['y']\"]", "a['']", "a.b"}


def test_what_was_packed_stays_when_the_state_is_given_away():
    state = jnp.arange(1000.0)
    packed = pack([state])
    jax.jit(lambda x: x * 0, donate_argnums=0)(state).block_until_ready()
    np.testing.assert_array_equal(packed["[0]"], np.arange(1000.0))


ONE, TWO = np.zeros(()), np.zeros(2, "i4")


@pytest.mark.parametrize(
    ("like", "shown"),
    [
        ({"a": ONE}, r"need no b in the state, got shape \[2\] of int32"),
        ({"a": ONE, "b": np.zeros(3, "i4")}, r"need b, shape \[3\] of int32, .* got shape \[2\]"),
        ({"a": ONE, "b": TWO, "c": {"d": TWO}}, r"need c\.d, shape \[2\] of int32, .* got nothing"),
        ({"a": ONE, "b": np.zeros(2)}, r"need b, .* of float64, .* got shape \[2\] of int32"),
        ({"a": ONE, "b": jax.random.key(0)}, r"need b, .* of uint32, .* got .* of int32"),
    ],
)
def test_a_state_of_another_structure_is_refused(like, shown):
    with pytest.raises(InputError, match=shown):
        unpack(pack({"a": ONE, "b": TWO}), like)


def test_the_newest_are_kept_in_strictly_increasing_order(tmp_path):
    folder = tmp_path / "a" / "checkpoint"
    assert not has_checkpoint(folder)
    for step in range(12):
        save_checkpoint(folder, ARRAYS, {"step": step})
        assert load_checkpoint(folder)[1:] == ({"step": step, "format": FORMAT}, {})
    assert names(folder) == [f"0000000000{number}.ckpt" for number in (11, 12)]
    assert has_checkpoint(folder)


def test_equal_content_makes_equal_files_which_numpy_can_read(tmp_path):
    first = save_checkpoint(tmp_path / "1", ARRAYS, META)
    turned = {name: np.asfortranarray(ARRAYS[name]) for name in reversed(ARRAYS)}
    turned["n"] = ARRAYS["n"]
    second = save_checkpoint(tmp_path / "2", turned, dict(reversed(META.items())))
    assert first.read_bytes() == second.read_bytes()
    assert load_checkpoint(tmp_path / "1")[1] == {**META, "format": FORMAT}
    with np.load(first, allow_pickle=False) as file:
        np.testing.assert_array_equal(file["a"], ARRAYS["a"])
        np.testing.assert_array_equal(file["b[0].w"], ARRAYS["b[0].w"].view(np.uint16))
    with zipfile.ZipFile(first) as archive:
        made = {(info.compress_type, info.date_time) for info in archive.infolist()}
    assert made == {(zipfile.ZIP_STORED, (1980, 1, 1, 0, 0, 0))}


@given(st.data())
@settings(max_examples=300)
def test_no_damage_goes_unnoticed(data):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_checkpoint(folder, {"old": np.zeros(1)}, {})
        path = save_checkpoint(folder, ARRAYS, META)
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content = content[:place]
        else:
            content[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        loaded, meta, damaged = load_checkpoint(folder)
        if not damaged:
            assert meta == {**META, "format": FORMAT}
            assert list(loaded) == list(ARRAYS)
            assert all(same(loaded[name], ARRAYS[name]) for name in ARRAYS)
        else:
            assert list(loaded) == ["old"]
            assert list(damaged) == [path]
            assert re.fullmatch(r"000000000002\.ckpt cannot be read: .+", damaged[path])


def rewrite(path, **members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)


@pytest.mark.parametrize("meta", ["[1]", "{}", "{", json.dumps({"format": FORMAT})])
def test_files_that_are_no_checkpoints_are_skipped_and_named(tmp_path, meta):
    first, second = (save_checkpoint(tmp_path, ARRAYS, {}) for _ in range(2))
    rewrite(second, meta_json=meta)
    assert list(load_checkpoint(tmp_path)[2]) == [second]
    first.write_bytes(b"")
    with pytest.raises(InputError, match=r"got 0+2\.ckpt cannot .*; 0+1\.ckpt cannot") as error:
        load_checkpoint(tmp_path)
    assert "\n" not in str(error.value)
    assert has_checkpoint(tmp_path)


def test_objects_are_not_loaded(tmp_path):
    path = save_checkpoint(tmp_path, ARRAYS, {})
    np.save(tmp_path / "o.npy", np.array([{"code": 1}]), allow_pickle=True)
    content = (tmp_path / "o.npy").read_bytes()
    rewrite(
        path, meta_json=json.dumps({"format": FORMAT}), dtypes_json='{"o": "object"}', o_npy=content
    )
    with pytest.raises(InputError, match="Object arrays cannot be loaded"):
        load_checkpoint(tmp_path)


def test_another_format_is_not_passed_over(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, ARRAYS, {})
    monkeypatch.setattr(checkpoint, "FORMAT", FORMAT - 1)
    path = save_checkpoint(tmp_path, ARRAYS, {})
    monkeypatch.undo()
    with pytest.raises(InputError, match=f"{path} was made by another version of winkel") as error:
        load_checkpoint(tmp_path)
    assert "\n" not in str(error.value)


def test_where_there_is_no_checkpoint(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        assert not has_checkpoint(folder)
        with pytest.raises(InputError, match=f"need a readable checkpoint in {folder}, got none"):
            load_checkpoint(folder)
    with pytest.raises(InputError, match="need a folder"):
        save_checkpoint(tmp_path / "file", ARRAYS, {})

    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(InputError, match=f"cannot read {tmp_path}: Permission denied"):
        has_checkpoint(tmp_path)


def test_a_folder_in_a_files_place_is_named(tmp_path):
    (tmp_path / "000000000001.ckpt").mkdir()
    save_checkpoint(tmp_path, ARRAYS, {})
    with pytest.raises(InputError, match=r"cannot delete .*0001\.ckpt"):
        save_checkpoint(tmp_path, ARRAYS, {})
    (tmp_path / "000000000004.ckpt").mkdir()
    (text,) = load_checkpoint(tmp_path)[2].values()
    assert re.match(r"000000000004\.ckpt cannot be read: .*Is a directory", text)


def test_a_full_disk_leaves_the_checkpoints_and_nothing_else(tmp_path):
    for _ in range(2):
        save_checkpoint(tmp_path, ARRAYS, {})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (10**5, 10**5))\n"
    done = run(limit + "save({'x': np.ones(10**6)}, {})", tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(r"InputError: cannot write .*000000000003\.ckpt: File too large$", last)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_killed_writer_leaves_the_checkpoints_and_the_next_one_tidies_up(tmp_path):
    save_checkpoint(tmp_path, ARRAYS, {})
    kill = "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    assert run(kill + "save({'x': np.ones(10)}, {})", tmp_path).returncode == -signal.SIGKILL
    (tmp_path / ".000000000009.ckpt.half").write_bytes(b"PK")
    (tmp_path / ".mine").write_text("mine")
    assert len(os.listdir(tmp_path)) == 4
    assert load_checkpoint(tmp_path)[2] == {}
    save_checkpoint(tmp_path, ARRAYS, {})
    assert names(tmp_path) == [".mine", "000000000001.ckpt", "000000000002.ckpt"]
