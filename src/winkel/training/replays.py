"""The replay that an agent's settings ask for, with room for the steps of several environments."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from winkel.errors import InputError
from winkel.replay import Streams, Uniform
from winkel.replay.base import Replay
from winkel.types import Batch, Image, Observation, Transition


def replay_of(config: Any, observation: Observation, num_envs: int) -> Replay:
    """For steps of `num_envs` environments at a time, along a leading axis.

    Single transitions, drawn uniformly, need no order among them; all else is kept as streams.
    """
    stack = observation.stack if isinstance(observation, Image) else None
    if config.n_step == 1 and config.priority_exponent == 0.0 and stack is None:
        return Uniform(capacity=config.capacity)
    if config.burn_in < config.n_step * num_envs:
        raise InputError(
            f"need burn_in >= {config.n_step * num_envs}, n_step for each of {num_envs} "
            f"environments, got {config.burn_in}"
        )
    return Streams(
        capacity=config.capacity,
        num_envs=num_envs,
        n_step=config.n_step,
        stack=stack,
        alpha=config.priority_exponent,
        importance_exponent=config.importance_exponent,
    )


def single(config: Any, observation: Observation) -> Replay:
    """For one environment, without that axis."""
    replay = replay_of(config, observation, num_envs=1)
    return Single(replay) if isinstance(replay, Streams) else replay


@dataclass(frozen=True)
class Single:
    """The stream of one environment, added to step by step."""

    streams: Streams

    def init(self, example: Transition) -> PyTree:
        """No steps."""
        return self.streams.init(_alone(example))

    def add(self, state: PyTree, transition: Transition) -> PyTree:
        """One step, over the oldest."""
        return self.streams.add(state, _alone(transition))

    def sample(
        self,
        state: PyTree,
        batch_size: int,
        key: PRNGKeyArray,
        *,
        gamma: Float[Array, ""] | float = 1.0,
        progress: Float[Array, ""] | float = 0.0,
    ) -> Batch:
        """As the stream."""
        return self.streams.sample(state, batch_size, key, gamma=gamma, progress=progress)

    def reprioritise(self, state: PyTree, batch: Batch, priorities: Float[Array, "B"]) -> PyTree:
        """As the stream."""
        return self.streams.reprioritise(state, batch, priorities)


def add_kept(
    replay: Replay, state: PyTree, transitions: Transition, keep: Bool[Array, "E"]
) -> PyTree:
    """A step of every environment, but for those that were lost."""
    if isinstance(replay, Uniform):
        return replay.add_many(state, transitions, keep)
    assert isinstance(replay, Streams)
    return replay.add(state, transitions, keep)


def _alone(transition: Transition) -> Transition:
    return jax.tree.map(lambda x: jnp.asarray(x)[None], transition)
