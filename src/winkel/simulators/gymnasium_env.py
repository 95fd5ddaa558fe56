"""Gymnasium's environments (1.1 and later) as simulators.

Actions must be `Discrete`. Observations: a `Box` is an array or a picture (see `readers`),
`Discrete` a one-hot vector, and `MultiBinary`, `MultiDiscrete`, `Tuple` and `Dict` of all these are
flattened by Gymnasium into one vector. Termination is a discount of 0, truncation only a boundary.
"""

import difflib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from winkel.errors import InputError
from winkel.simulators.base import Layout, Moved
from winkel.simulators.modules import raised, search_here
from winkel.simulators.readers import DEFAULT_STACK, Reader, array_reader, one_hot_reader


@dataclass(frozen=True)
class GymMaker:
    """Makes a registered environment: 'CartPole-v1', or 'my_module:MyEnv-v0' to import first.

    Attributes:
        id: as `gymnasium.make` takes it.
        settings: further arguments of it.
        stack: frames that an agent sees, where observations are pictures.
    """

    id: str
    settings: dict[str, Any] = field(default_factory=dict)
    stack: int = DEFAULT_STACK

    def __call__(self) -> "GymSimulator":
        """Make it."""
        gymnasium = _gymnasium()
        search_here()
        try:
            env = gymnasium.make(self.id, disable_env_checker=True, **self.settings)
        except gymnasium.error.UnregisteredEnv:
            raise InputError(
                f"unknown environment 'gym:{self.id}'; {_near(self.id, gymnasium.registry)}"
            ) from None
        except gymnasium.error.DependencyNotInstalled as error:
            raise InputError(f"gym:{self.id} needs more than gymnasium: {error}") from None
        except gymnasium.error.Error as error:
            raise InputError(f"gym:{self.id} cannot be made: {error}") from None
        except Exception as error:
            raise raised(error, f"making gym:{self.id}") from error
        return GymSimulator(env, self.stack)


class GymSimulator:
    """A Gymnasium environment behind the interface of `Simulator`."""

    facts: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()

    def __init__(self, env: Any, stack: int = DEFAULT_STACK):
        actions = env.action_space
        if not isinstance(actions, _gymnasium().spaces.Discrete):
            raise InputError(f"need discrete actions, gymnasium.spaces.Discrete, got {actions}")
        self._env = env
        self._first_action = int(actions.start)
        self.num_actions = int(actions.n)
        reader = _reader(env.observation_space, stack)
        self.layout: Layout = reader.layout
        self._read = reader.read

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode."""
        answer = self._env.reset(seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise InputError("need reset to return (observation, info), as Gymnasium's do")
        return self._read(answer[0])

    def step(self, action: int) -> Moved:
        """Make one transition."""
        answer = self._env.step(action + self._first_action)
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise InputError(
                "need step to return (observation, reward, terminated, truncated, info), as "
                f"Gymnasium's do, got {len(answer) if isinstance(answer, tuple) else 1} values"
            )
        obs, reward, terminated, truncated, _ = answer
        return Moved(
            obs=self._read(obs),
            reward=reward,
            discount=0.0 if terminated else 1.0,
            boundary=bool(terminated or truncated),
        )

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise InputError("gymnasium is not installed: pip install 'winkel[gym]'") from None
    return gymnasium


def _reader(space: Any, stack: int) -> Reader:
    spaces = _gymnasium().spaces
    _check_space(space, spaces, "")
    if isinstance(space, spaces.Box):
        return array_reader(space.shape, space.dtype, stack)
    if isinstance(space, spaces.Discrete):
        return one_hot_reader(int(space.n), int(space.start))
    size = spaces.flatdim(space)
    return Reader(Layout((size,), "float32"), lambda obs: spaces.flatten(space, obs))


def _check_space(space: Any, spaces: Any, where: str) -> None:
    """Raise unless the space is an array or a choice, or holds nothing but these."""
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            _check_space(inner, spaces, f"{where}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for i, inner in enumerate(space.spaces):
            _check_space(inner, spaces, f"{where}[{i}]")
    elif not isinstance(
        space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete
    ):
        at = f" at {where}" if where else ""
        raise InputError(
            "need observations in Box, Discrete, MultiBinary, MultiDiscrete, or Tuple or Dict of "
            f"these, got {space}{at}; a Gymnasium wrapper can change that"
        )


def _near(env_id: str, registry: Any) -> str:
    name = env_id.rpartition(":")[2]
    near = difflib.get_close_matches(name, list(registry), n=3, cutoff=0.5)
    if near:
        return f"did you mean gym:{', gym:'.join(near)}?"
    return "if a module of yours registers it, need gym:module:id"
