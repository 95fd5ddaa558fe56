"""Tasks whose environment is not winkel's own: simulators, and environments written in JAX.

Their range of returns is unknown. If an agent needs it and the user sets none, γ and the rewards of
a random policy give it.
"""

import shlex
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from winkel.envs.base import Task
from winkel.errors import InputError
from winkel.simulators import names

RANDOM_STEPS = 1_000
"""Steps of a random policy from which a range of returns is estimated."""
UNKNOWN = (-1.0, 1.0)
"""The range of returns if a random policy meets no reward."""
MARGIN = 0.1
"""Fraction of an estimated range that is added at each end."""

Rewards = tuple[tuple[float, float], tuple[float, float]]
"""Lowest and highest rewards within episodes, and those of transitions that end one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OutsideTask(Task):
    """An environment of other code.

    Attributes:
        named: whether the user has named it; if not, a run's folder has.
        notice: gets a sentence before rewards are measured.
    """

    named: bool = True
    notice: Callable[[str], None] = lambda _: None

    @abstractmethod
    def measure_rewards(self) -> Rewards:
        """Return the rewards of a random policy in `RANDOM_STEPS` steps."""

    @abstractmethod
    def named_as(self, env: Any) -> "OutsideTask":
        """Return the task of what the user names instead, with the shapes of this one."""

    @cached_property
    def rewards(self) -> Rewards:
        """The rewards of a random policy, measured once."""
        self.notice(
            f"measuring rewards of a random policy in {RANDOM_STEPS:,} steps of {self.id}; "
            "--z-min and --z-max make it unnecessary"
        )
        return self.measure_rewards()

    @property
    def range_origin(self) -> str:
        """How the range of returns was estimated."""
        if self.rewards == ((0.0, 0.0), (0.0, 0.0)):
            return "though a random policy met no reward"
        return "by a random policy's rewards"

    def return_range(self, gamma: float) -> tuple[float, float]:
        """Return the range of discounted returns, estimated from the rewards of a random policy."""
        if not self.named:
            return super().return_range(gamma)
        return estimate_range(*self.rewards, gamma)


def check_named(name: str, named: bool) -> None:
    """Raise if only the folder of a run names an environment, and its name chooses code to run."""
    if not named and names.chooses_code(name):
        raise InputError(
            f"the run names the environment {name!r}, which winkel starts only if you name "
            f"it: add --env {shlex.quote(name)} (in Python: winkel.load(…, env={name!r}))"
        )


def confirm(task: Task, env: Any) -> Task:
    """Return the task of a run, now named by the user as `env`; raise if that is another one."""
    own, named = task.id, env
    if isinstance(task, OutsideTask):
        own, task = names.split(own)[0], task.named_as(env)
        named = task.id
    if named != own:
        raise InputError(f"need the environment of the run, {own!r}, got {named!r}")
    return task


def reward_ends(reward: np.ndarray, ended: np.ndarray) -> Rewards:
    """Return the lowest and highest rewards where `ended` is false, and where it is true.

    0 is always between them.
    """
    running, final = (np.append(reward[which], 0.0) for which in (~ended, ended))
    return (float(running.min()), float(running.max())), (float(final.min()), float(final.max()))


def estimate_range(
    running: tuple[float, float], final: tuple[float, float], gamma: float
) -> tuple[float, float]:
    """Return the range of returns as if rewards within an episode were paid at every step.

    `running` and `final` are the lowest and the highest reward within episodes and on their last
    transitions. The range has a margin except at 0; it is `UNKNOWN` if all rewards are 0.
    """
    if gamma >= 1.0:
        raise InputError("need gamma < 1 to estimate the range of returns, got 1")
    low, high = (running[end] / (1.0 - gamma) + final[end] for end in (0, 1))
    if low == high:
        return UNKNOWN
    margin = MARGIN * (high - low)
    return low - margin * (low < 0.0), high + margin * (high > 0.0)
