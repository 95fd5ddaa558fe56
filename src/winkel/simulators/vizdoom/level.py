"""The map of MyWayHome as arrays: walls to draw, the goal, the spots where episodes start."""

import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from winkel.simulators.vizdoom import variants, wad

_VEST, _MAP_SPOT = 2018, 9001  # kinds of things
_BLOCK = re.compile(r"(\w+)[^{};=]*\{([^}]*)\}")
_FIELD = re.compile(r"(\w+)\s*=\s*([^;]+);")


class Level(NamedTuple):
    """A level from above, in map units; x grows to the east and y to the north.

    Attributes:
        walls: segments that nobody passes.
        openings: segments between two rooms, such as the ends of a corridor.
        goal: where the vest lies.
        spots: places to start at, by their tags.
    """

    walls: Float[np.ndarray, "walls 2 2"]
    openings: Float[np.ndarray, "openings 2 2"]
    goal: tuple[float, float]
    spots: dict[int, tuple[float, float]]


class FloorPlan(NamedTuple):
    """A map from above, in map units; x grows to the east and y to the north.

    Attributes:
        walls: segments.
        starts: where episodes start.
        goal: where the vest lies.
    """

    walls: Float[np.ndarray, "walls 2 2"]
    starts: Float[np.ndarray, "starts 2"]
    goal: Float[np.ndarray, "2"]


def my_way_home() -> Level:
    """The level of all three variants."""
    return read_level(wad.parse(variants.scenario("dense")))


def read_level(level: wad.Wad) -> Level:
    """Walls and things of a level in the text format UDMF. A line with one side is a wall."""
    blocks = _blocks(level.lump("TEXTMAP").decode("latin-1"))
    things, lines = blocks.get("thing", []), blocks.get("linedef", [])
    ends = np.array([[float(v["x"]), float(v["y"])] for v in blocks.get("vertex", [])])
    pairs = np.array([[int(line["v1"]), int(line["v2"])] for line in lines])
    open_ = np.array(["sideback" in line for line in lines])
    (vest,) = (thing for thing in things if int(thing["type"]) == _VEST)
    return Level(
        walls=ends[pairs[~open_]],
        openings=ends[pairs[open_]],
        goal=_place(vest),
        spots={int(t["id"]): _place(t) for t in things if int(t["type"]) == _MAP_SPOT},
    )


def _blocks(text: str) -> dict[str, list[dict[str, str]]]:
    """Fields of every `kind { name = value; … }`, by kind, in the file's order."""
    found: dict[str, list[dict[str, str]]] = {}
    for kind, body in _BLOCK.findall(re.sub(r"//[^\n]*", "", text)):
        found.setdefault(kind, []).append(dict(_FIELD.findall(body)))
    return found


def _place(thing: dict[str, str]) -> tuple[float, float]:
    return float(thing["x"]), float(thing["y"])


def count_visits(
    level: Level, places: Float[np.ndarray, "steps 2"], cell: float = 16.0
) -> tuple[Int[np.ndarray, "rows columns"], Float[np.ndarray, "4"]]:
    """How many of the places lie in each square cell, row 0 at the lowest y, and what they fill.

    The second array is left, right, bottom and top: the level's, with whole cells.
    """
    ends = np.concatenate([level.walls, level.openings]).reshape(-1, 2)
    low = np.floor(ends.min(axis=0) / cell) * cell
    shape = np.ceil((ends.max(axis=0) - low) / cell).astype(int)
    edges = [start + cell * np.arange(count + 1) for start, count in zip(low, shape, strict=True)]
    counts, _, _ = np.histogram2d(places[:, 0], places[:, 1], bins=edges)
    extent = np.array([edges[0][0], edges[0][-1], edges[1][0], edges[1][-1]])
    return counts.T.astype(np.int64), extent
