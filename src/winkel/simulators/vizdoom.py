"""VizDoom's MyWayHome, dense, sparse and very sparse: find a vest in a maze, from pictures alone.

Every environment has an engine, a process that vizdoom starts, with a keeper (`vizdoom_keeper`) and
a folder of its own: nothing is left behind, however it ends. The two sparse variants (Pathak et
al., 2017) are made in memory by replacing the compiled script that runs when the player enters the
map. The checksum of the package's file is verified, so that its parts are known by their positions.
"""

import hashlib
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, UInt8

from winkel.errors import LARGEST_SEED, InputError, require_integer
from winkel.simulators import vizdoom_keeper
from winkel.simulators.base import Layout, SimulatorDied, Step

SHA256 = "18e98ff4c9186808eb00696b799cfe88a79e7486429c1692aafbed8ef359c0b1"
VERSION = "1.3.2"
"""Version of the vizdoom package whose my_way_home.wad has this checksum."""

_MAP = slice(12, 25358)  # text in the format UDMF
_ENTER_SCRIPT = slice(25378, 25422)  # compiled
_VEST, _MAP_SPOT = 2018, 9001  # kinds of things
_BLOCK = re.compile(r"(\w+)[^{};=]*\{([^}]*)\}")
_FIELD = re.compile(r"(\w+)\s*=\s*([^;]+);")


STARTS: dict[str, tuple[int, int, int] | None] = {
    "dense": None,  # any of the 17 spots 10–26 and any angle
    "sparse": (10, 0, 655),
    "very-sparse": (15, 32112, 33423),
}
"""Variants: tag of the map spot, smallest and largest angle in 1/65536 of a turn."""

CONFIG = Path(__file__).with_name("my_way_home.cfg")
EPISODE_LENGTH = 2_100
"""Steps until the time limit."""
SIDE = 42
"""Pixels along each side of an observation."""
ACTIONS = ("turn left", "turn right", "forward", "left", "right")
"""Names of the actions, each of which presses a button of `CONFIG`."""
TIMEOUTS = ("termination", "truncation")
NAMES = tuple(f"doom:my-way-home/{variant}" for variant in STARTS)

_ONE_HOT = np.eye(len(ACTIONS)).tolist()
_FAILURES = ("ViZDoomUnexpectedExit", "ViZDoomIsNotRunning", "ViZDoomError", "MessageQueue",
             "SharedMemory")  # fmt: skip


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
    if (found := hashlib.sha256(content).hexdigest()) != SHA256:
        raise InputError(
            f"need {path} with sha256 {SHA256}, got {found}: pip install vizdoom=={VERSION}"
        )
    if (start := STARTS[variant]) is None:
        return content
    script = _enter_script(*start).ljust(_ENTER_SCRIPT.stop - _ENTER_SCRIPT.start, b"\x01")
    return content[: _ENTER_SCRIPT.start] + script + content[_ENTER_SCRIPT.stop :]  # terminated


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

    Returns `walls` [walls, 2 ends, xy], lines with a single side, `starts` [starts, xy] and `goal`
    [xy], where the vest lies.
    """
    text = re.sub(r"//[^\n]*", "", read_scenario(variant)[_MAP].decode("latin-1"))
    blocks: dict[str, list[dict[str, str]]] = {"thing": [], "vertex": [], "linedef": []}
    for kind, content in _BLOCK.findall(text):
        blocks.setdefault(kind, []).append(dict(_FIELD.findall(content)))
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


RENDERINGS: dict[str, tuple[int, int, tuple[float, float, float], bool]] = {
    # An 8-bit gray picture of 640×480, resized by averaging: 0.299, 0.587 and 0.114 in 15 bits.
    "paper": (480, 640, (9798 / 2**15, 19235 / 2**15, 3735 / 2**15), True),
    "fast": (120, 160, (77 / 2**8, 150 / 2**8, 29 / 2**8), False),
}
"""Height and width of the engine's picture; weights of red, green and blue, exact in float32 as the
gray levels are; and whether gray levels are rounded (halves up) before they are averaged."""


def downsample(
    planes: UInt8[np.ndarray, "3 height width"], rendering: str
) -> UInt8[np.ndarray, "42 42"]:
    """Average gray levels over SIDE × SIDE equal areas, and round to the nearest level."""
    rows, columns = _average_matrices(rendering)
    return np.rint(rows @ (gray_levels(planes, rendering) @ columns)).astype(np.uint8)


def gray_levels(
    planes: UInt8[np.ndarray, "3 height width"], rendering: str
) -> Float32[np.ndarray, "height width"]:
    """Return gray levels from 0 to 255 of every pixel."""
    _, _, luma, rounded = RENDERINGS[rendering]
    levels = np.array(luma, np.float32) @ planes.reshape(3, -1).astype(np.float32)
    if rounded:
        levels += np.float32(0.5)
        np.floor(levels, out=levels)
    return levels.reshape(planes.shape[1:])


def average_weights(length: int) -> Float[np.ndarray, "42 length"]:
    """Return weights of `length` pixels in each of SIDE cells of equal size; rows sum to 1."""
    edges = np.arange(SIDE + 1) * length / SIDE
    pixel = np.arange(length)
    covered = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
    return np.clip(covered, 0.0, None) * SIDE / length


@cache
def _average_matrices(rendering: str) -> tuple[np.ndarray, np.ndarray]:
    height, width, *_ = RENDERINGS[rendering]
    columns = np.ascontiguousarray(average_weights(width).T, np.float32)
    return average_weights(height).astype(np.float32), columns


class MyWayHome:
    """One environment: each action presses one of five buttons for one tic, without frame skip.

    The engine gives the vest's reward (0.9999) on a step that does not end the episode. The next
    step ends it, with the frame of the step before, because a finished episode has no frame. With
    the `timeout` "termination" the engine ends an episode after 2,100 steps in the same way; with
    "truncation" the last observation is the frame after the last step.

    The engine starts with the first reset. Calling an environment makes another one, so that it
    can be the maker of a pool.
    """

    num_actions = len(ACTIONS)
    facts: tuple[str, ...] = ("goal",)
    probes: tuple[str, ...] = ("x", "y", "angle")
    action_names = ACTIONS
    map_cell = 16.0
    """Side of a cell in counts of visits: the player's radius."""

    def __init__(
        self, variant: str, rendering: str = "fast", timeout: str = "termination", stack: int = 6
    ):
        choices = ("timeout", timeout, TIMEOUTS), ("rendering", rendering, RENDERINGS)
        for name, value, known in choices:
            if value not in known:
                raise InputError(f"need a {name} of {', '.join(known)}, got {value!r}")
        stack = require_integer("stack", stack, at_least=1)
        self.layout = Layout(shape=(SIDE, SIDE), dtype="uint8", stack=stack)
        self._truncates = timeout == "truncation"
        self._scenario = read_scenario(variant)
        self.settings = variant, rendering, timeout, stack
        self._game: Any = None
        self._folder = ""
        self._frame = np.zeros((SIDE, SIDE), np.uint8)
        self._ended, self._num_steps, self._found = True, 0, False

    def __call__(self) -> "MyWayHome":
        return MyWayHome(*self.settings)

    def floor_plan(self) -> dict[str, np.ndarray]:
        return read_floor_plan(self.settings[0])

    def reset(self, seed: int | None = None) -> UInt8[np.ndarray, "42 42"]:
        if seed is not None:
            require_integer("a seed", seed, at_least=0, at_most=LARGEST_SEED)
        if self._game is None:
            self._start_engine(seed)
        else:
            if seed is not None:
                self._game.set_seed(seed)
            with self._convert_failures():
                self._game.new_episode()
        self._ended, self._num_steps, self._found = False, 0, False
        self._update_frame()
        return self._frame

    def step(self, action: int) -> Step:
        if self._ended:
            raise InputError("need reset() before step(): no episode is running")
        if not 0 <= action < self.num_actions:
            raise InputError(f"need an action from 0 to {self.num_actions - 1}, got {action}")
        with self._convert_failures():
            reward = self._game.make_action(_ONE_HOT[action])
        self._num_steps += 1
        goal = reward > 0.5
        self._found |= goal
        finished = self._game.is_episode_finished()
        time_is_out = self._truncates and self._num_steps >= EPISODE_LENGTH
        self._ended = finished or time_is_out
        self._update_frame()
        discount = 0.0 if finished or (time_is_out and self._found) else 1.0
        facts, probes = (float(goal),), self.position()
        return Step(self._frame, reward, discount, self._ended, facts, probes)

    def position(self) -> tuple[float, ...]:
        """Return x, y and the angle in degrees, counter-clockwise from the east."""
        return tuple(map(self._game.get_game_variable, self._position))

    def close(self) -> None:
        """End the engine and remove its files. Closing again does nothing."""
        self._ended = True
        if self._game is not None:
            self._game.close()
            self._game = None
            shutil.rmtree(self._folder, ignore_errors=True)

    def _update_frame(self) -> None:
        state = self._game.get_state()
        if state is not None:  # None if the episode is finished
            self._frame = downsample(state.screen_buffer, self.settings[1])

    def _start_engine(self, seed: int | None) -> None:
        """Start the engine, which begins an episode; without a seed it draws one."""
        import vizdoom

        self._failures = tuple(getattr(vizdoom, f"{name}Exception") for name in _FAILURES)
        known = vizdoom.GameVariable
        self._position = [known.POSITION_X, known.POSITION_Y, known.ANGLE]
        program = find_program(Path(vizdoom.__file__).parent)
        self._game = game = vizdoom.DoomGame()
        self._folder = tempfile.mkdtemp(prefix="winkel-doom-")
        scenario = Path(self._folder, "scenario.wad")
        height, width, *_ = RENDERINGS[self.settings[1]]
        try:
            scenario.write_bytes(self._scenario)
            game.set_vizdoom_path(_write_launcher(self._folder, program))
            # By its path: the engine would prefer another game's file in the working directory.
            game.set_doom_game_path(str(program.with_name("freedoom2.wad")))
            game.set_doom_scenario_path(str(scenario))
            game.load_config(str(CONFIG))
            game.set_episode_timeout(0 if self._truncates else EPISODE_LENGTH)
            game.set_screen_resolution(getattr(vizdoom.ScreenResolution, f"RES_{width}X{height}"))
            if seed is not None:
                game.set_seed(seed)
            with self._convert_failures():
                game.init()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _convert_failures(self) -> Iterator[None]:
        """Convert failures of the engine to one error type, and close it."""
        try:
            yield
        except self._failures as error:
            self.close()
            raise SimulatorDied(f"the VizDoom engine died: {error}") from error


def find_program(package: Path) -> Path:
    """Return the engine's executable in the vizdoom package."""
    program = package / "vizdoom"
    if not os.access(program, os.X_OK):
        raise InputError(
            f"need an engine that can run, {program}: chmod +x, or pip install vizdoom=={VERSION}"
        )
    return program


def _write_launcher(folder: str, program: Path) -> str:
    """Write the script that vizdoom runs as its engine: it starts the keeper, which starts it."""
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        raise InputError(f"need a folder that programs run from, got {folder}: set TMPDIR")
    words = [sys.executable, "-IS", vizdoom_keeper.__file__, str(os.getpid()), folder, str(program)]
    launcher = Path(folder, "engine")
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    launcher.chmod(0o700)
    return str(launcher)


def make_doom(name: str, settings: Mapping[str, Any]) -> MyWayHome:
    """Make the environment of a name such as 'doom:my-way-home/sparse'; no engine starts."""
    if name not in NAMES:
        raise InputError(f"need one of {', '.join(NAMES)}, got {name!r}")
    known = list(inspect.signature(MyWayHome).parameters)[1:]
    for key in settings:
        if key not in known:
            raise InputError(f"need settings of {', '.join(known)} with {name}, got {key!r}")
    return MyWayHome(name.rpartition("/")[2], **settings)
