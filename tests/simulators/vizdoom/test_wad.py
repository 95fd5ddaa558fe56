"""WADs: written and read they are the same; variants differ in the start alone, or are refused."""

import hashlib
import importlib.util
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from winkel.errors import InputError
from winkel.simulators.vizdoom import level, variants, wad

NAMES = st.text("ABCXYZ0189_", min_size=1, max_size=8)
LUMPS = st.lists(st.builds(wad.Lump, name=NAMES, data=st.binary(max_size=40)), max_size=6)

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


@given(st.sampled_from(["IWAD", "PWAD"]), LUMPS)
def test_what_is_written_is_read(kind, lumps):
    assert wad.parse(wad.build(kind, lumps)) == wad.Wad(kind=kind, lumps=tuple(lumps))


def test_the_scenario_is_read_and_written_byte_by_byte():
    content = variants.scenario("dense")
    assert hashlib.sha256(content).hexdigest() == variants.SHA256
    read = wad.parse(content)
    assert [lump.name for lump in read.lumps] == [
        "MAP01", "TEXTMAP", "BEHAVIOR", "DIALOGUE", "ZNODES", "SCRIPTS", "ENDMAP",
    ]  # fmt: skip
    assert wad.build(read.kind, read.lumps) == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with IWAD or PWAD"),
        (b"ZWAD" + bytes(8), "begins with IWAD or PWAD"),
        (struct.pack("<4sii", b"PWAD", 1, 12), "directory inside its 12 bytes"),
        (struct.pack("<4sii", b"PWAD", -1, 12), "-1 entries"),
        (struct.pack("<4sii", b"PWAD", 0, 4), "entries at 4"),
        (struct.pack("<4sii ii8s", b"PWAD", 1, 12, 20, 9, b"A"), r"lump A inside the WAD.*20\+9"),
        (struct.pack("<4sii ii8s", b"PWAD", 1, 12, 12, -1, b"A"), "lump A inside the WAD"),
    ],
)
def test_what_is_no_wad_is_refused(content, message):
    with pytest.raises(InputError, match=message):
        wad.parse(content)


def test_names_that_do_not_fit_and_lumps_that_are_not_there_are_refused():
    with pytest.raises(InputError, match="1 to 8 letters, got 'NINELONG1'"):
        wad.build("PWAD", [wad.Lump("NINELONG1", b"")])
    with pytest.raises(InputError, match="need a lump B in the WAD, got A"):
        wad.Wad("PWAD", (wad.Lump("A", b""),)).lump("B")


@pytest.mark.parametrize("variant", SCRIPTS)
def test_a_variant_is_the_scenario_with_another_script(variant):
    original = wad.parse(variants.scenario("dense"))
    derived = wad.parse(variants.scenario(variant))
    assert derived.kind == "PWAD"
    assert [lump.name for lump in derived.lumps] == [
        lump.name for lump in original.lumps if lump.name != "SCRIPTS"
    ]
    for lump in derived.lumps:
        if lump.name != "BEHAVIOR":
            assert lump.data == original.lump(lump.name)
    old, new = original.lump("BEHAVIOR"), derived.lump("BEHAVIOR")
    script = bytes.fromhex(SCRIPTS[variant])
    assert new == old[:0x14] + script + old[0x40:]


def package_with(tmp_path, monkeypatch, content):
    (tmp_path / "scenarios").mkdir()
    if content is not None:
        (tmp_path / "scenarios" / "my_way_home.wad").write_bytes(content)
    monkeypatch.setattr(variants, "package_folder", lambda: tmp_path)


@pytest.mark.parametrize("variant", variants.SPAWNS)
def test_another_file_is_refused_with_both_checksums(tmp_path, monkeypatch, variant):
    content = variants.scenario("dense")[:-1] + b"\x01"
    package_with(tmp_path, monkeypatch, content)
    with pytest.raises(InputError) as caught:
        variants.scenario(variant)
    message = str(caught.value)
    assert variants.SHA256 in message
    assert hashlib.sha256(content).hexdigest() in message
    assert "pip install vizdoom==1.3.2" in message
    assert "\n" not in message


def test_missing_files_and_packages_are_named(tmp_path, monkeypatch):
    package_with(tmp_path, monkeypatch, None)
    with pytest.raises(InputError, match=r"my_way_home.wad, which is missing"):
        variants.scenario("dense")
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install winkel\[doom\]"):
        variants.scenario("dense")


def test_unknown_variants_are_refused():
    with pytest.raises(InputError, match="dense, sparse, very-sparse, got 'very_sparse'"):
        variants.scenario("very_sparse")


def test_the_level_has_closed_walls_its_spots_and_the_goal():
    home = level.my_way_home()
    assert home.goal == (1040.0, -352.0)
    assert sorted(home.spots) == list(range(10, 27))
    assert home.spots[10] == (240.0, -176.0)
    assert home.spots[15] == (543.986, -672.089)
    assert home.walls.reshape(-1, 2).min(axis=0).tolist() == [160.0, -704.0]
    assert home.walls.reshape(-1, 2).max(axis=0).tolist() == [1120.0, 128.0]
    _, degrees = np.unique(home.walls.reshape(-1, 2), axis=0, return_counts=True)
    assert (degrees == 2).all()
    assert len(home.openings) == 18


def test_visits_are_counted_where_they_were(rng):
    home = level.my_way_home()
    places = rng.uniform((160, -704), (1120, 128), size=(500, 2))
    counts, (left, right, bottom, top) = level.count_visits(home, places, cell=50.0)
    assert counts.sum() == 500
    assert (left, right, bottom, top) == (150.0, 1150.0, -750.0, 150.0)
    assert counts.shape == (18, 20)
    for row, column in ((0, 0), (7, 3), (17, 19)):
        low = np.array([left + 50 * column, bottom + 50 * row])
        inside = ((places >= low) & (places < low + 50)).all(axis=1)
        assert counts[row, column] == inside.sum()
