"""MyWayHome in three sparsities: one map, one goal, three ways to choose where an episode starts.

Dense is the scenario as the vizdoom package has it. The other two (Pathak et al., 2017) start in
one room, and are made from the same file when they are needed: no WAD comes with winkel. All that
changes is the script that runs when the player enters the map.
"""

import hashlib
import importlib.util
import struct
from pathlib import Path
from typing import NamedTuple

from winkel.errors import InputError
from winkel.simulators.vizdoom import wad

SHA256 = "18e98ff4c9186808eb00696b799cfe88a79e7486429c1692aafbed8ef359c0b1"
"""Of the my_way_home.wad that everything here is known of."""

VERSION = "1.3.2"
"""Of the vizdoom package that has it."""

_ENTER_SCRIPT = 2
_TERMINATE = b"\x01"


class Spawn(NamedTuple):
    """One place to start at, looking in about one direction.

    Attributes:
        spot: the tag of a map spot.
        low: least angle, in 1/65536 of a turn.
        high: greatest angle, itself among the possible ones.
    """

    spot: int
    low: int
    high: int


SPAWNS: dict[str, Spawn | None] = {
    "dense": None,  # any of the 17 spots 10–26 and any angle
    "sparse": Spawn(spot=10, low=0, high=655),
    "very-sparse": Spawn(spot=15, low=32112, high=33423),
}


def package_folder() -> Path:
    """Where the vizdoom package is, which is not imported for it."""
    found = importlib.util.find_spec("vizdoom")
    if found is None or found.origin is None:
        raise InputError("need the package vizdoom for doom environments: pip install winkel[doom]")
    return Path(found.origin).parent


def scenario(variant: str) -> bytes:
    """The WAD of a variant."""
    if variant not in SPAWNS:
        raise InputError(f"need a variant of {', '.join(SPAWNS)}, got {variant!r}")
    content = _bundled(package_folder())
    spawn = SPAWNS[variant]
    return content if spawn is None else _moved(content, spawn)


def _bundled(package: Path) -> bytes:
    path = package / "scenarios" / "my_way_home.wad"
    if not path.is_file():
        raise InputError(f"need the file {path}, which is missing: pip install vizdoom=={VERSION}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise InputError(
            f"need {path} with sha256 {SHA256}, got {found}: pip install vizdoom=={VERSION}"
        )
    return content


def _moved(content: bytes, spawn: Spawn) -> bytes:
    """The WAD with another start; the script's source, which no longer fits, is left out."""
    original = wad.parse(content)
    behavior = original.lump("BEHAVIOR")
    start, end = _script_bytes(behavior, _ENTER_SCRIPT)
    script = _enter_script(spawn).ljust(end - start, _TERMINATE)
    if len(script) > end - start:
        raise InputError(f"need {len(script)} bytes for the script, got {end - start}")
    changed = {"BEHAVIOR": behavior[:start] + script + behavior[end:]}
    return wad.build(
        original.kind,
        [
            wad.Lump(name=lump.name, data=changed.get(lump.name, lump.data))
            for lump in original.lumps
            if lump.name != "SCRIPTS"
        ],
    )


def _script_bytes(behavior: bytes, number: int) -> tuple[int, int]:
    """Where a compiled script begins and the next one does, from the chunk SPTR.

    The chunks begin where the word eight bytes before the old directory says, and end there.
    """
    (directory,) = struct.unpack_from("<i", behavior, 4)
    (at,) = struct.unpack_from("<i", behavior, directory - 8)
    while at < directory - 8:
        name, length = struct.unpack_from("<4si", behavior, at)
        if name == b"SPTR":
            entries = struct.iter_unpack("<hhi", behavior[at + 8 : at + 8 + length])
            starts = {script: address for script, _, address in entries}
            begin = starts[number]
            return begin, min(address for address in starts.values() if address > begin)
        at += 8 + length
    raise InputError("need a chunk SPTR among the compiled scripts, got none")


def _enter_script(spawn: Spawn) -> bytes:
    """Stand at the spot, look along a random angle, own nothing, have no reward.

    In the source's words: SetActorPosition(0, GetActorX(spot), GetActorY(spot), 0, 0);
    SetActorAngle(0, random(low, high)); reward = 0; ClearInventory().
    """
    angles = b"\x03" + struct.pack("<i", spawn.low) + b"\x03" + struct.pack("<i", spawn.high)
    return (
        bytes([0xA7, spawn.spot])
        + bytes.fromhex("19 00 a7 00 1c 00 c4 1c 00 c5 b0 00 00 f0 2b 36 a7 00")
        + angles
        + bytes.fromhex("39 f0 24 a7 00 b5 00 8e 01")
    )
