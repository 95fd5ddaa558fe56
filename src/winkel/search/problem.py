"""What to search for: an agent, a space, scores of its runs, and seeds that no report uses."""

import importlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from winkel.envs.base import Task
from winkel.errors import InputError, require_integer
from winkel.runs.configure import Configured, configure, field_name
from winkel.runs.presets import preset_fields
from winkel.runs.spec import MAX_SEED, make_horizon
from winkel.runs.train import make_task
from winkel.search.space import Space
from winkel.training.steps import Plan
from winkel.types import OneHot

FIRST_SEED = MAX_SEED + 1
"""First seed of tuning. `winkel train` and `winkel sweep` refuse it and those above, so no seed is
both tuned on and reported."""

Episodes = Mapping[str, np.ndarray]
"""All episodes of a run so far: arrays by name, such as 'return', 'length' and 'visited'."""
Score = Callable[[Episodes], float]


@dataclass(kw_only=True)
class Problem:
    """A search before it begins.

    Attributes:
        agent: a name from `winkel list agents`.
        space: parameters and environments; without `fields` after construction.
        seeds: runs of each trial in each environment; a trial's score is their mean.
        fields: fixed fields of the agent.
        mnist_dir: folder of MNIST's files.
        tasks: the environments.
    """

    agent: str
    space: Space
    seeds: int = 1
    fields: Mapping[str, Any] = field(default_factory=dict)
    mnist_dir: Path | None = None
    tasks: tuple[Task, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if require_integer("seeds", self.seeds, at_least=1) > FIRST_SEED:
            raise InputError(f"need seeds <= {FIRST_SEED}, got {self.seeds}")
        fixed = {field_name(self.agent, name): value for name, value in self.fields.items()}
        free = {name: p for name, p in self.space.parameters.items() if name not in fixed}
        if not free:
            raise InputError(f"need a parameter to search over, got all fixed: {', '.join(fixed)}")
        self.fields, self.space = fixed, self.space._replace(parameters=free)
        environments = self.space.environments
        self.tasks = tuple(
            make_task(environment.id, self.agent, fixed, self.mnist_dir)
            for environment in environments
        )
        for task, environment in zip(self.tasks, environments, strict=True):
            find_score(environment.score)
            if environment.score == "visited" and not isinstance(task.env.observation, OneHot):
                raise InputError(
                    f"need a score for {environment.id}, whose observations are not counted"
                )
        for name, part in free.items():  # refuse impossible values before the search
            for value in part if isinstance(part, list) else (part["low"], part["high"]):
                self.configure(0, {name: tuple(value) if isinstance(value, list) else value})

    def describe(self) -> dict[str, Any]:
        """Return as JSON all that makes two searches the same."""
        return {
            "agent": self.agent,
            "seeds": self.seeds,
            "fields": dict(self.fields),
            "space": self.space.describe(),
        }

    def configure(self, environment: int, values: Mapping[str, Any]) -> Configured:
        """Configure the agent for one of the environments."""
        name = self.space.environments[environment].id
        preset = preset_fields(name, self.agent, self.space.preset)
        return configure(self.agent, {**preset, **self.fields, **values}, self.tasks[environment])

    def plans(self, environment: int, configured: Configured) -> list[Plan]:
        """Plan the runs of a configuration in one of the environments, one for each seed."""
        task, entry = self.tasks[environment], self.space.environments[environment]
        return [
            Plan(
                params=task.params,
                hyper=configured.hyper,
                horizon=make_horizon(task, entry.episodes, entry.steps),
                seed=FIRST_SEED + number,
                copy=task.copy,
                fan_in=task.inputs,
            )
            for number in range(self.seeds)
        ]


def visited(episodes: Episodes) -> float:
    """Σ 1[visited(s, a)]: state-actions visited; needs countable observations."""
    if "visited" not in episodes:
        raise InputError("need countable observations (such as deep_sea's) to score by visited")
    return float(episodes["visited"][-1])


def interactions(episodes: Episodes) -> float:
    """Σ −1: negative number of steps, for tasks that end when they are solved."""
    return -float(np.sum(episodes["length"]))


def final_return(episodes: Episodes) -> float:
    """Mean return of the last tenth of the episodes, at least one."""
    returns = episodes["return"]
    return float(np.mean(returns[-max(len(returns) // 10, 1) :]))


def mean_return(episodes: Episodes) -> float:
    """Mean return of all episodes."""
    return float(np.mean(episodes["return"]))


SCORES: Mapping[str, Score] = {
    "visited": visited,
    "interactions": interactions,
    "final_return": final_return,
    "mean_return": mean_return,
}


def find_score(name: str) -> Score:
    """Return a score by name, or the user's function 'module:function'."""
    if name in SCORES:
        return SCORES[name]
    module, _, function = name.partition(":")
    if not module or not function:
        raise InputError(f"need a score from {', '.join(SCORES)}, or module:function, got {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot find the score {name}: {error}") from error
    if not callable(found):
        raise InputError(f"need a function of a run's episodes for a score, got {name} = {found!r}")
    return found


def score_episodes(name: str, episodes: Episodes) -> float:
    """Score a run and check that the result is a finite number; −∞ without any episode."""
    if not len(episodes.get("return", ())):
        return -math.inf
    value = find_score(name)(episodes)
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise InputError(f"need a number from the score {name}, got {value!r:.60}")
    if not math.isfinite(value):
        raise InputError(f"need a finite number from the score {name}, got {value}")
    return float(value)
