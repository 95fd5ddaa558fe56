"""When a trial is stopped: below the median of its environment, at one of the looks.

Optuna's own median pruner compares the best value that a trial has had with the median of trials
that are complete. Neither fits: the negative number of interactions is best at the first look and
falls from there, scores of three environments are no one quantity, and of trials that run side by
side none is complete when the first could be stopped.
"""

from collections.abc import Iterable, Mapping

import numpy as np

STARTUP = 5
"""Other trials that must have been looked at before any is stopped, as of Optuna's pruner."""
LOOKS = 5
"""Of each environment, at T/5, 2T/5, … T."""


def step_of(environment: int, look: int) -> int:
    """Number under which Optuna keeps a look (from 1) at an environment (from 0)."""
    return environment * LOOKS + look


def is_below_median(value: float, others: Iterable[float], startup: int = STARTUP) -> bool:
    """Whether a value is below the median of others, where there are enough of them."""
    known = np.fromiter(others, float)
    return len(known) >= startup and value < float(np.median(known))


def standing(looks: Mapping[int, float], step: int, stopped: bool) -> float | None:
    """What another trial counts for at a step: its score there, −∞ if it was stopped before.

    Only what happened in the same environment counts; None where a trial has not come so far.

    Args:
        looks: the trial's scores by step.
        step: which.
        stopped: whether it was pruned.
    """
    if step in looks:
        return looks[step]
    environment = (step - 1) // LOOKS
    inside = [s for s in looks if (s - 1) // LOOKS == environment and s < step]
    last = max(looks, default=0)
    return -np.inf if stopped and inside and last in inside else None
