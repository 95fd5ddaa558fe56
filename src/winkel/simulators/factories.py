"""Environments given to `winkel.train` as objects of Python instead of names.

A function or class that a module defines is its name, 'my_module:make'. Any other factory, such as
a lambda, is a `Factory`: the name 'factory:my_module.build.lambda' says in records what it was, and
whoever continues or plays such a run passes the factory again.
"""

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from winkel.errors import InputError
from winkel.extensions import is_target
from winkel.simulators import names
from winkel.simulators.adapters import DEFAULT_STACK
from winkel.simulators.base import Maker


@dataclass(frozen=True)
class Factory:
    """A function that makes environments, and the name that records have for it."""

    name: str
    function: Callable[[], Any]

    @property
    def maker(self) -> Maker:
        """Makes a simulator of what the function returns."""
        return partial(names.call_loaded, self.function, self.name, {}, DEFAULT_STACK)

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
        return _registered_name(env, gymnasium.registry)
    if not callable(env):
        raise InputError(f"need a name such as 'deep_sea/0' or a function for env, got {env!r:.80}")
    named = env if hasattr(env, "__qualname__") else type(env)
    module, name = named.__module__, named.__qualname__
    importable = getattr(sys.modules.get(module), name, None) is env and module != "__main__"
    if importable and is_target(f"{module}:{name}"):
        return f"{module}:{name}"
    return Factory(f"{names.FACTORY}{module}.{name}".replace("<", "").replace(">", ""), env)


def _registered_name(env: Any, registry: Any) -> str:
    """Return the name of a Gymnasium environment that is as `gymnasium.make(id)` makes it."""
    spec = env.spec
    usual = None if spec is None else registry.get(spec.id)
    if usual is None or _describe(spec) != _describe(usual):
        raise InputError(
            f"need a function that makes the environment, winkel.train(lambda: …), as {env} is not "
            "what gymnasium.make(id) returns"
        )
    return f"gym:{spec.id}"


def _describe(spec: Any) -> tuple[Any, ...]:
    """Return what decides how an environment behaves; how it is drawn does not."""
    settings = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    return spec.entry_point, settings, spec.max_episode_steps, spec.additional_wrappers
