"""Simulators by name, and environments given to `winkel.train` as objects of Python.

Names are in docs/simulators.md. Each may end in settings after a colon or a question mark, keyword
arguments of what makes the environment: `gym:FrozenLake-v1:map_name=8x8,is_slippery=False`. Values
are read as in Python, anything else is text. `stack=4` is not passed on.

A function that no name leads to, such as a lambda, is a `Factory`: 'factory:my_module.build.lambda'
says in records what it was, and whoever continues or plays such a run passes it again.
"""

import ast
import inspect
import pickle
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from winkel.errors import InputError, import_extra, require_integer, suggest
from winkel.extensions import is_target, load_target, search_current_folder, wrap_error
from winkel.simulators.adapters import DEFAULT_STACK, DmSimulator, GymSimulator, as_simulator
from winkel.simulators.base import Maker, Simulator

JAX_LIBRARIES = ("gymnax", "craftax", "navix", "pgx", "xminigrid")
"""Libraries of environments in JAX; their names are read by `winkel.envs.functional`."""
FACTORY = "factory:"
"""Begins the names of environments that a function made which has no name of its own."""

_SETTINGS = re.compile(r"[:?](?=[^:?=]*=)")  # the first one before a key and =
_QUOTED = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_QUOTED_OR_ONE = re.compile(f"{_QUOTED}|.", re.DOTALL)
_PLAIN = re.compile(r"[\w./:+-]+")
_ODD_DIGIT = re.compile(r"(?![0-9])\d")


def parse(text: str) -> tuple[str, Maker]:
    """Return the name with its settings in order, and its maker, which is picklable."""
    canonical, name, settings = split(text)
    if name.startswith("doom:"):
        from winkel.simulators.vizdoom import make_doom

        return canonical, make_doom(name, settings)
    if name.startswith(FACTORY):
        return name, partial(ask_for_factory, name)
    stack = require_integer("stack", settings.pop("stack", DEFAULT_STACK), at_least=1)
    library, _, rest = name.partition(":")
    if library == "gym" and rest:
        return canonical, partial(make_gymnasium, rest, settings, stack)
    if library == "dm" and rest.startswith("bsuite/"):
        if settings:
            raise InputError(f"need no settings with bsuite's own ids, got {text!r}")
        return canonical, partial(make_bsuite, rest.removeprefix("bsuite/"))
    target = rest if library == "dm" else name
    if not is_target(target):
        raise InputError(
            "need a simulator of the form gym:id, dm:bsuite/id, dm:module:function or "
            f"module:function, each with settings :key=value,… or without, got {text!r}"
        )
    return canonical, partial(call_function, target, settings, stack)


def chooses_code(text: str) -> bool:
    """Return whether a name says which module is imported, or what is passed to other code."""
    _, name, settings = split(text)
    library, _, rest = name.partition(":")
    if library == "doom" or name.startswith("dm:bsuite/"):
        return False
    known = library in ("gym", *JAX_LIBRARIES)
    return not known or ":" in rest or bool(settings.keys() - {"stack"})


def ask_for_factory(name: str) -> Simulator:
    """Raise: the function that made an environment is in the program that trained in it."""
    raise InputError(
        f"{name} is a function of the Python program that trained in it; pass that function: "
        "winkel.train(function, …) or winkel.load(folder, env=function)"
    )


def make_gymnasium(env_id: str, settings: dict[str, Any], stack: int) -> GymSimulator:
    """Make a registered environment: 'CartPole-v1', or 'my_module:MyEnv-v0' to import first."""
    gymnasium = import_extra("gymnasium", "gym")
    if ":" in env_id:
        search_current_folder()
    try:
        env = gymnasium.make(env_id, disable_env_checker=True, **settings)
    except gymnasium.error.UnregisteredEnv:
        own = "if a module of yours registers it, need gym:module:id"
        hint = suggest(env_id.rpartition(":")[2], gymnasium.registry, own)
        raise InputError(f"unknown environment 'gym:{env_id}'; {hint}") from None
    except Exception as error:
        raise wrap_error(error, f"making gym:{env_id}") from error
    return GymSimulator(env, stack)


def make_bsuite(env_id: str) -> DmSimulator:
    """Make one of DeepMind's own bsuite environments, such as 'catch/0', with winkel's seeds."""
    try:
        from bsuite import bsuite, sweep
    except ImportError:
        raise InputError(f"dm:bsuite/{env_id} needs DeepMind's: pip install bsuite") from None
    if env_id not in sweep.SETTINGS:
        hint = suggest(env_id, sweep.SETTINGS, "need an id of bsuite.sweep")
        raise InputError(f"unknown environment 'dm:bsuite/{env_id}'; {hint}")
    load = bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT[env_id.partition("/")[0]]
    make = partial(load, **sweep.SETTINGS[env_id])
    return DmSimulator(make(), make if _takes_seed(load) else None)


def call_function(
    target: str, settings: dict[str, Any], stack: int, function: Callable[..., Any] | None = None
) -> Simulator:
    """Call 'module:function', or a function that errors call so."""
    function = function or load_target(target)
    make = partial(function, **settings)
    try:
        env = make()
    except InputError:
        raise
    except Exception as error:
        raise wrap_error(error, f"{target} called with {settings}") from error
    can_seed = _takes_seed(function) and "seed" not in settings
    return as_simulator(env, target, make if can_seed else None, stack)


def _takes_seed(function: Callable[..., Any]) -> bool:
    try:
        return "seed" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins have no signature
        return False


def split(text: str) -> tuple[str, str, dict[str, Any]]:
    """Split a name from its settings; first comes the whole, the same for all spellings."""
    name, *written = _SETTINGS.split(text, maxsplit=1)
    settings: dict[str, Any] = {}
    for part in _split_at_commas("".join(written)):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key.isidentifier() or not value:
            raise InputError(f"need settings of the form key=value, got {part!r} in {text!r}")
        if key in settings:
            raise InputError(f"need each setting once, got {key} twice in {text!r}")
        settings[key] = _read_value(value)
        bare = re.sub(_QUOTED, "", value)
        if _ODD_DIGIT.search(bare) or ("_" in bare and not isinstance(settings[key], str)):
            raise InputError(f"need numbers in digits 0 to 9 without _, got {part!r} in {text!r}")
    return join(name, settings), name, settings


def join(name: str, settings: dict[str, Any]) -> str:
    """Write a name with its settings, in order."""
    values = [f"{key}={_write_value(settings[key])}" for key in sorted(settings)]
    return ":".join([name, *filter(None, [",".join(values)])])


def _split_at_commas(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes."""
    parts, depth = [""], 0
    for piece in _QUOTED_OR_ONE.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts if text else []


def _read_value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {"true": True, "false": False, "none": None}.get(text, text)


def _write_value(value: Any) -> str:
    """Write a value so that `_read_value` reads it back."""
    plain = isinstance(value, str) and _PLAIN.fullmatch(value) and not _ODD_DIGIT.search(value)
    return value if plain and _read_value(value) == value else repr(value)


@dataclass(frozen=True)
class Factory:
    """A function that makes environments, and the name that records have for it."""

    name: str
    function: Callable[[], Any]

    @property
    def maker(self) -> Maker:
        """Makes a simulator of what the function returns."""
        return partial(call_function, self.name, {}, DEFAULT_STACK, self.function)

    @property
    def can_travel(self) -> bool:
        """Whether worker processes can load it: it is picklable, and not of the main script."""
        try:
            return b"__main__" not in pickle.dumps(self.function)
        except Exception:  # of any kind, from the objects inside
            return False


def identify(env: Any) -> str | Factory:
    """Return the name of an environment that `winkel.train` was given, or its factory."""
    if isinstance(env, str):
        return env
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is not None and isinstance(env, gymnasium.Env):
        usual = None if env.spec is None else gymnasium.registry.get(env.spec.id)
        if usual is None or _behaviour(env.spec) != _behaviour(usual):
            raise InputError(
                f"need a function that makes the environment, winkel.train(lambda: …), as {env} is "
                "not what gymnasium.make(id) returns"
            )
        return f"gym:{env.spec.id}"
    if not callable(env):
        raise InputError(f"need a name such as 'deep_sea/0' or a function for env, got {env!r:.80}")
    named = env if hasattr(env, "__qualname__") else type(env)
    module, name = named.__module__, named.__qualname__
    importable = getattr(sys.modules.get(module), name, None) is env and module != "__main__"
    if importable and is_target(f"{module}:{name}"):
        return f"{module}:{name}"
    return Factory(f"{FACTORY}{module}.{name}".replace("<", "").replace(">", ""), env)


def _behaviour(spec: Any) -> tuple[Any, ...]:
    """Return what decides how an environment behaves; how it is drawn does not."""
    settings = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    return spec.entry_point, settings, spec.max_episode_steps, spec.additional_wrappers
