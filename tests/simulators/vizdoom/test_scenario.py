"""Variants of the scenario differ in the start alone; other files are refused."""

import hashlib
import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest

from winkel.errors import InputError
from winkel.simulators import vizdoom as scenario
from winkel.simulators.vizdoom import read_floor_plan, read_scenario

# The whole script of both, as the originals have it.
SCRIPTS = {
    "sparse": (
        "a7 0a 19 00 a7 00 1c 00 c4 1c 00 c5 b0 00 00 f0 2b 36 a7 00 03 00 00 00 00 03 8f 02 00 00 "
        "39 f0 24 a7 00 b5 00 8e 01 01 01 01 01 01"
    ),
    "very-sparse": (
        "a7 0f 19 00 a7 00 1c 00 c4 1c 00 c5 b0 00 00 f0 2b 36 a7 00 03 70 7d 00 00 03 8f 82 00 00 "
        "39 f0 24 a7 00 b5 00 8e 01 01 01 01 01 01"
    ),
}


@pytest.mark.parametrize("variant", SCRIPTS)
def test_a_variant_is_the_scenario_with_another_script(variant):
    original, changed = read_scenario("dense"), read_scenario(variant)
    assert hashlib.sha256(original).hexdigest() == scenario.SHA256
    behavior = original.index(b"ACS\0")  # where the compiled scripts begin
    script = bytes.fromhex(SCRIPTS[variant])
    assert changed == original[: behavior + 0x14] + script + original[behavior + 0x40 :]


def package_with(tmp_path, monkeypatch, content):
    (tmp_path / "scenarios").mkdir()
    if content is not None:
        (tmp_path / "scenarios" / "my_way_home.wad").write_bytes(content)
    package = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(scenario.importlib.util, "find_spec", lambda name: package)


@pytest.mark.parametrize("variant", scenario.STARTS)
def test_another_file_is_refused_with_both_checksums(tmp_path, monkeypatch, variant):
    content = read_scenario("dense")[:-1] + b"\x01"
    package_with(tmp_path, monkeypatch, content)
    with pytest.raises(InputError) as caught:
        read_scenario(variant)
    message = str(caught.value)
    assert scenario.SHA256 in message
    assert hashlib.sha256(content).hexdigest() in message
    assert "pip install vizdoom==1.3.2" in message
    assert "\n" not in message


def test_missing_files_and_packages_are_named(tmp_path, monkeypatch):
    package_with(tmp_path, monkeypatch, None)
    with pytest.raises(InputError, match=r"my_way_home.wad, which is missing"):
        read_scenario("dense")
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install winkel\[doom\]"):
        read_scenario("dense")


def test_unknown_variants_are_refused():
    with pytest.raises(InputError, match="dense, sparse, very-sparse, got 'very_sparse'"):
        read_scenario("very_sparse")


def test_the_floor_plan_has_closed_walls_starts_and_the_goal():
    dense = read_floor_plan("dense")
    assert dense["goal"].tolist() == [1040.0, -352.0]
    assert dense["starts"].shape == (17, 2)
    assert read_floor_plan("sparse")["starts"].tolist() == [[240.0, -176.0]]
    assert read_floor_plan("very-sparse")["starts"].tolist() == [[543.986, -672.089]]
    corners = dense["walls"].reshape(-1, 2)
    assert corners.min(axis=0).tolist() == [160.0, -704.0]
    assert corners.max(axis=0).tolist() == [1120.0, 128.0]
    _, degrees = np.unique(corners, axis=0, return_counts=True)
    assert (degrees == 2).all()
