"""What an environment is: pure functions of (key, state, action, params), for one copy of it.

A subclass fixes what shapes arrays; `params` holds what one setting of it has, as arrays that may
be traced, so that settings of the same shape share one compiled program under `vmap`. All
randomness is drawn in `draw_start` and `draw`, and everything else is a deterministic function of
the draws, which tests inject.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from winkel.errors import InputError
from winkel.types import Dense, EnvStep, Observation, OneHot

__all__ = [
    "Dense",
    "EnvState",
    "Environment",
    "Observation",
    "OneHot",
    "Outcome",
    "check_action",
    "countdown_table",
    "outcome",
    "time_table",
]


class Outcome(NamedTuple):
    """What a transition brings, before any reset. The fields are those of `EnvStep`."""

    reward: Float[Array, ""]
    discount: Float[Array, ""]
    boundary: Bool[Array, ""]
    info: dict[str, Array]


def outcome(reward: Array, terminated: Bool[Array, ""], **info: Array) -> Outcome:
    """An outcome without truncation: the discount is 0 exactly where the episode ends."""
    return Outcome(
        reward=jnp.asarray(reward, jnp.float32),
        discount=1.0 - terminated.astype(jnp.float32),
        boundary=terminated,
        info={name: fact.astype(jnp.int32) for name, fact in info.items()},
    )


class EnvState(NamedTuple):
    """State of one environment, and how many episodes it has ended."""

    inner: PyTree
    episode: Int[Array, ""]


class Environment(eqx.Module):
    """An environment with discrete actions. Subclasses are final and define what is abstract."""

    @property
    @abstractmethod
    def observation(self) -> Observation:
        """What observations look like."""

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """A; actions are 0 … A − 1."""

    @abstractmethod
    def draw_start(self, key: PRNGKeyArray, params: Any) -> PyTree:
        """Random numbers that the start of an episode needs."""

    @abstractmethod
    def start(self, draws: PyTree, episode: Int[Array, ""], params: Any) -> PyTree:
        """First state of an episode, `episode` others having gone before."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, params: Any) -> PyTree:
        """Random numbers that any one transition may need."""

    @abstractmethod
    def transition(
        self, state: PyTree, action: Int[Array, ""], draws: PyTree, params: Any
    ) -> tuple[PyTree, Outcome]:
        """One transition, deterministic given the draws."""

    @abstractmethod
    def observe(self, state: PyTree, params: Any) -> Array:
        """What the agent sees of a state."""

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[EnvState, Array]:
        """The start of a run: its first episode's state and observation."""
        episode = jnp.zeros((), jnp.int32)
        inner = self.start(self.draw_start(key, params), episode, params)
        return EnvState(inner=inner, episode=episode), self.observe(inner, params)

    def step(
        self, key: PRNGKeyArray, state: EnvState, action: Int[Array, ""] | int, params: Any
    ) -> tuple[EnvState, EnvStep]:
        """One transition; where it ends the episode, the next one has begun in the state returned.

        Actions are checked when they are concrete; a traced action out of range is undefined.
        """
        check_action(action, self.num_actions)
        # Folding is several times cheaper than splitting on a CPU, and a key without use is free.
        key_transition, key_start = (jax.random.fold_in(key, use) for use in range(2))
        draws = self.draw(key_transition, params)
        ended, result = self.transition(state.inner, jnp.asarray(action), draws, params)
        episode = state.episode + result.boundary.astype(jnp.int32)
        begun = self.start(self.draw_start(key_start, params), episode, params)
        inner = jax.tree.map(lambda a, b: jnp.where(result.boundary, a, b), begun, ended)
        next_obs = self.observe(ended, params)
        obs = jnp.where(result.boundary, self.observe(begun, params), next_obs)
        return EnvState(inner=inner, episode=episode), EnvStep(
            reward=result.reward,
            discount=result.discount,
            next_obs=next_obs,
            obs=obs,
            boundary=result.boundary,
            info=result.info,
        )


def check_action(action: Any, num_actions: int) -> None:
    """Raise if a concrete action is not one of 0 … num_actions − 1."""
    if isinstance(action, jax.core.Tracer):
        return
    value = np.asarray(action)
    if (
        not np.issubdtype(value.dtype, np.integer)
        or (value < 0).any()
        or (value >= num_actions).any()
    ):
        raise InputError(f"need an action in 0 … {num_actions - 1}, got {action}")


def countdown_table(length: int, max_length: int) -> Float[np.ndarray, "T"]:
    """1 − t/length by step t, padded with zeros to max_length + 1 entries."""
    padded = np.zeros(max_length + 1, np.float32)
    padded[: length + 1] = time_table(1 - np.arange(length + 1) / length)
    return padded


def time_table(values: np.ndarray) -> Float[np.ndarray, "T"]:
    """A time feature by step, computed in float64 and rounded once, as the originals do."""
    return np.asarray(values, np.float64).astype(np.float32)
