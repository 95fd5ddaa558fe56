"""What an environment is: pure functions of (key, state, action, params), for one copy of it.

Fields of a subclass determine the shapes of arrays. `params` holds the numbers of one setting as
arrays that may be traced, so that settings of equal shape share one compiled program under `vmap`.
Only `draw_start` and `draw` use random keys. Everything else is a deterministic function of what
they draw, so that tests can replace the draws.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from winkel.errors import InputError
from winkel.types import EnvStep, Observation

_SHADES = " .:-=+*#%@"


class Outcome(NamedTuple):
    """Result of a transition before any reset. The fields are those of `EnvStep`."""

    reward: Float[Array, ""]
    discount: Float[Array, ""]
    boundary: Bool[Array, ""]
    info: dict[str, Array]


def outcome(reward: Array, terminated: Bool[Array, ""], **info: Array) -> Outcome:
    """Make an outcome without truncation: the discount is 0 exactly where the episode ends."""
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
    """An environment with discrete actions. Subclasses are final.

    They define what is abstract, `draw_start` and `draw` where something is random, and `render`
    where a picture is better than the observation's numbers.
    """

    @property
    @abstractmethod
    def observation(self) -> Observation:
        """Form of observations."""

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """A; actions are 0 … A − 1."""

    def draw_start(self, key: PRNGKeyArray, params: Any) -> PyTree:
        """Draw the random numbers that the start of an episode needs; none by default."""
        return None

    @abstractmethod
    def start(self, draws: PyTree, episode: Int[Array, ""], params: Any) -> PyTree:
        """Return the first state of an episode, after `episode` others."""

    def draw(self, key: PRNGKeyArray, params: Any) -> PyTree:
        """Draw the random numbers that a transition may need; none by default."""
        return None

    @abstractmethod
    def transition(
        self, state: PyTree, action: Int[Array, ""], draws: PyTree, params: Any
    ) -> tuple[PyTree, Outcome]:
        """Make one transition, deterministic given the draws."""

    @abstractmethod
    def observe(self, state: PyTree, params: Any) -> Array:
        """Return the observation of a state."""

    def render(self, state: PyTree, params: Any) -> str:
        """Show a state as text: by default its observation, as numbers or as shades of gray."""
        observation = np.asarray(self.observe(state, params))
        if observation.size <= 16:
            return " ".join(f"{value:+.3f}" for value in observation.ravel())
        unsigned = np.where(observation < 0, observation + 256 / 255, observation)
        levels = np.clip(unsigned * len(_SHADES), 0, len(_SHADES) - 1).astype(int)
        return "\n".join("".join(_SHADES[level] for level in row) for row in levels)

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[EnvState, Array]:
        """Begin a run: return the state and the observation of its first episode."""
        episode = jnp.zeros((), jnp.int32)
        inner = self.start(self.draw_start(key, params), episode, params)
        return EnvState(inner=inner, episode=episode), self.observe(inner, params)

    def step(
        self, key: PRNGKeyArray, state: EnvState, action: Int[Array, ""] | int, params: Any
    ) -> tuple[EnvState, EnvStep]:
        """Make one transition; if it ends the episode, return the state that begins the next one.

        Concrete actions are checked; a traced action out of range is undefined.
        """
        check_action(action, self.num_actions)
        # `fold_in` is several times cheaper than `split` on a CPU, and an unused key costs nothing.
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


def draw_track(step: int, length: int, text: str) -> str:
    """Show a position on a chain as a line of at most 40 characters, with a text beside it."""
    width = min(length, 40)
    at = min(round(step / length * width), width)
    return "[" + "=" * at + ">" + "·" * (width - at) + f"]  {text}"


def countdown_table(length: int, max_length: int) -> Float[np.ndarray, "T"]:
    """Return 1 − t/length by step t, padded with zeros to max_length + 1 entries."""
    padded = np.zeros(max_length + 1, np.float32)
    padded[: length + 1] = time_table(1 - np.arange(length + 1) / length)
    return padded


def time_table(values: np.ndarray) -> Float[np.ndarray, "T"]:
    """Round a time feature by step from float64 to float32 once, as the originals do."""
    return np.asarray(values, np.float64).astype(np.float32)
