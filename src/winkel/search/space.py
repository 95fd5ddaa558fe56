"""Search spaces: parameters and environments of a search, read from a TOML file and checked."""

import math
import tomllib
import typing
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from winkel.agents import AGENTS, VARIANTS
from winkel.errors import InputError, require_integer
from winkel.runs.configure import field_name

MILESTONES = 5
"""Points at which a trial is scored in each environment: after T/5, 2T/5, … T."""
PAPER_SPACES = ("bsuite", "vizdoom")


class SearchEnvironment(NamedTuple):
    """An environment of a search.

    Attributes:
        id: such as 'deep_sea/20' or 'gym:CartPole-v1'.
        episodes: horizon T in episodes, or None.
        steps: horizon T in steps, or None.
        score: a name from `problem.SCORES`, or 'module:function'.
    """

    id: str
    episodes: int | None
    steps: int | None
    score: str

    @property
    def by_steps(self) -> bool:
        """Whether the horizon is in steps."""
        return self.steps is not None

    def milestones(self) -> list[int]:
        """Return the episodes (or steps) after which a trial is scored."""
        horizon = self.episodes or self.steps or 0
        return [math.ceil(horizon * k / MILESTONES) for k in range(1, MILESTONES + 1)]


Parameter = list[Any] | dict[str, Any]
"""A list of values (numbers, names, or lists of widths), or a range: low, high, log, step. A range
of whole numbers has an int for low."""


class Space(NamedTuple):
    """The search space of one agent, all of it JSON.

    Attributes:
        parameters: by the agent's field.
        environments: in the order in which a trial trains in them.
        prune: whether to stop trials below the median.
        preset: name of settings that are not searched over.
    """

    parameters: Mapping[str, Parameter]
    environments: tuple[SearchEnvironment, ...]
    prune: bool
    preset: str | None

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the parameters as Optuna's distributions."""
        return {name: _distribution(part) for name, part in self.parameters.items()}

    def fields(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the agent's fields for the parameters of a trial in Optuna."""
        fields = dict(params)
        for name, part in self.parameters.items():
            if isinstance(part, list):
                value = part[labels(part).index(params[name])]
                fields[name] = tuple(value) if isinstance(value, list) else value
        return fields

    def values(self) -> dict[str, list[Any] | None]:
        """List the values of each parameter, as Optuna stores them; None for continuous ones."""
        return {name: _list_values(part) for name, part in self.distributions().items()}

    def size(self) -> int | float:
        """Count the configurations; ∞ with a continuous parameter."""
        return math.prod(math.inf if v is None else len(v) for v in self.values().values())

    def describe(self) -> dict[str, Any]:
        """Return the space as a table for JSON."""
        environments = [environment._asdict() for environment in self.environments]
        return self._asdict() | {"environments": environments}


def space_from(described: Mapping[str, Any]) -> Space:
    """Invert `Space.describe`."""
    environments = tuple(SearchEnvironment(**entry) for entry in described["environments"])
    return Space(**{**described, "environments": environments})


def labels(values: list[Any]) -> list[Any]:
    """Return listed values as Optuna stores them: lists as text."""
    return [", ".join(map(str, v)) if isinstance(v, list | tuple) else v for v in values]


def read_paper_space(name: str) -> str:
    """Read the file of one of the paper's spaces."""
    if name not in PAPER_SPACES:
        raise InputError(f"need a space from {', '.join(PAPER_SPACES)}, got {name!r}")
    return (resources.files("winkel.search") / "spaces" / f"{name}.toml").read_text("utf-8")


def load_space(source: str, agent: str) -> Space:
    """Load a space for an agent: one of the paper's by name, or a file."""
    try:
        known = source in PAPER_SPACES
        text = read_paper_space(source) if known else Path(source).read_text("utf-8")
        table = tomllib.loads(text)
    except FileNotFoundError as error:
        names = ", ".join(PAPER_SPACES)
        raise InputError(f"need a space from {names}, or a file, got {source!r}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {source}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not TOML ({error})") from error
    return _parse_space(table, agent, source)


def parse_environment(text: str) -> SearchEnvironment:
    """Parse an environment of the command line: 'deep_sea:size=6@100' or '…@100@visited'."""
    name, *rest = text.split("@")
    if len(rest) not in (1, 2) or not name or not rest[0].isdigit():
        raise InputError(f"need ID@EPISODES or ID@EPISODES@SCORE for --envs, got {text!r}")
    score = rest[1] if len(rest) == 2 else "visited"
    return _parse_environment({"id": name, "episodes": int(rest[0]), "score": score}, "--envs")


def _parse_space(table: dict[str, Any], agent: str, where: str) -> Space:
    _check_keys(table, ("environments", "spaces", "prune", "preset"), where)
    spaces = _require(dict, table.get("spaces"), f"{where}: [spaces.AGENT]")
    name = agent if agent in spaces else _base(agent)
    if name not in spaces:
        if name not in AGENTS:
            raise InputError(f"unknown agent {agent!r}; see `winkel list agents`")
        known = ", ".join(spaces) or "no agent"
        raise InputError(f"{where} has spaces for {known}, not for {agent}")
    entries = _require(dict, spaces[name], f"{where}: spaces.{name}")
    parameters = {}
    for field, entry in entries.items():
        try:
            plain = field_name(agent, field)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        parameters[plain] = _parse_parameter(agent, plain, entry, f"{where}: {plain}")
    environments = tuple(
        _parse_environment(_require(dict, entry, f"{where}: environments"), where)
        for entry in _require(list, table.get("environments"), f"{where}: [[environments]]")
    )
    ids = [environment.id for environment in environments]
    if not parameters or not ids or len(set(ids)) != len(ids):
        raise InputError(
            f"{where}: need at least one parameter and different environments, "
            f"got {list(parameters)} and {ids}"
        )
    preset = table.get("preset")
    return Space(
        parameters=parameters,
        environments=environments,
        prune=_require(bool, table.get("prune", True), f"{where}: prune"),
        preset=None if preset is None else _require(str, preset, f"{where}: preset"),
    )


def _parse_parameter(agent: str, field: str, entry: Any, what: str) -> Parameter:
    if isinstance(entry, list):
        if not entry or len(set(labels(entry))) != len(entry):
            raise InputError(f"need different values for {what}, at least one, got {entry}")
        return entry
    if not isinstance(entry, dict) or not {"low", "high"} <= entry.keys():
        raise InputError(f"need a list, or low and high, for {what}, got {entry!r}")
    _check_keys(entry, ("low", "high", "log", "step"), what)
    log = _require(bool, entry.get("log", False), f"{what}.log")
    kind = typing.get_type_hints(AGENTS[_base(agent)].config).get(field, float)
    if kind not in (int, float):
        raise InputError(f"need a list of values for {what}, which is no number, got {entry}")
    numbers = {}
    for key in entry.keys() - {"log"}:
        number = entry[key]
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InputError(f"need a number for {what}.{key}, got {number!r}")
        if not math.isfinite(number) or (kind is int and number != int(number)):
            right = "whole numbers" if kind is int else "finite numbers"
            raise InputError(f"need {right} for {what}, got {entry}")
        numbers[key] = int(number) if kind is int else float(number)
    try:
        _distribution(numbers | {"log": log})
    except ValueError as error:
        raise InputError(f"{what}: {error}") from error
    return numbers | {"log": log}


def _parse_environment(entry: dict[str, Any], where: str) -> SearchEnvironment:
    _check_keys(entry, ("id", "episodes", "steps", "score"), f"{where}: environments")
    name = _require(str, entry.get("id"), f"{where}: id of an environment")
    limits = {key: entry[key] for key in ("episodes", "steps") if key in entry}
    if len(limits) != 1:
        raise InputError(f"{where}: need episodes or steps for {name}, got {limits or 'neither'}")
    for key, value in limits.items():
        require_integer(f"{key} of {name}", value, at_least=MILESTONES)
    score = _require(str, entry.get("score", "visited"), f"{where}: score of {name}")
    return SearchEnvironment(name, limits.get("episodes"), limits.get("steps"), score)


def _distribution(part: Parameter) -> BaseDistribution:
    if isinstance(part, list):
        return CategoricalDistribution(labels(part))
    return (IntDistribution if isinstance(part["low"], int) else FloatDistribution)(**part)


def _list_values(part: BaseDistribution) -> list[Any] | None:
    if isinstance(part, CategoricalDistribution):
        return list(part.choices)
    if isinstance(part, IntDistribution):
        return list(range(part.low, part.high + 1, part.step))
    assert isinstance(part, FloatDistribution)
    if part.step is None:
        return None
    return [part.low + part.step * i for i in range(round((part.high - part.low) / part.step) + 1)]


def _base(agent: str) -> str:
    return VARIANTS[agent][0] if agent in VARIANTS else agent


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [key for key in table if key not in known]
    if unknown:
        raise InputError(f"{where}: unknown {unknown[0]!r}; need {', '.join(known)}")


def _require(kind: type, value: Any, what: str) -> Any:
    names = {dict: "a table", list: "a list", bool: "true or false", str: "a text"}
    if not isinstance(value, kind):
        raise InputError(f"need {names[kind]} for {what}, got {value!r:.60}")
    return value
