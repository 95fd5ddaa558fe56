"""An agent from names and numbers: fields checked and converted, defaults filled in."""

import dataclasses
import difflib
import math
import numbers
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from winkel.agents import AGENTS, VARIANTS
from winkel.agents.base import Agent, Kind, Spec, check_number
from winkel.envs.base import Task
from winkel.errors import InputError


class Configured(NamedTuple):
    """An agent for an environment.

    Attributes:
        name: of the agent or variant, as `winkel list agents` has it.
        agent: with its static settings.
        hyper: its hyperparameters, plain numbers.
    """

    name: str
    agent: Agent
    hyper: Any


def configure(name: str, overrides: Mapping[str, Any], task: Task) -> Configured:
    """The named agent or variant with some fields of its `Config` or `Hyper` replaced.

    Where it is not given, the categorical support is the environment's range of returns.
    """
    kind, preset = _find(name)
    fields = dict(preset) | {field_name(name, field): v for field, v in overrides.items()}
    hints = typing.get_type_hints(kind.config)
    static = {f.name for f in dataclasses.fields(kind.config)}
    config = kind.config(**{f: _check(f, v, hints[f]) for f, v in fields.items() if f in static})
    traced = {f: check_number(kind, f, v) for f, v in fields.items() if f not in static}
    hyper = kind.hyper(**traced)
    agent = kind.make(config, Spec(task.env.observation, task.env.num_actions))
    return Configured(name=name, agent=agent, hyper=_fill_support(hyper, task))


def field_names(agent: str) -> list[str]:
    """Names of all fields of an agent's `Config` and `Hyper`."""
    kind, _ = _find(agent)
    return [f.name for f in dataclasses.fields(kind.config)] + list(kind.hyper._fields)


def fields_of(agent: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some fields that an agent has."""
    known = field_names(agent)
    return {name: value for name, value in fields.items() if name in known}


def field_name(agent: str, field: str) -> str:
    """The field of an agent that a name on the command line or in Python means."""
    plain = field.replace("-", "_").removeprefix("config.").removeprefix("hyper.")
    known = field_names(agent)
    if plain not in known:
        hint = _suggest(plain, known, f"it has {', '.join(known)}")
        raise InputError(f"{agent} has no field {field!r}; {hint}")
    return plain


def parse_fields(agents: Sequence[str], arguments: Sequence[str]) -> dict[str, Any]:
    """Read `--field value` and `--field=value`; at least one of the agents must have the field.

    tyro cannot read these: which fields there are depends on the option `--agent`, a sweep has
    several agents, and values must give the same errors as the arguments of `winkel.train`.
    """
    found: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--"):
            raise InputError(f"need --field value, got {argument!r}")
        field, equals, text = argument[2:].partition("=")
        name = _shared_field_name(agents, field)
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise InputError(f"need a value after {argument}")
            text = rest.pop(0)
        found[name] = _parse_value(text)
    return found


def _shared_field_name(agents: Sequence[str], field: str) -> str:
    errors = []
    for agent in agents:
        try:
            return field_name(agent, field)
        except InputError as error:
            errors.append(error)
    raise errors[0]


def _find(name: str) -> tuple[Kind, Mapping[str, Any]]:
    if name in AGENTS:
        return AGENTS[name], {}
    if name in VARIANTS:
        base, preset = VARIANTS[name]
        return AGENTS[base], preset
    hint = _suggest(name, [*AGENTS, *VARIANTS], "see `winkel list agents`")
    raise InputError(f"unknown agent {name!r}; {hint}")


def _suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {', '.join(near)}?" if near else otherwise


def _check(field: str, value: Any, hint: Any) -> Any:
    """Convert to the annotated type; lists and single entries become tuples."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in arguments:
            raise InputError(f"need {field} from {', '.join(arguments)}, got {value!r}")
        return value
    if origin is tuple:
        entries = value if isinstance(value, tuple | list) else (value,)
        return tuple(_check(f"each of {field}", entry, arguments[0]) for entry in entries)
    if origin in (typing.Union, types.UnionType):
        raise TypeError(f"{field}: unions are not supported in a Config")
    kind, wanted = {
        bool: (bool, "true or false"),
        int: (numbers.Integral, "a whole number"),
        float: (numbers.Real, "a number"),
        str: (str, "a name"),
    }[hint]
    if not isinstance(value, kind) or (isinstance(value, bool) and hint is not bool):
        raise InputError(f"need {wanted} for {field}, got {value!r}")
    return hint(value)


def _fill_support(hyper: Any, task: Task) -> Any:
    """Replace NaN in z_min and z_max by the environment's range of returns."""
    if "z_min" not in hyper._fields:
        return hyper
    z_min, z_max = hyper.z_min, hyper.z_max
    if math.isnan(z_min) or math.isnan(z_max):
        low, high = task.return_range(hyper.gamma)
        z_min, z_max = low if math.isnan(z_min) else z_min, high if math.isnan(z_max) else z_max
    if not z_min < z_max:
        raise InputError(f"need z_min < z_max, got [{z_min:g}, {z_max:g}]")
    return hyper._replace(z_min=z_min, z_max=z_max)


def _parse_value(text: str) -> Any:
    """A number, true or false, a tuple if there are commas, else the text."""
    if "," in text:
        return tuple(_parse_value(part.strip()) for part in text.split(",") if part.strip())
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
