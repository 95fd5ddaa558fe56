"""What to search for: an agent, its parameters, environments with scores, and seeds for tuning."""

import json
import math
import re
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from optuna import distributions
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from winkel.agents import VARIANTS
from winkel.envs.base import Task
from winkel.envs.registry import is_outside
from winkel.errors import InputError, require_integer
from winkel.extensions import load_target, wrap_error
from winkel.files import read_toml
from winkel.runs.checkpoint import check_types
from winkel.runs.presets import preset_fields
from winkel.runs.spec import (
    MAX_RUNS,
    MAX_SEED,
    RunSpec,
    check_field_names,
    find_agent,
    make_spec,
    make_task,
)
from winkel.runs.train import check_run
from winkel.simulators.names import chooses_code
from winkel.types import OneHot
from winkel.version import __version__

FIRST_SEED = MAX_SEED + 1
"""First seed of tuning. `winkel train` and `winkel sweep` refuse it and those above, so no seed is
both tuned on and reported."""
MILESTONES = 5
"""Points at which a trial is scored in each environment: after T/5, 2T/5, … T."""
PAPER_SPACES = ("bsuite", "vizdoom")
_ENVIRONMENT = re.compile(r"([^@]+)@([0-9]+)(steps)?(?:@([^@]+))?")

Parameter = CategoricalDistribution | IntDistribution | FloatDistribution
Episodes = Mapping[str, np.ndarray]
"""All episodes of a run so far: arrays by name, such as 'return', 'length' and 'visited'."""


class SearchEnvironment(NamedTuple):
    """An environment, its horizon T in episodes or steps, and the name of its score."""

    id: str
    episodes: int | None = None
    steps: int | None = None
    score: str = "visited"

    def milestones(self) -> list[int]:
        """Return the episodes (or steps) after which a trial is scored."""
        horizon = self.episodes or self.steps or 0
        return [math.ceil(horizon * k / MILESTONES) for k in range(1, MILESTONES + 1)]


@dataclass(kw_only=True)
class Problem:
    """All that makes two searches the same; `check` raises if it cannot be searched."""

    agent: str
    parameters: Mapping[str, Parameter]
    """What to search over, by the agent's field; without `fields`."""
    environments: Sequence[SearchEnvironment]
    """In the order in which a trial trains in them."""
    prune: bool = True
    preset: str | None = None
    """Name of settings that are not searched over."""
    seeds: int = 1
    """Runs of each trial in each environment; a trial's score is their mean."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fixed fields of the agent."""
    version: str = __version__

    def __post_init__(self) -> None:
        self.parameters = {n: p for n, p in self.parameters.items() if n not in self.fields}
        ids = [entry.id for entry in self.environments]
        if not self.parameters or not ids or len(set(ids)) != len(ids):
            raise InputError(
                "need a parameter to search over that is not fixed, and different environments, "
                f"got {list(self.parameters)} and {ids}"
            )

    @cached_property
    def tasks(self) -> list[Task]:
        """The environments, made at their first use."""
        return [make_task(e.id) for e in self.environments]

    def check(self, trials: int) -> None:
        """Raise if an environment, a score, a value or the number of trials is impossible."""
        require_integer("seeds", self.seeds, at_least=1, at_most=MAX_RUNS)
        if require_integer("trials", trials, at_least=1) > self.size():
            raise InputError(
                f"need trials <= {self.size()}, the configurations of the space, got {trials}"
            )
        for task, entry in zip(self.tasks, self.environments, strict=True):
            find_score(entry.score)
            if entry.score == "visited" and not isinstance(task.env.observation, OneHot):
                raise InputError(f"need a score for {entry.id}, whose observations are not counted")
        for name, part in self.parameters.items():
            for value in (
                part.choices if isinstance(part, CategoricalDistribution) else (part.low, part.high)
            ):
                check_run(self.runs(0, {name: value})[0], num_lanes=1)

    def runs(self, environment: int, params: Mapping[str, Any]) -> list[RunSpec]:
        """Return the runs of a configuration in one of the environments, one for each seed."""
        task, entry = self.tasks[environment], self.environments[environment]
        preset = preset_fields(entry.id, self.agent, self.preset)
        fields = {**preset, **self.fields, **to_fields(params)}
        make = partial(
            make_spec, task, self.agent, fields, episodes=entry.episodes, steps=entry.steps
        )
        return [make(seed=seed) for seed in range(FIRST_SEED, FIRST_SEED + self.seeds)]

    def size(self) -> int | float:
        """Count the configurations; ∞ with a continuous parameter."""
        return math.prod(map(count_values, self.parameters.values()))

    def describe(self) -> dict[str, Any]:
        """Return as JSON all that makes two searches the same."""
        described = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return json.loads(json.dumps(described, default=distributions.distribution_to_json))

    @classmethod
    def from_description(cls, described: Any) -> "Problem":
        """Invert `describe`; ignore other entries. Environments and scores are not looked up."""
        entries = {entry.name: described[entry.name] for entry in fields(cls)}
        texts, read = entries["parameters"], distributions.json_to_distribution
        parts = {name: read(text) for name, text in texts.items()}
        environments = [SearchEnvironment(*entry) for entry in entries["environments"]]
        check_field_names([*parts, *entries["fields"]], entries["agent"])
        return cls(**entries | {"parameters": parts, "environments": environments})


def to_fields(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the agent's fields for parameters of Optuna, which stores lists as JSON."""
    return {
        name: tuple(json.loads(value)) if str(value).startswith("[") else value
        for name, value in params.items()
    }


def count_values(part: Parameter) -> int | float:
    """Count the values of a parameter; ∞ if it is continuous."""
    if isinstance(part, CategoricalDistribution):
        return len(part.choices)
    if part.step is None:
        return 1 if part.low == part.high else math.inf
    return round((part.high - part.low) / part.step) + 1


SCORES: dict[str, Callable[[Episodes], Any]] = {
    # Σ 1[visited(s, a)]: state-actions visited; needs countable observations
    "visited": lambda episodes: episodes["visited"][-1],
    # Σ −1: negative number of steps, for tasks that end when they are solved
    "interactions": lambda episodes: -np.sum(episodes["length"]),
    # of the last tenth of the episodes, at least one
    "final_return": lambda episodes: np.mean(
        episodes["return"][-max(len(episodes["return"]) // 10, 1) :]
    ),
    "mean_return": lambda episodes: np.mean(episodes["return"]),
}


def find_score(name: str) -> Callable[[Episodes], float]:
    """Return a score by name, or the user's function 'module:function'."""
    if name in SCORES:
        return SCORES[name]
    if ":" not in name:
        raise InputError(f"need a score from {', '.join(SCORES)}, or module:function, got {name!r}")
    return load_target(name)


def score_episodes(name: str, episodes: Episodes) -> float:
    """Score a run and check that the result is a finite number; −∞ without any episode."""
    if not len(episodes.get("return", ())):
        return -math.inf
    try:
        value = find_score(name)(episodes)
    except Exception as error:
        raise wrap_error(error, f"the score {name}") from error
    if not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise InputError(f"need a finite number from the score {name}, got {value!r:.60}")
    return float(value)


def find_space(source: str) -> Path:
    """The file of one of the paper's spaces by name, or a file of your own."""
    own = Path(__file__).with_name("spaces") / f"{source}.toml"
    path = own if source in PAPER_SPACES else Path(source)
    if not path.is_file():
        names = ", ".join(PAPER_SPACES)
        raise InputError(f"need a space from {names}, or a file, got {source!r}")
    return path


def load_problem(source: str, agent: str, envs: Sequence[str] = (), **options: Any) -> Problem:
    """Load a problem for an agent from one of the paper's spaces by name, or from a file.

    `envs`, such as 'deep_sea:size=6@100' or 'mountain_car/0@50@interactions', replace the file's
    environments; `options` are other attributes of `Problem`.
    """
    table = read_toml(find_space(source))
    kinds = {"environments": list, "spaces": dict, "prune": bool, "preset": str}
    _check_table(table, kinds, source)
    spaces = table.get("spaces", {})
    check_types(spaces, dict.fromkeys(spaces, dict), f"spaces of {source}")
    name = agent if agent in spaces else VARIANTS.get(agent, (agent,))[0]
    check_field_names(spaces.get(name, ()), agent)
    if name not in spaces:
        known_agents = ", ".join(spaces) or "no agent"
        raise InputError(f"{source} has spaces for {known_agents}, not for {agent}")
    environments = [parse_environment(text) for text in envs]
    for entry in () if envs else table.get("environments", ()):
        found = _parse_environment(entry, source)
        if (is_outside(found.id) and chooses_code(found.id)) or ":" in found.score:
            raise InputError(
                f"{source} names code, which runs only if you name it: "
                f"--envs {found.id}@EPISODES@{found.score}"
            )
        environments.append(found)
    parameters = {
        field: parse_parameter(agent, field, entry, f"{source}: {field}")
        for field, entry in spaces[name].items()
    }
    fixed = {key: table[key] for key in ("prune", "preset") if key in table}
    return Problem(
        agent=agent, parameters=parameters, environments=environments, **fixed, **options
    )


def parse_environment(text: str) -> SearchEnvironment:
    """Parse an environment of the command line: 'deep_sea:size=6@100' or '…@900steps@visited'."""
    parts = _ENVIRONMENT.fullmatch(text)
    if parts is None:
        raise InputError(f"need ID@EPISODES or ID@STEPSsteps, and @SCORE, for --envs, got {text!r}")
    name, count, unit, score = parts.groups()
    entry = {"id": name, unit or "episodes": int(count), "score": score or "visited"}
    return _parse_environment(entry, "--envs")


def parse_parameter(agent: str, field: str, entry: Any, what: str) -> Parameter:
    """Parse a list of values (numbers, names, or lists of widths), or a range with low and high."""
    if isinstance(entry, list):
        choices = [json.dumps(v) if isinstance(v, list | dict) else v for v in entry]
        if not choices or len(set(choices)) != len(choices):
            raise InputError(f"need different values for {what}, at least one, got {entry}")
        return CategoricalDistribution(choices)
    if not isinstance(entry, dict) or not {"low", "high"} <= entry.keys():
        raise InputError(f"need a list, or low and high, for {what}, got {entry!r}")
    number = int | float
    _check_table(entry, {"low": number, "high": number, "log": bool, "step": number}, what)
    kind = typing.get_type_hints(find_agent(agent)[0].config_type).get(field, float)
    if kind not in (int, float):
        raise InputError(f"need a list of values for {what}, which is no number, got {entry}")
    numbers = {key: value for key, value in entry.items() if key != "log"}
    if not all(math.isfinite(value) and value == kind(value) for value in numbers.values()):
        right = "whole" if kind is int else "finite"
        raise InputError(f"need {right} numbers for {what}, got {entry}")
    distribution = IntDistribution if kind is int else FloatDistribution
    numbers = {key: kind(value) for key, value in numbers.items()}
    try:
        with warnings.catch_warnings(action="ignore"):  # of another high
            made = distribution(**numbers, log=entry.get("log", False))
    except ValueError as error:
        raise InputError(f"{what}: {error}") from error
    if made.high != numbers["high"]:
        raise InputError(f"need high - low to be a multiple of step for {what}, got {entry}")
    return made


def _parse_environment(entry: Any, where: str) -> SearchEnvironment:
    kinds = {"id": str, "episodes": int, "steps": int, "score": str}
    _check_table(entry, kinds, f"{where}: environments")
    limits = [key for key in ("episodes", "steps") if key in entry]
    if "id" not in entry or len(limits) != 1:
        raise InputError(f"{where}: need id, and episodes or steps, of an environment, got {entry}")
    require_integer(f"{limits[0]} of {entry['id']}", entry[limits[0]], at_least=MILESTONES)
    return SearchEnvironment(**entry)


def _check_table(table: Any, kinds: Mapping[str, Any], where: str) -> None:
    """Raise if a table of a file has other keys than these, or values of other types."""
    check_types(table, {}, where, kinds)
    for key in table.keys() - kinds.keys():
        raise InputError(f"{where}: unknown {key!r}; need {', '.join(kinds)}")
