"""What a search is about: an agent, a space, environments, and seeds that no report uses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from winkel.envs.host import HostTask
from winkel.envs.registry import Task
from winkel.errors import InputError, require_integer
from winkel.runs.spec import Configured, configure, field_name
from winkel.runs.train import MAX_SEED, horizon_of, preset_fields, task_of
from winkel.search.scores import Score, score_of
from winkel.search.space import Choice, Space
from winkel.training.lanes import Plan
from winkel.training.steps import Horizon
from winkel.types import OneHot

FIRST_SEED = MAX_SEED + 1
"""Of tuning. `winkel train` and `winkel sweep` take no seed from here on, so that what was tuned
for is never what is reported."""
MOST_SEEDS = 2**31


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A search, before it begins.

    Attributes:
        agent: a name from `winkel list agents`.
        space: what to search over, and where.
        seeds: runs of each trial in each environment; their mean is its score.
        fields: the agent's fields that are fixed; they leave the space.
        mnist_dir: where MNIST's files are.
    """

    agent: str
    space: Space
    seeds: int = 1
    fields: Mapping[str, Any] = field(default_factory=dict)
    mnist_dir: Path | None = None
    tasks: tuple[Task | HostTask, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if require_integer("seeds", self.seeds, at_least=1) > MOST_SEEDS:
            raise InputError(f"need seeds <= {MOST_SEEDS}, got {self.seeds}")
        fixed = {field_name(self.agent, name): value for name, value in self.fields.items()}
        left = {k: part for k, part in self.space.parameters.items() if k not in fixed}
        if not left:
            raise InputError(f"need a parameter to search over, got all fixed: {', '.join(fixed)}")
        object.__setattr__(self, "fields", fixed)
        object.__setattr__(self, "space", self.space._replace(parameters=left))
        tasks = [task_of(w.id, self.agent, fixed, self.mnist_dir) for w in self.space.environments]
        object.__setattr__(self, "tasks", tuple(tasks))
        for task, where in zip(tasks, self.space.environments, strict=True):
            if where.score == "visited" and not isinstance(task.env.observation, OneHot):
                raise InputError(f"need a score for {where.id}, whose observations are not counted")
        for values in self._extremes():
            self.configured(0, values)

    @property
    def scores(self) -> tuple[Score, ...]:
        """Of the environments."""
        return tuple(score_of(where.score) for where in self.space.environments)

    def identity(self) -> dict[str, Any]:
        """All that makes a study this search and no other."""
        return {
            "agent": self.agent,
            "seeds": self.seeds,
            "fields": dict(self.fields),
            "space": self.space.describe(),
        }

    def configured(self, environment: int, values: Mapping[str, Any]) -> Configured:
        """The agent of a configuration in one of the environments."""
        where = self.space.environments[environment]
        preset = preset_fields(where.id, self.agent, self.space.preset)
        return configure(self.agent, {**preset, **self.fields, **values}, self.tasks[environment])

    def plans(self, environment: int, configured: Configured) -> list[Plan]:
        """The runs of a configuration in one of the environments."""
        task, where = self.tasks[environment], self.space.environments[environment]
        horizon: Horizon = horizon_of(task, where.episodes, where.steps)
        return [
            Plan(
                params=task.params,
                hyper=configured.hyper,
                horizon=horizon,
                seed=FIRST_SEED + number,
                copy=task.copy,
                fan_in=task.inputs,
            )
            for number in range(self.seeds)
        ]

    def _extremes(self) -> Iterator[dict[str, Any]]:
        """Every value of a list and both ends of a range, one at a time."""
        for name, part in self.space.parameters.items():
            ends = part.values if isinstance(part, Choice) else (part.low, part.high)
            for value in ends:
                yield {name: value if isinstance(part, Choice) else part.value(value)}
