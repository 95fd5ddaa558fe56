"""Gymnasium's environments (1.1 and later) as simulators.

Actions must be `Discrete`. Observations: a `Box` is an array or a picture (`base.read_array`),
`Discrete` is a one-hot vector, and `MultiBinary`, `MultiDiscrete`, `Tuple` and `Dict` of these are
flattened by Gymnasium to one vector. Termination is a discount of 0, truncation only a boundary.
"""

import difflib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from winkel.errors import InputError
from winkel.simulators.base import (
    DEFAULT_STACK,
    Layout,
    Reader,
    Step,
    read_array,
    read_one_hot,
    search_current_folder,
    wrap_error,
)


@dataclass(frozen=True)
class GymMaker:
    """Makes a registered environment: 'CartPole-v1', or 'my_module:MyEnv-v0' to import first.

    Attributes:
        id: first argument of `gymnasium.make`.
        settings: its other arguments.
        stack: number of frames that an agent sees if observations are pictures.
    """

    id: str
    settings: dict[str, Any] = field(default_factory=dict)
    stack: int = DEFAULT_STACK

    def __call__(self) -> "GymSimulator":
        """Make one environment."""
        gymnasium = _import_gymnasium()
        search_current_folder()
        try:
            env = gymnasium.make(self.id, disable_env_checker=True, **self.settings)
        except gymnasium.error.UnregisteredEnv:
            raise InputError(
                f"unknown environment 'gym:{self.id}'; {_suggest(self.id, gymnasium.registry)}"
            ) from None
        except gymnasium.error.Error as error:
            raise InputError(f"gym:{self.id} cannot be made: {error}") from None
        except Exception as error:
            raise wrap_error(error, f"making gym:{self.id}") from error
        return GymSimulator(env, self.stack)


class GymSimulator:
    """A Gymnasium environment with the interface of `Simulator`."""

    facts: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()

    def __init__(self, env: Any, stack: int = DEFAULT_STACK):
        actions = env.action_space
        if not isinstance(actions, _import_gymnasium().spaces.Discrete):
            raise InputError(f"need discrete actions, gymnasium.spaces.Discrete, got {actions}")
        self._env = env
        self._first_action = int(actions.start)
        self.num_actions = int(actions.n)
        self.layout, self._read = _make_reader(env.observation_space, stack)

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode."""
        result = self._env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InputError("need reset to return (observation, info), as Gymnasium's do")
        return self._read(result[0])

    def step(self, action: int) -> Step:
        """Make one transition."""
        result = self._env.step(action + self._first_action)
        if not isinstance(result, tuple) or len(result) != 5:
            raise InputError(
                "need step to return (observation, reward, terminated, truncated, info), as "
                f"Gymnasium's do, got {len(result) if isinstance(result, tuple) else 1} values"
            )
        obs, reward, terminated, truncated, _ = result
        return Step(
            obs=self._read(obs),
            reward=reward,
            discount=0.0 if terminated else 1.0,
            boundary=bool(terminated or truncated),
        )

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _import_gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise InputError("gymnasium is not installed: pip install 'winkel[gym]'") from None
    return gymnasium


def _make_reader(space: Any, stack: int) -> Reader:
    spaces = _import_gymnasium().spaces
    if not _is_supported(space, spaces):
        raise InputError(
            "need observations in Box, Discrete, MultiBinary, MultiDiscrete, or Tuple or Dict of "
            f"these, got {space}; a Gymnasium wrapper can change that"
        )
    if isinstance(space, spaces.Box):
        return read_array(space.shape, space.dtype, stack)
    if isinstance(space, spaces.Discrete):
        return read_one_hot(int(space.n), int(space.start))
    size = spaces.flatdim(space)
    return Reader(Layout((size,), "float32"), lambda obs: spaces.flatten(space, obs))


def _is_supported(space: Any, spaces: Any) -> bool:
    if isinstance(space, spaces.Dict):
        return all(_is_supported(inner, spaces) for inner in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return all(_is_supported(inner, spaces) for inner in space.spaces)
    kinds = spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete
    return isinstance(space, kinds)


def _suggest(env_id: str, registry: Any) -> str:
    name = env_id.rpartition(":")[2]
    near = difflib.get_close_matches(name, list(registry), n=3, cutoff=0.5)
    if near:
        return f"did you mean gym:{', gym:'.join(near)}?"
    return "if a module of yours registers it, need gym:module:id"
