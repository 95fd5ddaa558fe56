"""One environment of a task, stepped from Python, whether it is compiled or a simulator."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from winkel.envs.base import Task
from winkel.errors import InputError, require_integer
from winkel.simulators import Pool
from winkel.types import EnvStep, Image, Observation

MAX_SEED = 2**32 - 1


class CompiledEnvironment:
    """An environment of `winkel.envs`."""

    def __init__(self, task: Task, seed: int):
        key, self._params = jax.random.key(seed), task.params
        self._keys = (jax.random.fold_in(key, number) for number in itertools.count(1))
        self._reset, self._step = jax.jit(task.env.reset), jax.jit(task.env.step)
        self._state: Any = None

    def reset(self) -> np.ndarray:
        """Begin an episode and return its first observation."""
        self._state, obs = self._reset(next(self._keys), self._params)
        return np.asarray(obs)

    def step(self, action: int) -> EnvStep:
        """Make one transition; if it ends the episode, `obs` is the first of the next one."""
        self._state, step = self._step(next(self._keys), self._state, action, self._params)
        return jax.device_get(step)


class SimulatedEnvironment:
    """A simulator, in a pool of one, whose frames are stacked."""

    def __init__(self, pool: Pool, observation: Observation):
        self._pool = pool
        self._num_frames = observation.stack if isinstance(observation, Image) else 0
        self._obs = np.zeros(0)

    def reset(self) -> np.ndarray:
        """Begin an episode and return its first observation."""
        self._obs = self._first(self._pool.reset()[0])
        return self._obs

    def step(self, action: int) -> EnvStep:
        """Make one transition; if it ends the episode, `obs` is the first of the next one."""
        batch = self._pool.step(np.array([action]))
        if batch.lost[0]:
            raise InputError("the simulator died in the middle of an episode; play again")
        next_obs = batch.next_obs[0]
        if self._num_frames:
            next_obs = np.concatenate([self._obs[1:], next_obs[None]])
        self._obs = self._first(batch.obs[0]) if batch.boundary[0] else next_obs
        return EnvStep(
            reward=batch.reward[0],
            discount=batch.discount[0],
            next_obs=next_obs,
            obs=self._obs,
            boundary=batch.boundary[0],
            info={},
        )

    def _first(self, obs: np.ndarray) -> np.ndarray:
        return np.repeat(obs[None], self._num_frames, axis=0) if self._num_frames else obs


PlayedEnvironment = CompiledEnvironment | SimulatedEnvironment
"""One environment. Observations are what the agent gets: a stack of frames if it has frames."""


@contextlib.contextmanager
def open_environment(
    task: Any, seed: int = 0, notice: Callable[[str], None] = lambda _: None
) -> Iterator[PlayedEnvironment]:
    """Start one environment of a task; the seed decides all of its episodes."""
    if require_integer("an environment's seed", seed, at_least=0) > MAX_SEED:
        raise InputError(f"need an environment's seed <= {MAX_SEED}, got {seed}")
    if task.compiled:
        yield CompiledEnvironment(task, seed)
    else:
        with dataclasses.replace(task, workers=0).pool([seed], notice) as pool:
            yield SimulatedEnvironment(pool, task.env.observation)
