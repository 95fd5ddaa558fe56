"""VizDoom's MyWayHome: find a vest in a maze of rooms, from pictures alone."""

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, UInt8

from winkel.errors import InputError, require_integer
from winkel.simulators.base import Layout, Step
from winkel.simulators.vizdoom.engine import ACTIONS, Engine
from winkel.simulators.vizdoom.scenario import STARTS, FloorPlan, read_floor_plan, read_scenario

EPISODE_LENGTH = 2_100
"""Steps until the time limit."""
SIDE = 42
"""Pixels along each side of an observation."""
TIMEOUTS = ("termination", "truncation")
NAMES = tuple(f"doom:my-way-home/{variant}" for variant in STARTS)
"""Names of all environments, without settings."""

_MAX_SEED = 2**32 - 1


class Rendering(NamedTuple):
    """How a picture is drawn and converted to gray.

    Attributes:
        height: pixels that the engine draws, from top to bottom.
        width: pixels from left to right.
        luma: weights of red, green and blue, which are exact in float32 as the gray levels are.
        rounded: whether gray levels are rounded (halves up) before they are averaged.
    """

    height: int
    width: int
    luma: tuple[float, float, float]
    rounded: bool


RENDERINGS = {
    # An 8-bit gray picture of 640×480, resized by averaging: 0.299, 0.587 and 0.114 in 15 bits.
    "paper": Rendering(480, 640, (9798 / 2**15, 19235 / 2**15, 3735 / 2**15), rounded=True),
    "fast": Rendering(120, 160, (77 / 2**8, 150 / 2**8, 29 / 2**8), rounded=False),
}


class MyWayHome:
    """One environment: each action presses one of five buttons for one tic, without frame skip.

    The reward is −0.0001 per step, and 1 more for the vest. The engine gives the vest's reward
    (0.9999) on a step that does not end the episode. The next step ends it with −0.0001, and with
    the frame of the step before, because a finished episode has no frame.

    Args:
        variant: where episodes start, a name in `STARTS`.
        rendering: a name in `RENDERINGS`.
        timeout: how an episode ends after 2,100 steps. As a termination (as in the original
            experiment) the engine ends it, and the last frame is repeated. As a truncation the
            engine does not end it, and the last observation is the frame after the last step.
        stack: number of frames that an agent sees.
    """

    num_actions = len(ACTIONS)
    facts: tuple[str, ...] = ("goal",)
    probes: tuple[str, ...] = ("x", "y", "angle")

    def __init__(
        self,
        variant: str,
        rendering: str = "fast",
        timeout: str = "termination",
        stack: int = 6,
    ):
        if timeout not in TIMEOUTS:
            raise InputError(f"need a timeout of {', '.join(TIMEOUTS)}, got {timeout!r}")
        stack = require_integer("stack", stack, at_least=1)
        self.layout = Layout(shape=(SIDE, SIDE), dtype="uint8", stack=stack)
        self._truncates = timeout == "truncation"
        self._scenario = read_scenario(variant)
        self._downsample = Downsample(rendering)
        self._engine: Engine | None = None
        self._frame = np.zeros((SIDE, SIDE), np.uint8)
        self._ended = True
        self._num_steps = 0
        self._found = False

    def reset(self, seed: int | None = None) -> UInt8[np.ndarray, "42 42"]:
        """Begin an episode; a seed determines this one and all that follow."""
        seed = None if seed is None else operator.index(seed)
        if seed is not None and not 0 <= seed <= _MAX_SEED:
            raise InputError(f"need a seed from 0 to {_MAX_SEED}, got {seed}")
        if self._engine is None or self._engine.dead:
            rendering = self._downsample.rendering
            self._engine = Engine(
                scenario=self._scenario,
                resolution=f"RES_{rendering.width}X{rendering.height}",
                timeout=0 if self._truncates else EPISODE_LENGTH,
                seed=seed,
            )
        else:
            self._engine.new_episode(seed)
        self._ended, self._num_steps, self._found = False, 0, False
        self._update_frame(self._engine)
        return self._frame

    def step(self, action: int) -> Step:
        """Press one button for one tic.

        Raises `SimulatorDied` if the engine has died; a reset starts another one.
        """
        if self._engine is None or self._ended:
            raise InputError("need reset() before step(): no episode is running")
        if not 0 <= action < self.num_actions:
            raise InputError(f"need an action from 0 to {self.num_actions - 1}, got {action}")
        engine, self._ended = self._engine, True  # stays so if the engine dies
        reward = engine.act(action)
        self._num_steps += 1
        goal = reward > 0.5
        self._found |= goal
        finished = engine.is_finished()
        time_is_out = self._truncates and self._num_steps >= EPISODE_LENGTH
        self._ended = finished or time_is_out
        self._update_frame(engine)
        return Step(
            obs=self._frame,
            reward=reward,
            discount=0.0 if finished or (time_is_out and self._found) else 1.0,
            boundary=self._ended,
            facts=(float(goal),),
            probes=engine.position(),
        )

    def close(self) -> None:
        """End the engine. Closing again does nothing."""
        self._ended = True
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _update_frame(self, engine: Engine) -> None:
        picture = engine.picture()
        if picture is not None:
            self._frame = self._downsample(picture)


class Downsample:
    """Gray levels of a picture, averaged over SIDE × SIDE areas of equal size."""

    def __init__(self, rendering: str):
        if rendering not in RENDERINGS:
            raise InputError(f"need a rendering of {', '.join(RENDERINGS)}, got {rendering!r}")
        self.rendering = RENDERINGS[rendering]
        self._luma = np.array(self.rendering.luma, np.float32)
        self._rows = average_weights(self.rendering.height).astype(np.float32)
        self._columns = np.ascontiguousarray(average_weights(self.rendering.width).T, np.float32)

    def __call__(self, planes: UInt8[np.ndarray, "3 height width"]) -> UInt8[np.ndarray, "42 42"]:
        """Return the observation: averages, rounded to the nearest gray level."""
        return np.rint(self._rows @ (self.gray(planes) @ self._columns)).astype(np.uint8)

    def gray(
        self, planes: UInt8[np.ndarray, "3 height width"]
    ) -> Float32[np.ndarray, "height width"]:
        """Return gray levels from 0 to 255 of every pixel."""
        levels = self._luma @ planes.reshape(3, -1).astype(np.float32)
        if self.rendering.rounded:
            levels += np.float32(0.5)
            np.floor(levels, out=levels)
        return levels.reshape(planes.shape[1:])


def average_weights(length: int) -> Float[np.ndarray, "42 length"]:
    """Return weights of `length` pixels in each of SIDE cells of equal size; rows sum to 1."""
    edges = np.arange(SIDE + 1) * length / SIDE
    pixel = np.arange(length)
    covered = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
    return np.clip(covered, 0.0, None) * SIDE / length


@dataclass(frozen=True)
class DoomMaker:
    """Makes one environment with the arguments of `MyWayHome`."""

    variant: str
    rendering: str = "fast"
    timeout: str = "termination"
    stack: int = 6

    action_names: ClassVar[tuple[str, ...]] = tuple(ACTIONS)
    map_cell: ClassVar[float] = 16.0
    """Side of a cell in counts of visits: the player's radius."""

    def __call__(self) -> MyWayHome:
        """Make a simulator; its engine starts with the first reset."""
        return MyWayHome(**asdict(self))

    def floor_plan(self) -> FloorPlan:
        """Read walls, starts and goal."""
        return read_floor_plan(self.variant)


def make_doom_maker(name: str, settings: Mapping[str, Any]) -> DoomMaker:
    """Return the maker of a name, such as 'doom:my-way-home/sparse', and check its settings."""
    if name not in NAMES:
        raise InputError(f"need one of {', '.join(NAMES)}, got {name!r}")
    known = [field.name for field in fields(DoomMaker)][1:]
    for key in settings:
        if key not in known:
            raise InputError(f"need settings of {', '.join(known)} with {name}, got {key!r}")
    maker = DoomMaker(name.rpartition("/")[2], **settings)
    maker()  # checks the values; no engine starts
    return maker
