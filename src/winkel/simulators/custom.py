"""A user's own environments: whatever 'module:function' returns."""

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from winkel.errors import InputError
from winkel.simulators.base import DEFAULT_STACK, Simulator, search_current_folder, wrap_error
from winkel.simulators.dm import DmSimulator, takes_seed
from winkel.simulators.gymnasium_env import GymSimulator


@dataclass(frozen=True)
class FunctionMaker:
    """Calls a function that returns a gymnasium.Env, a dm_env.Environment or a `Simulator`.

    Attributes:
        target: 'module:function'; modules in the current folder are found, too.
        settings: keyword arguments of the function.
        stack: number of frames that an agent sees if observations are pictures.
    """

    target: str
    settings: dict[str, Any] = field(default_factory=dict)
    stack: int = DEFAULT_STACK

    def __call__(self) -> Simulator:
        """Make one environment."""
        function = load_function(self.target)
        make = partial(function, **self.settings)
        try:
            env = make()
        except InputError:
            raise
        except Exception as error:
            raise wrap_error(error, f"{self.target} called with {self.settings}") from error
        can_seed = takes_seed(function) and "seed" not in self.settings
        return as_simulator(env, self.target, make if can_seed else None, self.stack)


def as_simulator(
    env: Any,
    name: str,
    remake: Callable[..., Any] | None = None,
    stack: int = DEFAULT_STACK,
) -> Simulator:
    """Give an environment of any library the interface of `Simulator`.

    Args:
        env: the environment.
        name: what errors call it.
        remake: makes it again with a `seed`, for dm_env.
        stack: number of frames that an agent sees if observations are pictures.
    """
    if all(hasattr(env, part) for part in ("single_action_space", "num_envs")):
        raise InputError(f"need one environment, {name} returned a vector of {env.num_envs}")
    if isinstance(env, Simulator):
        return env
    if all(hasattr(env, part) for part in ("action_space", "observation_space", "step")):
        return GymSimulator(env, stack)
    if all(hasattr(env, part) for part in ("action_spec", "observation_spec", "step")):
        return DmSimulator(env, remake, stack)
    raise InputError(
        f"need a gymnasium.Env, a dm_env.Environment or a winkel.simulators.Simulator, "
        f"{name} returned {type(env).__name__}"
    )


def load_function(target: str) -> Callable[..., Any]:
    """Import the function that 'module:function' names."""
    module_name, _, name = target.partition(":")
    search_current_folder()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise wrap_error(error, f"importing {module_name}") from error
        raise InputError(
            f"no module {module_name!r} for {target!r}, neither here nor installed"
        ) from None
    except Exception as error:
        raise wrap_error(error, f"importing {module_name}") from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n in dir(module) if callable(getattr(module, n))]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise InputError(f"module {module_name!r} has no function {name!r}{hint}")
    return function
