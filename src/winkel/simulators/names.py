"""Simulators by name.

    gym:CartPole-v1                      registered with Gymnasium
    gym:my_module:MyEnv-v0               the same, after my_module is imported
    dm:bsuite/catch/0                    DeepMind's own bsuite
    dm:my_module:make                    a function that returns a dm_env.Environment
    doom:my-way-home/sparse              VizDoom
    my_module:make                       a function that returns a Gymnasium or dm_env environment,
                                         or a winkel.simulators.Simulator

Each may end in settings after a colon or a question mark, keyword arguments of what makes the
environment: `gym:FrozenLake-v1:map_name=8x8,is_slippery=False`. Numbers, True, False, None, tuples
and quoted text are read as in Python, anything else is text. `stack=4`, the number of frames that
an agent sees if observations are pictures, is not passed on.
"""

import ast
import re
from typing import Any, NamedTuple

from winkel.errors import InputError, require_integer
from winkel.simulators.base import DEFAULT_STACK
from winkel.simulators.custom import FunctionMaker
from winkel.simulators.dm import BsuiteMaker
from winkel.simulators.gymnasium_env import GymMaker
from winkel.simulators.stepping import Maker

_SETTINGS = re.compile(r"[:?](?=[^:?=]*=)")  # the first one before a key and =
_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

_PLAIN = re.compile(r"[\w./:+-]+")


class Named(NamedTuple):
    """A name and its meaning.

    Attributes:
        id: the name with its settings in order, the same for all spellings.
        maker: picklable; makes one environment.
    """

    id: str
    maker: Maker


def parse(text: str) -> Named:
    """Return the maker of a name. A user's module is imported when the maker is called."""
    name, written = _split(text)
    settings = _read_settings(written, text)
    canonical = name + "".join(
        f"{',' if i else ':'}{key}={_write_value(settings[key])}"
        for i, key in enumerate(sorted(settings))
    )
    if name.startswith("doom:"):
        from winkel.simulators.vizdoom import make_doom_maker

        return Named(id=canonical, maker=make_doom_maker(name, settings))
    stack = require_integer("stack", settings.pop("stack", DEFAULT_STACK), at_least=1)
    return Named(id=canonical, maker=_choose_maker(name, settings, stack, text))


def _split(text: str) -> tuple[str, str]:
    """Return the name and the text of its settings."""
    name, *settings = _SETTINGS.split(text, maxsplit=1)
    return name, "".join(settings)


def _choose_maker(name: str, settings: dict[str, Any], stack: int, text: str) -> Maker:
    library, _, rest = name.partition(":")
    if library == "gym" and rest:
        return GymMaker(rest, settings, stack)
    if library == "dm" and rest.startswith("bsuite/"):
        if settings:
            raise InputError(f"need no settings with bsuite's own ids, got {text!r}")
        return BsuiteMaker(rest.removeprefix("bsuite/"))
    target = rest if library == "dm" else name
    if not _TARGET.fullmatch(target):
        raise InputError(
            "need a simulator of the form gym:id, dm:bsuite/id, dm:module:function or "
            f"module:function, each with settings :key=value,… or without, got {text!r}"
        )
    return FunctionMaker(target, settings, stack)


def _read_settings(text: str, whole: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for part in _split_at_commas(text):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key.isidentifier() or not value.strip():
            raise InputError(f"need settings of the form key=value, got {part!r} in {whole!r}")
        if key in settings:
            raise InputError(f"need each setting once, got {key} twice in {whole!r}")
        settings[key] = _read_value(value.strip())
    return settings


def _split_at_commas(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes."""
    parts, depth, quote, escaped, start = [], 0, "", False, 0
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote and not escaped else quote
            escaped = character == "\\" and not escaped
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]] if text else []


def _read_value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text, text)


def _write_value(value: Any) -> str:
    """Write a value so that `_read_value` reads it back."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and _read_value(value) == value:
        return value
    return repr(value)
