"""What the settings of an agent mean. The texts are the docstrings in the source.

A field is described by the docstring of its type, such as `base.LearningRate`, and by its own.
"""

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from winkel.agents import base

NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "a name"}


def describe_settings(
    agent: type[base.Agent], changed: dict[str, Any]
) -> list[tuple[str, str, str, str]]:
    """Describe all settings of an agent: name, default, what it accepts, meaning.

    `changed` has the defaults that a variant changes.
    """
    config, hyper = agent.config_type, agent.hyper_type
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    defaults |= hyper._field_defaults | changed
    hints = get_type_hints(config, include_extras=True) | get_type_hints(hyper, include_extras=True)
    meanings: dict[str, str] = {}
    for kind in (*config.__mro__[::-1], hyper):
        meanings |= {name: text for name, text in _read_meanings(kind).items() if text}
    return [
        (name, _write(default), _accepts(hints[name]), meanings.get(name, ""))
        for name, default in defaults.items()
    ]


def _read_meanings(kind: type) -> dict[str, str]:
    """Read what the source of a class says about its fields; nothing if it has no source."""
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        return {}
    types = {ast.unparse(node): text for node, _, text in _documented(inspect.getsource(base))}
    return {
        ast.unparse(node): " ".join(filter(None, (types.get(type_name.rpartition(".")[2]), text)))
        for node, type_name, text in _documented(source)
    }


def _documented(source: str) -> Iterator[tuple[ast.expr, str, str]]:
    """Find the assignments of a module or of a class: target, annotation, docstring below."""
    body: list[ast.stmt] = ast.parse(source).body
    if isinstance(body[0], ast.ClassDef):
        body = body[0].body
    for statement, below in itertools.pairwise([*body, ast.Pass()]):
        text = ""
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            text = " ".join(str(below.value.value).split())
        if isinstance(statement, ast.AnnAssign):
            yield statement.target, ast.unparse(statement.annotation), text
        elif isinstance(statement, ast.Assign):
            yield statement.targets[0], "", text


def _accepts(hint: Any) -> str:
    """What a field takes, by its type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin is tuple:
        return f"a list, each {_accepts(arguments[0])}"
    if origin is Annotated:
        return f"{NOUNS[int if arguments[0] is int else float]}{arguments[1]}"
    return NOUNS.get(hint, getattr(hint, "__name__", str(hint)))


def _write(default: Any) -> str:
    """Write a default as the command line reads it."""
    if isinstance(default, tuple):
        return ",".join(map(str, default)) or "none"
    if isinstance(default, int | str):
        return str(default).lower()
    return "by the environment" if default != default else f"{default:g}"
