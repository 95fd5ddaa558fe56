"""The three variants of MyWayHome and their floor plan, from one file of the vizdoom package.

All variants have the same map and the same goal, and differ in where episodes start. Dense is the
scenario of the package. The other two (Pathak et al., 2017) start in one room. They are made in
memory by replacing the compiled script that runs when the player enters the map, so that no WAD
comes with winkel. The file's checksum is verified, so its parts are known by their positions.
"""

import hashlib
import importlib.util
import re
import struct
from pathlib import Path

import numpy as np

from winkel.errors import InputError

SHA256 = "18e98ff4c9186808eb00696b799cfe88a79e7486429c1692aafbed8ef359c0b1"
"""Checksum of my_way_home.wad."""
VERSION = "1.3.2"
"""Version of the vizdoom package that has this file."""

_MAP = slice(12, 25358)  # text in the format UDMF
_ENTER_SCRIPT = slice(25378, 25422)  # compiled
_TERMINATE = b"\x01"
_VEST, _MAP_SPOT = 2018, 9001  # kinds of things
_BLOCK = re.compile(r"(\w+)[^{};=]*\{([^}]*)\}")
_FIELD = re.compile(r"(\w+)\s*=\s*([^;]+);")


STARTS: dict[str, tuple[int, int, int] | None] = {
    "dense": None,  # any of the 17 spots 10–26 and any angle
    "sparse": (10, 0, 655),
    "very-sparse": (15, 32112, 33423),
}
"""Variants: tag of the map spot, smallest and largest angle in 1/65536 of a turn."""


def read_scenario(variant: str) -> bytes:
    """Return the WAD of a variant."""
    if variant not in STARTS:
        raise InputError(f"need a variant of {', '.join(STARTS)}, got {variant!r}")
    package = importlib.util.find_spec("vizdoom")  # finds it without importing it
    if package is None or package.origin is None:
        raise InputError("need the package vizdoom for doom environments: pip install winkel[doom]")
    path = Path(package.origin).parent / "scenarios" / "my_way_home.wad"
    if not path.is_file():
        raise InputError(f"need the file {path}, which is missing: pip install vizdoom=={VERSION}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise InputError(
            f"need {path} with sha256 {SHA256}, got {found}: pip install vizdoom=={VERSION}"
        )
    start = STARTS[variant]
    if start is None:
        return content
    script = _enter_script(*start).ljust(_ENTER_SCRIPT.stop - _ENTER_SCRIPT.start, _TERMINATE)
    return content[: _ENTER_SCRIPT.start] + script + content[_ENTER_SCRIPT.stop :]


def _enter_script(spot: int, low: int, high: int) -> bytes:
    """Compile: stand at the spot, look along a random angle, own nothing, have no reward.

    In the source: SetActorPosition(0, GetActorX(spot), GetActorY(spot), 0, 0);
    SetActorAngle(0, random(low, high)); reward = 0; ClearInventory().
    """
    return (
        bytes([0xA7, spot])
        + bytes.fromhex("19 00 a7 00 1c 00 c4 1c 00 c5 b0 00 00 f0 2b 36 a7 00")
        + struct.pack("<bibi", 0x03, low, 0x03, high)
        + bytes.fromhex("39 f0 24 a7 00 b5 00 8e 01")
    )


def read_floor_plan(variant: str) -> dict[str, np.ndarray]:
    """Read the map of a variant from above, in map units; x grows to the east, y to the north.

    Returns `walls` [walls, 2 ends, xy], lines with a single side, `starts` [starts, xy], where
    episodes start, and `goal` [xy], where the vest lies.
    """
    text = re.sub(r"//[^\n]*", "", read_scenario(variant)[_MAP].decode("latin-1"))
    blocks: dict[str, list[dict[str, str]]] = {"thing": [], "vertex": [], "linedef": []}
    for kind, fields in _BLOCK.findall(text):
        blocks.setdefault(kind, []).append(dict(_FIELD.findall(fields)))
    vertices = np.array([_place(vertex) for vertex in blocks["vertex"]])
    walls = [line for line in blocks["linedef"] if "sideback" not in line]
    [goal] = (_place(thing) for thing in blocks["thing"] if int(thing["type"]) == _VEST)
    start = STARTS[variant]
    starts = [
        _place(thing)
        for thing in blocks["thing"]
        if int(thing["type"]) == _MAP_SPOT and (start is None or int(thing["id"]) == start[0])
    ]
    return {
        "walls": vertices[[[int(wall["v1"]), int(wall["v2"])] for wall in walls]],
        "starts": np.array(starts),
        "goal": np.array(goal),
    }


def _place(block: dict[str, str]) -> tuple[float, float]:
    return float(block["x"]), float(block["y"])
