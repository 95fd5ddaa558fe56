"""Scoring functions f(ζ) of appendix B.1: what a run's episodes are worth; more is better."""

import importlib
import math
import os
import sys
from collections.abc import Callable, Mapping

import numpy as np

from winkel.errors import InputError

Episodes = Mapping[str, np.ndarray]
"""All episodes of a run so far: arrays by name, such as 'return', 'length' and 'seen'."""
Score = Callable[[Episodes], float]


def visited(episodes: Episodes) -> float:
    """Σ 1[visited(s, a)]: the state-actions seen; only where observations are countable."""
    if "seen" not in episodes:
        raise InputError("need countable observations (such as deep_sea's) to score by visited")
    return float(episodes["seen"][-1])


def interactions(episodes: Episodes) -> float:
    """Σ −1: the negative number of steps, for tasks that end when they are solved."""
    return -float(np.sum(episodes["length"]))


def final_return(episodes: Episodes) -> float:
    """The mean return of the last tenth of the episodes, at least one."""
    returns = episodes["return"]
    return float(np.mean(returns[-max(len(returns) // 10, 1) :]))


def mean_return(episodes: Episodes) -> float:
    """The mean return of all episodes."""
    return float(np.mean(episodes["return"]))


SCORES: Mapping[str, Score] = {
    "visited": visited,
    "interactions": interactions,
    "final_return": final_return,
    "mean_return": mean_return,
}


def score_of(name: str) -> Score:
    """The score of a name, or a function of one's own: 'module:function'."""
    if name in SCORES:
        return SCORES[name]
    module, colon, function = name.partition(":")
    known = ", ".join(SCORES)
    if not colon or not module or not function:
        raise InputError(f"need a score from {known}, or module:function, got {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot find the score {name}: {error}") from error
    if not callable(found):
        raise InputError(f"need a function of a run's episodes for a score, got {name} = {found!r}")
    return found


def checked_score(name: str, score: Score, episodes: Episodes) -> float:
    """What a score says, which must be a finite number; −∞ of no episode."""
    if not len(episodes.get("return", ())):
        return -math.inf
    value = score(episodes)
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise InputError(f"need a number from the score {name}, got {value!r:.60}")
    if not math.isfinite(value):
        raise InputError(f"need a finite number from the score {name}, got {value}")
    return float(value)
