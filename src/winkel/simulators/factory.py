"""Own environments: whatever a function returns, told apart by what it can do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from winkel.errors import InputError
from winkel.simulators.base import Simulator
from winkel.simulators.dm import DmSimulator, takes_seed
from winkel.simulators.gymnasium_env import GymSimulator
from winkel.simulators.modules import load, raised
from winkel.simulators.readers import DEFAULT_STACK


@dataclass(frozen=True)
class FactoryMaker:
    """Calls a function that returns a gymnasium.Env, a dm_env.Environment or a `Simulator`.

    Attributes:
        target: 'module:function'; the current folder's modules are found as well.
        settings: keyword arguments of the function.
        stack: frames that an agent sees, where observations are pictures.
    """

    target: str
    settings: dict[str, Any] = field(default_factory=dict)
    stack: int = DEFAULT_STACK

    def __call__(self) -> Simulator:
        """Make one."""
        function = load(self.target)
        make = partial(function, **self.settings)
        try:
            made = make()
        except InputError:
            raise
        except Exception as error:
            raise raised(error, f"{self.target} called with {self.settings}") from error
        can_seed = takes_seed(function) and "seed" not in self.settings
        return as_simulator(made, self.target, make if can_seed else None, self.stack)


def as_simulator(
    made: Any,
    name: str,
    remake: Callable[..., Any] | None = None,
    stack: int = DEFAULT_STACK,
) -> Simulator:
    """An environment of any library behind the interface of `Simulator`.

    Args:
        made: the environment.
        name: what to call it in errors.
        remake: makes it again with a `seed`; only dm_env's need that.
        stack: frames that an agent sees, where observations are pictures.
    """
    if all(hasattr(made, part) for part in ("single_action_space", "num_envs")):
        raise InputError(f"need one environment, {name} returned a vector of {made.num_envs}")
    if isinstance(made, Simulator):
        return made
    if all(hasattr(made, part) for part in ("action_space", "observation_space", "step")):
        return GymSimulator(made, stack)
    if all(hasattr(made, part) for part in ("action_spec", "observation_spec", "step")):
        return DmSimulator(made, remake, stack)
    raise InputError(
        f"need a gymnasium.Env, a dm_env.Environment or a winkel.simulators.Simulator, "
        f"{name} returned {type(made).__name__}"
    )
