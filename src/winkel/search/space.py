"""What is searched over, where, and by which score: a TOML file, checked."""

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from winkel.agents import AGENTS, VARIANTS
from winkel.errors import InputError, require_integer
from winkel.runs.spec import field_name
from winkel.search.pruning import LOOKS
from winkel.search.scores import score_of

PAPER_SPACES = ("bsuite", "vizdoom")


class Choice(NamedTuple):
    """One of some values: numbers, names, or lists (of widths)."""

    values: tuple[Any, ...]

    @property
    def labels(self) -> tuple[Any, ...]:
        """As Optuna keeps them: lists as text."""
        return tuple(_label(value) for value in self.values)

    def value(self, kept: Any) -> Any:
        """The value that Optuna keeps so."""
        return self.values[self.labels.index(kept)]


class Range(NamedTuple):
    """Numbers between two bounds, whole ones where `whole`."""

    low: float
    high: float
    log: bool
    step: float | None
    whole: bool

    def value(self, kept: Any) -> Any:
        """The value that Optuna keeps so."""
        return int(kept) if self.whole else float(kept)


class Where(NamedTuple):
    """An environment of a search.

    Attributes:
        id: such as 'deep_sea/20' or 'gym:CartPole-v1'.
        episodes: the horizon T in episodes, or None.
        steps: the horizon in steps, or None.
        score: a name from `SCORES`, or 'module:function'.
    """

    id: str
    episodes: int | None
    steps: int | None
    score: str

    def looks(self) -> list[int]:
        """Episodes (or steps) after which it is looked at: T/5, 2T/5, … T."""
        horizon = self.episodes or self.steps or 0
        return [math.ceil(horizon * k / LOOKS) for k in range(1, LOOKS + 1)]


class Space(NamedTuple):
    """A search space of one agent.

    Attributes:
        parameters: by the agent's field.
        environments: in the order in which a trial goes through them.
        prune: whether trials below the median are stopped.
        preset: settings that are not searched over, by name.
    """

    parameters: Mapping[str, Choice | Range]
    environments: tuple[Where, ...]
    prune: bool
    preset: str | None

    def fields(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """The agent's fields from what Optuna keeps of a trial."""
        return {name: self.parameters[name].value(kept[name]) for name in self.parameters}

    def describe(self) -> dict[str, Any]:
        """The same as JSON: equal for equal spaces."""
        return {
            "parameters": {name: list(part) for name, part in sorted(self.parameters.items())},
            "environments": [where._asdict() for where in self.environments],
            "prune": self.prune,
            "preset": self.preset,
        }


def paper_text(name: str) -> str:
    """The file of one of the paper's spaces."""
    if name not in PAPER_SPACES:
        raise InputError(f"need a space from {', '.join(PAPER_SPACES)}, got {name!r}")
    return (resources.files("winkel.search") / "spaces" / f"{name}.toml").read_text("utf-8")


def load_space(source: str, agent: str) -> Space:
    """One of the paper's spaces by name, or that of a file, for an agent."""
    if source in PAPER_SPACES:
        text, where = paper_text(source), f"space {source}"
    else:
        where = source
        try:
            text = Path(source).read_text("utf-8")
        except FileNotFoundError as error:
            names = ", ".join(PAPER_SPACES)
            raise InputError(f"need a space from {names}, or a file, got {source!r}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {source}: {error}") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not TOML ({error})") from error
    return _space(table, agent, where)


def space_from(described: Mapping[str, Any]) -> Space:
    """The space that `Space.describe` described."""
    parameters: dict[str, Choice | Range] = {}
    for name, part in described["parameters"].items():
        if len(part) == 1:
            values = tuple(tuple(v) if isinstance(v, list) else v for v in part[0])
            parameters[name] = Choice(values)
        else:
            parameters[name] = Range(*part)
    environments = tuple(Where(**where) for where in described["environments"])
    return Space(parameters, environments, described["prune"], described["preset"])


def environment(text: str, where: str = "--envs") -> Where:
    """An environment as the command line has it: 'deep_sea:size=6@100' or '…@100@visited'."""
    name, *rest = text.split("@")
    if len(rest) not in (1, 2) or not name or not rest[0].isdigit():
        raise InputError(f"need ID@EPISODES or ID@EPISODES@SCORE for {where}, got {text!r}")
    score = rest[1] if len(rest) == 2 else "visited"
    return _where({"id": name, "episodes": int(rest[0]), "score": score}, where)


def _space(table: dict[str, Any], agent: str, where: str) -> Space:
    _only(table, ("environments", "spaces", "prune", "preset"), where)
    spaces = _a(dict, table.get("spaces"), f"{where}: [spaces.AGENT]")
    base = VARIANTS[agent][0] if agent in VARIANTS else agent
    name = agent if agent in spaces else base
    if name not in spaces:
        known = [*AGENTS, *VARIANTS]
        if agent not in known:
            raise InputError(f"unknown agent {agent!r}; see `winkel list agents`")
        raise InputError(f"{where} has spaces for {', '.join(spaces) or 'nobody'}, not for {agent}")
    given = _a(dict, spaces[name], f"{where}: spaces.{name}")
    if not given:
        raise InputError(f"{where}: need at least one parameter in spaces.{name}, got none")
    parameters = {}
    for field, entry in given.items():
        try:
            plain = field_name(agent, field)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        parameters[plain] = _parameter(agent, plain, entry, where)
    entries = _a(list, table.get("environments"), f"{where}: [[environments]]")
    if not entries:
        raise InputError(f"{where}: need at least one environment, got none")
    found = tuple(_where(_a(dict, entry, f"{where}: environments"), where) for entry in entries)
    if len({entry.id for entry in found}) != len(found):
        raise InputError(f"{where}: need different environments, got {[e.id for e in found]}")
    preset = table.get("preset")
    return Space(
        parameters=parameters,
        environments=found,
        prune=_a(bool, table.get("prune", True), f"{where}: prune"),
        preset=None if preset is None else _a(str, preset, f"{where}: preset"),
    )


def _parameter(agent: str, field: str, entry: Any, where: str) -> Choice | Range:
    what = f"{where}: {field}"
    if isinstance(entry, list):
        values = tuple(tuple(v) if isinstance(v, list) else v for v in entry)
        if not values or len({_label(v) for v in values}) != len(values):
            raise InputError(f"need different values for {what}, at least one, got {entry}")
        return Choice(values)
    if not isinstance(entry, dict):
        raise InputError(f"need a list, or low and high, for {what}, got {entry!r}")
    _only(entry, ("low", "high", "log", "step"), what)
    low, high = (_number(entry.get(end), f"{what}.{end}") for end in ("low", "high"))
    log = _a(bool, entry.get("log", False), f"{what}.log")
    step = None if entry.get("step") is None else _number(entry["step"], f"{what}.step")
    if not low < high:
        raise InputError(f"need low < high for {what}, got {low:g} and {high:g}")
    if log and low <= 0:
        raise InputError(f"need low > 0 for {what} with log = true, got {low:g}")
    if step is not None and (log or step <= 0):
        raise InputError(f"need step > 0, and not with log = true, for {what}, got {step:g}")
    base = VARIANTS[agent][0] if agent in VARIANTS else agent
    hints = {f.name: f.type for f in dataclasses.fields(AGENTS[base].config)}
    whole = hints.get(field) in (int, "int")
    if whole and any(x != int(x) for x in (low, high, step or 1)):
        raise InputError(f"need whole numbers for {what}, got {entry}")
    if field in hints and not whole and hints[field] not in (float, "float"):
        raise InputError(f"need a list of values for {what}, which is no number, got {entry}")
    return Range(low=low, high=high, log=log, step=step, whole=whole)


def _where(entry: dict[str, Any], where: str) -> Where:
    _only(entry, ("id", "episodes", "steps", "score"), f"{where}: environments")
    name = _a(str, entry.get("id"), f"{where}: id of an environment")
    limits = {key: entry[key] for key in ("episodes", "steps") if key in entry}
    if len(limits) != 1:
        raise InputError(f"{where}: need episodes or steps for {name}, got {limits or 'neither'}")
    for key, value in limits.items():
        require_integer(f"{key} of {name}", value, at_least=LOOKS)
    score = _a(str, entry.get("score", "visited"), f"{where}: score of {name}")
    score_of(score)
    return Where(name, limits.get("episodes"), limits.get("steps"), score)


def _label(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else value


def _only(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [key for key in table if key not in known]
    if unknown:
        raise InputError(f"{where}: unknown {unknown[0]!r}; need {', '.join(known)}")


def _a(kind: type, value: Any, what: str) -> Any:
    names = {dict: "a table", list: "a list", bool: "true or false", str: "a text"}
    if not isinstance(value, kind):
        raise InputError(f"need {names[kind]} for {what}, got {value!r:.60}")
    return value


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"need a finite number for {what}, got {value!r}")
    return float(value)
