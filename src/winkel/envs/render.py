"""Environments as text, for people."""

from typing import Any

import numpy as np

from winkel.envs.base import Environment
from winkel.envs.bsuite.catch import COLUMNS, ROWS, Catch
from winkel.envs.bsuite.deep_sea import DeepSea
from winkel.envs.bsuite.discounting_chain import NUM_STEPS, REWARD_STEPS, DiscountingChain
from winkel.envs.bsuite.memory_chain import MemoryChain
from winkel.envs.bsuite.umbrella_chain import UmbrellaChain
from winkel.envs.wrappers import PerturbedReward


def render(env: Environment, inner: Any, params: Any) -> str:
    """A state as lines of text: a picture of grids and chains, else the observation's numbers."""
    if isinstance(env, PerturbedReward):
        return render(env.env, inner, params.inner)
    if isinstance(env, DeepSea):
        return _deep_sea(inner, int(params.size))
    if isinstance(env, Catch):
        return _catch(inner)
    if isinstance(env, MemoryChain):
        bits = "".join(str(int(b)) for b in inner.context[: int(params.num_bits)])
        asked = f"which was bit {int(inner.query)} of {bits}?"
        return f"{_track(int(inner.step), int(params.length) + 1)}  {asked}"
    if isinstance(env, UmbrellaChain):
        weather = "rain" if int(inner.need) else "sun"
        carried = "umbrella" if int(inner.has) else "no umbrella"
        return f"{_track(int(inner.step), int(params.length))}  {weather}, {carried}"
    if isinstance(env, DiscountingChain):
        choice = int(inner.context)
        pays = f"pays at {REWARD_STEPS[choice]}" if choice >= 0 else "undecided"
        return f"{_track(int(inner.step), NUM_STEPS)}  {pays}"
    shown = np.asarray(env.observe(inner, params))
    if shown.size > 16:
        return "\n".join("".join(_SHADES[level] for level in line) for line in _levels(shown))
    return " ".join(f"{value:+.3f}" for value in shown.ravel())


_SHADES = " .:-=+*#%@"


def _levels(image: np.ndarray) -> np.ndarray:
    """Pixels as unsigned brightness, in steps of the shades."""
    bright = np.where(image < 0, image + 256 / 255, image)
    return np.clip(bright * len(_SHADES), 0, len(_SHADES) - 1).astype(int)


def _deep_sea(state: Any, size: int) -> str:
    grid = [["·" if column <= row else " " for column in range(size)] for row in range(size)]
    grid[-1][-1] = "$"
    if int(state.row) < size:
        grid[int(state.row)][int(state.column)] = "o"
    return "\n".join("".join(line) for line in grid)


def _catch(state: Any) -> str:
    board = [["·"] * COLUMNS for _ in range(ROWS)]
    board[ROWS - 1][int(state.paddle_x)] = "="
    caught = int(state.ball_y) == ROWS - 1 and int(state.ball_x) == int(state.paddle_x)
    board[int(state.ball_y)][int(state.ball_x)] = "@" if caught else "o"
    return "\n".join("".join(line) for line in board)


def _track(step: int, length: int) -> str:
    """A chain as a line, at most 40 characters of it."""
    width = min(length, 40)
    at = min(round(step / length * width), width)
    return "[" + "=" * at + ">" + "·" * (width - at) + "]"
