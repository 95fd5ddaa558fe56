"""From names and numbers to an agent: fields checked, defaults filled in, everything described."""

import dataclasses
import difflib
import hashlib
import json
import math
import numbers
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from winkel.agents import AGENTS, VARIANTS
from winkel.agents.base import Agent, Kind, Spec, check_number
from winkel.envs.task import Task
from winkel.errors import InputError


class Configured(NamedTuple):
    """An agent for an environment, ready to train.

    Attributes:
        name: what it is called: the agent's or the variant's.
        agent: with its static settings.
        hyper: its hyperparameters, all of them numbers.
    """

    name: str
    agent: Agent
    hyper: Any


def configure(name: str, overrides: Mapping[str, Any], task: Task) -> Configured:
    """The named agent or variant with some fields of its `Config` or `Hyper` replaced.

    The categorical support, where not given, is the range of the environment's returns.
    """
    kind, preset = _find(name)
    fields = dict(preset)
    for field, value in overrides.items():
        fields[field_name(name, field)] = value
    static = {f.name for f in dataclasses.fields(kind.config)}
    hints = typing.get_type_hints(kind.config)
    config = kind.config(
        **{f: _checked(f, value, hints[f]) for f, value in fields.items() if f in static}
    )
    hyper = kind.hyper(
        **{f: check_number(kind, f, value) for f, value in fields.items() if f not in static}
    )
    agent = kind.make(config, Spec(task.env.observation, task.env.num_actions))
    return Configured(name=name, agent=agent, hyper=_with_support(hyper, task))


def field_name(agent: str, field: str) -> str:
    """The field of an agent that a name on the command line or in Python means."""
    kind, _ = _find(agent)
    plain = field.replace("-", "_").removeprefix("config.").removeprefix("hyper.")
    known = [f.name for f in dataclasses.fields(kind.config)] + list(kind.hyper._fields)
    if plain not in known:
        hint = _nearest(plain, known, f"it has {', '.join(known)}")
        raise InputError(f"{agent} has no field {field!r}; {hint}")
    return plain


def fields_of(agent: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some fields that an agent has."""
    kind, _ = _find(agent)
    known = {f.name for f in dataclasses.fields(kind.config)} | set(kind.hyper._fields)
    return {name: value for name, value in fields.items() if name in known}


def parse_overrides(agent: str, arguments: list[str]) -> dict[str, Any]:
    """Fields from the command line: `--field value` or `--field=value`, in any number."""
    found: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--"):
            raise InputError(f"need --field value, got {argument!r}")
        field, equals, text = argument[2:].partition("=")
        name = field_name(agent, field)
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise InputError(f"need a value after {argument}")
            text = rest.pop(0)
        found[name] = _from_text(text)
    return found


def parse_shared_overrides(agents: Sequence[str], arguments: list[str]) -> dict[str, Any]:
    """Fields from the command line that at least one of the agents has."""
    found: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        count = 1 if "=" in rest[0] or len(rest) == 1 else 2
        option, rest = rest[:count], rest[count:]
        errors: list[InputError] = []
        for agent in agents:
            try:
                found |= parse_overrides(agent, option)
            except InputError as error:
                errors.append(error)
        if len(errors) == len(agents):
            raise errors[0]
    return found


def describe(configured: Configured) -> dict[str, Any]:
    """All settings as JSON."""
    return {
        "config": dataclasses.asdict(configured.agent.config),
        "hyper": configured.hyper._asdict(),
    }


def fingerprint(settings: Mapping[str, Any]) -> str:
    """A short hash of settings: equal for equal ones, whatever the order of their fields."""
    canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"), default=list)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _find(name: str) -> tuple[Kind, Mapping[str, Any]]:
    if name in AGENTS:
        return AGENTS[name], {}
    if name in VARIANTS:
        base, preset = VARIANTS[name]
        return AGENTS[base], preset
    known = [*AGENTS, *VARIANTS]
    raise InputError(f"unknown agent {name!r}; {_nearest(name, known, 'see `winkel list agents`')}")


def _nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {', '.join(near)}?" if near else otherwise


def _checked(field: str, value: Any, hint: Any) -> Any:
    """A value of the annotated type; lists and single entries become tuples."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in arguments:
            raise InputError(f"need {field} from {', '.join(arguments)}, got {value!r}")
        return value
    if origin is tuple:
        entries = value if isinstance(value, tuple | list) else (value,)
        return tuple(_checked(f"each of {field}", entry, arguments[0]) for entry in entries)
    if origin in (typing.Union, types.UnionType):
        raise TypeError(f"{field}: unions are not supported in a Config")
    right = {
        bool: isinstance(value, bool),
        int: isinstance(value, numbers.Integral) and not isinstance(value, bool),
        float: isinstance(value, numbers.Real) and not isinstance(value, bool),
        str: isinstance(value, str),
    }[hint]
    if not right:
        wanted = {bool: "true or false", int: "a whole number", float: "a number", str: "a name"}
        raise InputError(f"need {wanted[hint]} for {field}, got {value!r}")
    return hint(value)


def _with_support(hyper: Any, task: Task) -> Any:
    if "z_min" not in hyper._fields:
        return hyper
    if math.isnan(hyper.z_min) or math.isnan(hyper.z_max):
        low, high = task.return_range(hyper.gamma)
    else:
        low, high = hyper.z_min, hyper.z_max
    z_min = low if math.isnan(hyper.z_min) else hyper.z_min
    z_max = high if math.isnan(hyper.z_max) else hyper.z_max
    if not z_min < z_max:
        raise InputError(f"need z_min < z_max, got [{z_min:g}, {z_max:g}]")
    return hyper._replace(z_min=z_min, z_max=z_max)


def _from_text(text: str) -> Any:
    """Numbers, true and false, lists with commas; all else is a name."""
    if "," in text:
        return tuple(_from_text(part.strip()) for part in text.split(",") if part.strip())
    if text in ("()", "none"):
        return ()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
