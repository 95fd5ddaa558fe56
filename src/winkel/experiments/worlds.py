"""The worlds that runs were made in, stepped from Python, one environment at a time."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from winkel.envs.host import HostTask, remade
from winkel.envs.registry import Task, remake
from winkel.errors import InputError, require_integer
from winkel.simulators import Pool
from winkel.types import Image, Observation

MAX_SEED = 2**32 - 1


class Came(NamedTuple):
    """What a step brought, observations as the agent sees them (a stack where they are frames).

    Attributes:
        next_obs: what the transition ends in.
        obs: what to act on next: the same, or the first observation of a new episode.
        reward: of the transition.
        boundary: whether the episode ended.
    """

    next_obs: np.ndarray
    obs: np.ndarray
    reward: float
    boundary: bool


@runtime_checkable
class World(Protocol):
    """One environment, stepped from Python."""

    def reset(self) -> np.ndarray:
        """Begin an episode, whatever went on before."""

    def step(self, action: int) -> Came:
        """Make one transition; where it ends the episode, the next one has begun."""


class Simulated:
    """A simulator, in a pool of one."""

    def __init__(self, pool: Pool, observation: Observation):
        self._pool, self._observation = pool, observation
        self._seen = np.zeros(0)

    def reset(self) -> np.ndarray:
        """The first observation."""
        self._seen = self._begun(self._pool.reset()[0])
        return self._seen

    def step(self, action: int) -> Came:
        """One transition, with frames stacked."""
        moves = self._pool.step(np.array([action]))
        if moves.lost[0]:
            raise InputError("the simulator died in the middle of an episode; play again")
        next_obs = moves.obs_next[0]
        if isinstance(self._observation, Image):
            next_obs = np.concatenate([self._seen[1:], next_obs[None]])
        boundary = bool(moves.boundary[0])
        self._seen = self._begun(moves.obs[0]) if boundary else next_obs
        return Came(next_obs, self._seen, float(moves.reward[0]), boundary)

    def _begun(self, obs: np.ndarray) -> np.ndarray:
        if isinstance(self._observation, Image):
            return np.repeat(obs[None], self._observation.stack, axis=0)
        return obs


class Compiled:
    """An environment of `winkel.envs`."""

    def __init__(self, task: Task, seed: int):
        self._params, self._key, self._time = task.params, jax.random.key(seed), 0
        self._reset, self._step = jax.jit(task.env.reset), jax.jit(task.env.step)
        self._state: Any = None

    def reset(self) -> np.ndarray:
        """The first observation."""
        self._state, obs = self._reset(self._next_key(), self._params)
        return np.asarray(obs)

    def step(self, action: int) -> Came:
        """One transition."""
        self._state, step = self._step(self._next_key(), self._state, action, self._params)
        seen = np.asarray(step.next_obs), np.asarray(step.obs)
        return Came(*seen, float(step.reward), bool(step.boundary))

    def _next_key(self) -> PRNGKeyArray:
        self._time += 1
        return jax.random.fold_in(self._key, self._time)


def task_of(config: Mapping[str, Any], mnist_dir: Path | None = None) -> Task | HostTask:
    """What a run was made in."""
    return remade(config) if "host" in config else remake(config, mnist_dir)


def action_names(task: Task | HostTask) -> dict[str, np.ndarray]:
    """What figures call `actions`, where the world has names for them."""
    names = task.action_names if isinstance(task, HostTask) else ()
    return {"actions": np.array(names)} if names else {}


@contextlib.contextmanager
def world_of(
    task: Task | HostTask, seed: int = 0, notice: Callable[[str], None] = lambda _: None
) -> Iterator[World]:
    """One environment of a task; a seed decides all of its episodes."""
    if require_integer("a world's seed", seed, at_least=0) > MAX_SEED:
        raise InputError(f"need a world's seed <= {MAX_SEED}, got {seed}")
    if not isinstance(task, HostTask):
        yield Compiled(task, seed)
        return
    with dataclasses.replace(task, workers=0).pool([seed], notice) as pool:
        found = pool.layout.shape, pool.num_actions
        wanted = task.shows[0], task.env.num_actions
        if found != wanted:
            raise InputError(
                f"need {task.id} as it was in training, observations {list(wanted[0])} and "
                f"{wanted[1]} actions, got {list(found[0])} and {found[1]}"
            )
        yield Simulated(pool, task.env.observation)
