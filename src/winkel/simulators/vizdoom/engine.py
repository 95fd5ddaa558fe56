"""One engine process that plays MyWayHome, and leaves nothing behind however it ends."""

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from winkel.errors import InputError
from winkel.simulators.base import SimulatorDied
from winkel.simulators.vizdoom import keeper
from winkel.simulators.vizdoom.scenario import VERSION

LIVING_REWARD = -0.0001
START_TIME = 10
"""Tics before the first observation, in which the hand comes up."""
SKILL = 5
ACTIONS = {
    "turn left": "TURN_LEFT",
    "turn right": "TURN_RIGHT",
    "forward": "MOVE_FORWARD",
    "left": "MOVE_LEFT",
    "right": "MOVE_RIGHT",
}
"""Names of the actions, and the button that each presses."""
_ONE_HOT = np.eye(len(ACTIONS)).tolist()
_POSITION = ("POSITION_X", "POSITION_Y", "ANGLE")


class Engine:
    """A running game. Its process has a keeper and a folder of its own (see `keeper`).

    Args:
        scenario: content of a WAD.
        resolution: VizDoom's name of the size of its pictures.
        timeout: tics until an episode ends; 0 for never.
        seed: determines the starts of all episodes; None for an unknown one.

    Attributes:
        dead: whether the process has died.
    """

    def __init__(self, scenario: bytes, resolution: str, timeout: int, seed: int | None):
        import vizdoom

        program = find_program(Path(vizdoom.__file__).parent)
        self.dead = False
        self._failures = (
            vizdoom.ViZDoomUnexpectedExitException,
            vizdoom.ViZDoomIsNotRunningException,
            vizdoom.ViZDoomErrorException,
            vizdoom.MessageQueueException,
            vizdoom.SharedMemoryException,
        )
        self._position = [getattr(vizdoom.GameVariable, name) for name in _POSITION]
        self._game: Any = vizdoom.DoomGame()
        self._folder = Path(tempfile.mkdtemp(prefix="winkel-doom-"))
        game, wad = self._game, self._folder / "scenario.wad"
        try:
            wad.write_bytes(scenario)
            game.set_vizdoom_path(str(_write_launcher(self._folder, program)))
            # By its path: the engine would prefer another game's file in the working directory.
            game.set_doom_game_path(str(program.with_name("freedoom2.wad")))
            game.set_doom_scenario_path(str(wad))
            game.set_doom_skill(SKILL)
            game.set_mode(vizdoom.Mode.PLAYER)
            game.set_available_buttons([getattr(vizdoom.Button, name) for name in ACTIONS.values()])
            game.set_living_reward(LIVING_REWARD)
            game.set_episode_start_time(START_TIME)
            game.set_episode_timeout(timeout)
            game.set_screen_resolution(getattr(vizdoom.ScreenResolution, resolution))
            game.set_screen_format(vizdoom.ScreenFormat.CRCGCB)
            game.set_render_hud(False)
            game.set_window_visible(False)
            game.set_sound_enabled(False)
            if seed is not None:
                game.set_seed(seed)
            with self._convert_failures():
                game.init()
        except BaseException:
            self.close()
            raise

    def new_episode(self, seed: int | None) -> None:
        """Begin an episode, at the next start of the current seed or the first of a new one."""
        if seed is not None:
            self._game.set_seed(seed)
        with self._convert_failures():
            self._game.new_episode()

    def act(self, button: int) -> float:
        """Press one button for one tic and return the reward."""
        with self._convert_failures():
            return self._game.make_action(_ONE_HOT[button])

    def picture(self) -> UInt8[np.ndarray, "3 height width"] | None:
        """Return red, green and blue of the player's view; None if the episode is finished."""
        state = self._game.get_state()
        return None if state is None else state.screen_buffer

    def position(self) -> tuple[float, float, float]:
        """Return x, y and the angle in degrees, counter-clockwise from the east."""
        x, y, angle = (float(self._game.get_game_variable(name)) for name in self._position)
        return x, y, angle

    def is_finished(self) -> bool:
        """Return whether the episode is finished."""
        return self._game.is_episode_finished()

    def close(self) -> None:
        """End the process and remove its files. Closing again does nothing."""
        self._game.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def _convert_failures(self) -> Iterator[None]:
        """Convert failures of the engine to one error type, and close it."""
        try:
            yield
        except self._failures as error:
            self.dead = True
            self.close()
            raise SimulatorDied(f"the VizDoom engine died: {error}") from error


def find_program(package: Path) -> Path:
    """Return the engine's executable in the vizdoom package."""
    program = package / "vizdoom"
    if not program.is_file():
        raise InputError(f"need the engine {program}: pip install vizdoom=={VERSION}")
    if not os.access(program, os.X_OK):
        raise InputError(f"need an engine that can be run, got {program}: chmod +x {program}")
    return program


def _write_launcher(folder: Path, program: Path) -> Path:
    """Write the script that vizdoom runs as its engine: it starts the keeper, which starts it."""
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        raise InputError(f"need a folder that programs run from, got {folder}: set TMPDIR")
    words = [sys.executable, "-IS", keeper.__file__, str(os.getpid()), str(folder), str(program)]
    launcher = folder / "engine"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    launcher.chmod(0o700)
    return launcher
