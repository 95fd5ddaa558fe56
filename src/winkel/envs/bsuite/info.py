"""DeepMind's `bsuite_info` after each episode, from what happened in each episode."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from winkel.envs.bsuite.sweep import EXPERIMENTS
from winkel.errors import InputError

Episodes = Mapping[str, np.ndarray]
"""Arrays over episodes: 'return', 'length' and the facts of the family."""

FACTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "bandit": ("missed_tenths",),
        "cartpole": ("balanced",),
        "cartpole_swingup": ("upright", "moves"),
        "catch": ("wrong",),
        "deep_sea": ("bad", "treasure"),
        "deep_sea_stochastic": ("bad", "treasure"),
        "discounting_chain": (),
        "memory_len": ("perfect",),
        "memory_size": ("perfect",),
        "mnist": ("wrong",),
        "mountain_car": (),
        "umbrella_distract": ("wrong",),
        "umbrella_length": ("wrong",),
    }
)
"""What an environment of each family records of an episode, beside its return and its length.

All are whole numbers, counted before noise and scale touch the reward, so that sums of them are
exact: 'missed_tenths' is ten times the bandit's regret; 'balanced', 'upright' and 'moves' count
steps; the others are 0 or 1.
"""


def family_of(experiment: str) -> str:
    """The family of an experiment: 'catch' for 'catch_noise'."""
    if experiment not in EXPERIMENTS:
        raise InputError(f"no experiment {experiment!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[experiment].family


def bsuite_info(experiment: str, episodes: Episodes) -> dict[str, np.ndarray]:
    """What bsuite's environment would return from `bsuite_info()` after each episode.

    Totals since the first episode, in bsuite's order, and in its types: counts of episodes are
    integers, regrets and returns are float64 even where they are whole. 'raw_return' is without
    the noise or the scale that 'return' has.
    """
    family = family_of(experiment)
    missing = [name for name in ("return", "length", *FACTS[family]) if name not in episodes]
    if missing:
        raise InputError(
            f"episodes of {experiment} lack {', '.join(missing)}; they hold "
            f"{', '.join(episodes) or 'nothing'}"
        )
    return _INFO[family](episodes)


def _total(count: np.ndarray) -> np.ndarray:
    return np.cumsum(count, dtype=np.int64)


def _best(raw: np.ndarray) -> np.ndarray:
    return np.maximum.accumulate(np.maximum(raw, 0.0), dtype=np.float64)


def _bandit(episodes: Episodes) -> dict[str, np.ndarray]:
    return {"total_regret": _total(episodes["missed_tenths"]) / 10}


def _wrong(episodes: Episodes) -> dict[str, np.ndarray]:
    return {"total_regret": 2.0 * _total(episodes["wrong"])}


def _cartpole(episodes: Episodes) -> dict[str, np.ndarray]:
    balanced = episodes["balanced"]
    return {"raw_return": 1.0 * _total(balanced), "best_episode": _best(balanced)}


def _cartpole_swingup(episodes: Episodes) -> dict[str, np.ndarray]:
    upright, moves = episodes["upright"], episodes["moves"]
    return {
        "raw_return": _total(upright) - _total(moves) / 10,
        "total_upright": 1.0 * _total(upright),
        "best_episode": _best(upright - moves / 10),
    }


def _deep_sea(episodes: Episodes) -> dict[str, np.ndarray]:
    return {
        "total_bad_episodes": _total(episodes["bad"]),
        "denoised_return": 1.0 * _total(episodes["treasure"]),
    }


def _memory(episodes: Episodes) -> dict[str, np.ndarray]:
    perfect = _total(episodes["perfect"])
    return {
        "total_perfect": perfect,
        "total_regret": 2.0 * (np.arange(1, perfect.size + 1) - perfect),
    }


def _mountain_car(episodes: Episodes) -> dict[str, np.ndarray]:
    return {"raw_return": -1.0 * _total(episodes["length"])}


_INFO: Mapping[str, Callable[[Episodes], dict[str, np.ndarray]]] = {
    "bandit": _bandit,
    "cartpole": _cartpole,
    "cartpole_swingup": _cartpole_swingup,
    "catch": _wrong,
    "deep_sea": _deep_sea,
    "deep_sea_stochastic": _deep_sea,
    "discounting_chain": lambda _: {},
    "memory_len": _memory,
    "memory_size": _memory,
    "mnist": _wrong,
    "mountain_car": _mountain_car,
    "umbrella_distract": _wrong,
    "umbrella_length": _wrong,
}
