"""The replay that an agent's settings ask for, with or without an axis of environments."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from winkel.errors import InputError
from winkel.replay import Streams, Uniform
from winkel.replay.base import Replay
from winkel.types import Image, Observation, Transition


def make_replay(config: Any, observation: Observation, num_envs: int = 1) -> Replay:
    """Build the replay for the steps of `num_envs` environments.

    `Uniform` is enough for single transitions that are drawn uniformly: they need no order. Samples
    of several steps, priorities and stacks of frames need `Streams`.
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


def init_replay(replay: Replay, example: Transition) -> PyTree:
    """An empty replay for transitions like the example, of one environment or of several."""
    if isinstance(replay, Streams):
        return replay.init(_with_axis(example))
    several = jnp.ndim(example.boundary) > 0
    return replay.init(jax.tree.map(lambda x: x[0], example) if several else example)


def add_transition(
    replay: Replay, state: PyTree, transition: Transition, keep: Bool[Array, "E"] | None = None
) -> PyTree:
    """Store one transition, or one of each environment but for those that are not to keep."""
    if isinstance(replay, Streams):
        return replay.add(state, _with_axis(transition), keep)
    if isinstance(replay, Uniform) and jnp.ndim(transition.boundary) > 0:
        return replay.add_many(state, transition, keep)
    return replay.add(state, transition)


def _with_axis(transition: Transition) -> Transition:
    """A leading axis of environments, if there is none."""
    if jnp.ndim(transition.boundary) > 0:
        return transition
    return jax.tree.map(lambda x: jnp.asarray(x)[None], transition)
