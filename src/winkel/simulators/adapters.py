"""Environments of Gymnasium (1.1 and later) and dm_env as simulators.

An observation is an array or a picture (`read_array`), a discrete one is a one-hot vector. Others
(`MultiBinary`, `Tuple`, nested specs of dm_env) are flattened to one vector.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from winkel.errors import InputError, import_extra
from winkel.simulators.base import Layout, Simulator, Step

DEFAULT_STACK = 4
"""Frames that an agent sees if observations are pictures, unless the name says `stack=…`."""

_SMALLEST_SIDE, _MOST_CHANNELS = 8, 4  # of pictures
_Reader = tuple[Layout, Callable[[Any], Any]]  # the form of observations, and their conversion


class GymSimulator:
    """A Gymnasium environment. Termination is a discount of 0, truncation only a boundary."""

    facts: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()

    def __init__(self, env: Any, stack: int = DEFAULT_STACK):
        spaces, actions = import_extra("gymnasium", "gym").spaces, env.action_space
        if not isinstance(actions, spaces.Discrete):
            raise InputError(f"need discrete actions, gymnasium.spaces.Discrete, got {actions}")
        self._env = env
        self._first_action = int(actions.start)
        self.num_actions = int(actions.n)
        self.layout, self._read = _read_space(env.observation_space, spaces, stack)

    def reset(self, seed: int | None) -> np.ndarray:
        result = self._env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InputError("need reset to return (observation, info), as Gymnasium's do")
        return self._read(result[0])

    def step(self, action: int) -> Step:
        result = self._env.step(action + self._first_action)
        if not isinstance(result, tuple) or len(result) != 5:
            wanted = "(observation, reward, terminated, truncated, info), as Gymnasium's do"
            count = len(result) if isinstance(result, tuple) else 1
            raise InputError(f"need step to return {wanted}, got {count} values")
        obs, reward, terminated, truncated, _ = result
        discount, boundary = 0.0 if terminated else 1.0, bool(terminated or truncated)
        return Step(self._read(obs), reward, discount, boundary)

    def close(self) -> None:
        self._env.close()


class DmSimulator:
    """A dm_env environment. The discount is that of the time step, the reward None is 0.

    `remake` makes it again with a `seed` at the first reset: dm_env has no other way to seed an
    environment. It is None if the environment takes no seed.
    """

    facts: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()

    def __init__(
        self, env: Any, remake: Callable[..., Any] | None = None, stack: int = DEFAULT_STACK
    ):
        self._env = env
        self._remake = remake
        actions = env.action_spec()
        bounded = hasattr(actions, "minimum") and hasattr(actions, "maximum")
        if not (bounded and actions.shape == () and np.issubdtype(actions.dtype, np.integer)):
            raise InputError(f"need discrete actions, a dm_env.specs.DiscreteArray, got {actions}")
        self._first_action = int(actions.minimum)
        self.num_actions = int(actions.maximum) - self._first_action + 1
        self.layout, self._read = _read_spec(env.observation_spec(), stack)

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None and self._remake is not None:
            self._env.close()
            self._env = self._remake(seed=seed)
        return self._read(self._env.reset().observation)

    def step(self, action: int) -> Step:
        result = self._env.step(action + self._first_action)
        reward = 0.0 if result.reward is None else result.reward
        discount = 1.0 if result.discount is None else result.discount
        return Step(self._read(result.observation), reward, discount, bool(result.last()))

    def close(self) -> None:
        self._env.close()


def as_simulator(env: Any, name: str, remake: Callable[..., Any] | None, stack: int) -> Simulator:
    """Give an environment of any library the interface of `Simulator`; errors call it `name`."""
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


def _read_space(space: Any, spaces: Any, stack: int) -> _Reader:
    """Read observations of a Gymnasium space."""
    if not _is_supported(space, spaces):
        raise InputError(
            "need observations in Box, Discrete, MultiBinary, MultiDiscrete, or Tuple or Dict of "
            f"these, got {space}; a Gymnasium wrapper can change that"
        )
    if isinstance(space, spaces.Box):
        return read_array(space.shape, space.dtype, stack)
    if isinstance(space, spaces.Discrete):
        return _read_one_hot(int(space.n), int(space.start))
    layout = Layout((spaces.flatdim(space),), "float32")
    return layout, lambda obs: spaces.flatten(space, obs)


def _is_supported(space: Any, spaces: Any) -> bool:
    if isinstance(space, spaces.Dict):
        return all(_is_supported(inner, spaces) for inner in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return all(_is_supported(inner, spaces) for inner in space.spaces)
    kinds = spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete
    return isinstance(space, kinds)


def _read_spec(spec: Any, stack: int) -> _Reader:
    """Read observations of a dm_env spec, or of nested ones; dicts in the order of sorted keys."""
    if isinstance(spec, dict | list | tuple):
        keys = sorted(spec) if isinstance(spec, dict) else range(len(spec))
        parts = {key: _read_spec(spec[key], stack) for key in keys}
        if not parts:
            raise InputError(f"need observations with at least one array, got {spec}")
        size = sum(int(np.prod(layout.shape)) for layout, _ in parts.values())
        return Layout((size,), "float32"), lambda obs: np.concatenate(
            [np.ravel(read(obs[key])) for key, (_, read) in parts.items()]
        )
    if not hasattr(spec, "shape") or np.dtype(spec.dtype).kind not in "fiub":
        raise InputError(f"need observations that are arrays of numbers, got {spec}")
    if hasattr(spec, "num_values"):
        return _read_one_hot(int(spec.num_values), 0)
    return read_array(tuple(spec.shape), spec.dtype, stack)


def read_array(shape: tuple[int, ...], dtype: Any, stack: int) -> _Reader:
    """Read arrays of this shape and type: pictures, or else unscaled float32 numbers.

    A uint8 array is a picture if it has rank 2 (height, width) or 3 (height, width, channels, or at
    most 4 channels first) and sides of at least 8.
    """
    if np.dtype(dtype) == np.uint8:
        if len(shape) in (2, 3) and min(shape[:2]) >= _SMALLEST_SIDE:
            return Layout(shape, "uint8", stack), np.asarray
        if len(shape) == 3 and shape[0] <= _MOST_CHANNELS and min(shape[1:]) >= _SMALLEST_SIDE:
            layout = Layout((*shape[1:], shape[0]), "uint8", stack)
            return layout, lambda obs: np.moveaxis(obs, 0, -1)
    return Layout(shape or (1,), "float32"), np.asarray


def _read_one_hot(num: int, first: int) -> _Reader:
    """Read one of the integers first … first + num − 1 as a one-hot vector."""

    def read(obs: Any) -> np.ndarray:
        if not first <= int(obs) < first + num:
            raise ValueError(f"observation {obs} is not one of {first} … {first + num - 1}")
        return np.eye(1, num, int(obs) - first, np.float32)[0]

    return Layout((num,), "float32"), read
