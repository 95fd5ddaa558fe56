"""Names of doom environments: doom:my-way-home/sparse?rendering=paper,timeout=truncation."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from winkel.errors import InputError
from winkel.simulators.vizdoom.engine import ACTIONS
from winkel.simulators.vizdoom.frames import RENDERINGS
from winkel.simulators.vizdoom.level import FloorPlan, my_way_home
from winkel.simulators.vizdoom.simulator import TIMEOUTS, MyWayHome
from winkel.simulators.vizdoom.variants import SPAWNS, package_folder

PREFIX = "doom:"
NAMES = tuple(f"{PREFIX}my-way-home/{variant}" for variant in SPAWNS)
"""All environments, without options."""


@dataclasses.dataclass(frozen=True)
class DoomMaker:
    """Makes one environment whenever it is called, in whatever process."""

    variant: str
    rendering: str = "fast"
    timeout: str = "termination"
    stack: int = 6

    action_names: ClassVar[tuple[str, ...]] = tuple(ACTIONS)
    map_cell: ClassVar[float] = 16.0
    """Side of a cell in counts of visits: the player's radius."""

    def __call__(self) -> MyWayHome:
        """A simulator; its engine starts with the first reset."""
        return MyWayHome(**dataclasses.asdict(self))

    def floor_plan(self) -> FloorPlan:
        """Read walls, starts and goal."""
        level, spawn = my_way_home(), SPAWNS[self.variant]
        starts = list(level.spots.values()) if spawn is None else [level.spots[spawn.spot]]
        return FloorPlan(walls=level.walls, starts=np.array(starts), goal=np.array(level.goal))


def parse_doom(text: str) -> DoomMaker:
    """The maker of a name; everything that can be wrong with it is found here.

    Options follow a question mark, `key=value` with commas between them: `rendering` fast or
    paper, `timeout` termination or truncation, `stack` how many frames an agent sees.
    """
    name, _, options = text.partition("?")
    if name not in NAMES:
        raise InputError(f"need one of {', '.join(NAMES)}, got {name!r}")
    package_folder()
    given: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        key, value = _option(option)
        if key in given:
            raise InputError(f"need each option once, got {key} twice in {text!r}")
        given[key] = value
    return DoomMaker(variant=name.rpartition("/")[2], **given)


def _option(option: str) -> tuple[str, Any]:
    key, _, value = (part.strip() for part in option.partition("="))
    choices = {"rendering": tuple(RENDERINGS), "timeout": TIMEOUTS}
    if key == "stack":
        if not (value.isdecimal() and int(value) >= 1):
            raise InputError(f"need stack >= 1, a whole number, got {value!r}")
        return key, int(value)
    if key not in choices:
        raise InputError(f"need an option of {', '.join(choices)}, stack, got {option!r}")
    if value not in choices[key]:
        raise InputError(f"need a {key} of {', '.join(choices[key])}, got {value!r}")
    return key, value
