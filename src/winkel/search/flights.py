"""A trial under way: where it is, what its runs have brought, what they are worth."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from optuna.trial import Trial

from winkel.errors import InputError
from winkel.runs.spec import Configured
from winkel.search.problem import Problem
from winkel.search.pruning import LOOKS
from winkel.search.scores import checked_score
from winkel.training.lanes import Arrays, Report


@dataclass
class Course:
    """One run of a trial in the environment where the trial is."""

    episodes: list[Arrays] = field(default_factory=list)
    num_episodes: int = 0
    env_steps: int = 0
    updates: int = 0
    progress: float = 0.0
    finished: bool = False

    def add(self, report: Report) -> None:
        """What a chunk of steps brought."""
        if report.episodes:
            self.episodes.append(report.episodes)
        self.num_episodes, self.env_steps = report.num_episodes, report.env_steps
        self.updates, self.progress = report.updates, report.progress
        self.finished = report.finished

    def until(self, episodes: int | None, steps: int | None) -> Arrays:
        """The first so many episodes, or those that had ended after so many steps."""
        if not self.episodes:
            return {}
        self.episodes = [
            {k: np.concatenate([part[k] for part in self.episodes]) for k in self.episodes[0]}
        ]
        table = self.episodes[0]
        if steps is not None:
            episodes = int(np.searchsorted(table["env_steps"], steps, side="right"))
        return {name: column[:episodes] for name, column in table.items()}


@dataclass
class Flight:
    """A trial under way, in one environment after the other."""

    trial: Trial
    values: dict[str, Any]
    environment: int = 0
    looks: int = 0
    """Made in this environment."""
    courses: list[Course] = field(default_factory=list)
    spent: dict[str, int] = field(default_factory=lambda: {"updates": 0, "steps": 0})
    """In environments that are done."""

    @property
    def number(self) -> int:
        """Optuna's."""
        return self.trial.number

    def configured(self, problem: Problem) -> Configured:
        """The agent, where the trial is."""
        return problem.configured(self.environment, self.values)

    def due(self, problem: Problem) -> bool:
        """Whether all its runs have come to the next look."""
        where = problem.space.environments[self.environment]
        if self.looks == LOOKS:
            return False
        point = where.looks()[self.looks]
        return all(
            c.finished or (c.num_episodes if where.steps is None else c.env_steps) >= point
            for c in self.courses
        )

    def look(self, problem: Problem) -> float:
        """The next look: the mean score over seeds; −∞ where one has no episode yet."""
        where, score = (
            problem.space.environments[self.environment],
            problem.scores[self.environment],
        )
        point = where.looks()[self.looks]
        limits = (point, None) if where.steps is None else (None, point)
        found = [checked_score(where.score, score, c.until(*limits)) for c in self.courses]
        self.looks += 1
        if self.looks == LOOKS and not np.isfinite(found).all():
            raise InputError(f"no episode of {where.id} ended within its horizon")
        return float(np.mean(found))

    def total(self) -> dict[str, int]:
        """Updates and steps made in all."""
        return {
            "updates": self.spent["updates"] + sum(c.updates for c in self.courses),
            "steps": self.spent["steps"] + sum(c.env_steps for c in self.courses),
        }

    def move_on(self) -> None:
        """To the next environment."""
        self.spent, self.courses = self.total(), []
        self.environment, self.looks = self.environment + 1, 0

    def share(self, environments: int) -> float:
        """What is done of it."""
        here = float(np.mean([c.progress for c in self.courses])) if self.courses else 0.0
        return (self.environment + here) / environments
