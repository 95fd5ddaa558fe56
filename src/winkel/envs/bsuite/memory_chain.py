"""Bits are shown at the start, one is asked for at the end; in between nothing happens.

In bsuite every run draws its bits and questions from seed 0, so that all agents see the same
ones: here they are tables, made by the same generator.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.envs.base import Dense, Environment, Outcome, countdown_table, outcome
from winkel.types import AnyArray

NUM_EPISODES = 10_000


class MemoryState(NamedTuple):
    """Steps taken, the bits, and which of them is asked for."""

    step: Int[Array, ""]
    context: Int[Array, "B"]
    query: Int[Array, ""]


class MemoryParams(NamedTuple):
    """One chain.

    Attributes:
        length: steps between bits and question.
        num_bits: how many bits; the rest of the observation is padding.
        time: the time feature by step, padded to the environment's length.
        contexts: bits of each episode; the episode after the last is the first.
        queries: question of each episode.
    """

    length: Int[AnyArray, ""]
    num_bits: Int[AnyArray, ""]
    time: Float[AnyArray, "T"]
    contexts: Int[AnyArray, "E B"]
    queries: Int[AnyArray, "E"]


class MemoryChain(Environment):
    """A chain of any length and number of bits up to its own."""

    max_length: int = eqx.field(static=True)
    max_bits: int = eqx.field(static=True)

    @property
    def observation(self) -> Dense:
        """Time left, the question's number on the last step but one, the bits as ±1 at first."""
        return Dense((1, self.max_bits + 2))

    @property
    def num_actions(self) -> int:
        """The bit."""
        return 2

    def draw_start(self, key: PRNGKeyArray, params: MemoryParams) -> None:
        """Everything random is in the tables."""

    def start(self, draws: None, episode: Int[Array, ""], params: MemoryParams) -> MemoryState:
        """The episode's bits and question."""
        row = episode % len(params.queries)
        return MemoryState(
            step=jnp.zeros((), jnp.int32),
            context=jnp.asarray(params.contexts)[row],
            query=jnp.asarray(params.queries)[row],
        )

    def draw(self, key: PRNGKeyArray, params: MemoryParams) -> None:
        """Everything random is in the tables."""

    def transition(
        self, state: MemoryState, action: Int[Array, ""], draws: None, params: MemoryParams
    ) -> tuple[MemoryState, Outcome]:
        """Length + 1 transitions, of which only the last one's action counts."""
        ended = state.step == params.length
        right = action == state.context[state.query]
        reward = jnp.where(ended, jnp.where(right, 1.0, -1.0), 0.0)
        return state._replace(step=state.step + 1), outcome(reward, ended, perfect=ended & right)

    def observe(self, state: MemoryState, params: MemoryParams) -> Float[Array, "1 O"]:
        """The original looks before it counts: bits are shown at reset and again after a step."""
        step = jnp.maximum(state.step - 1, 0)
        query = jnp.where(step == params.length - 1, state.query, 0)
        shown = (step == 0) & (jnp.arange(self.max_bits) < params.num_bits)
        bits = jnp.where(shown, 2 * state.context - 1, 0)
        features = jnp.concatenate([query[None], bits]).astype(jnp.float32)
        return jnp.concatenate([jnp.asarray(params.time)[step][None], features])[None]


def memory_params(max_length: int, max_bits: int, length: int, num_bits: int) -> MemoryParams:
    """The original's draws with seed 0; its constructor uses up the first of each."""
    rng = np.random.RandomState(0)
    contexts = np.zeros((NUM_EPISODES + 1, max_bits), np.int8)
    queries = np.zeros(NUM_EPISODES + 1, np.int32)
    for episode in range(NUM_EPISODES + 1):
        contexts[episode, :num_bits] = rng.binomial(1, 0.5, num_bits)
        queries[episode] = rng.randint(num_bits)
    return MemoryParams(
        length=np.asarray(length, np.int32),
        num_bits=np.asarray(num_bits, np.int32),
        time=countdown_table(length, max_length),
        contexts=contexts[1:],
        queries=queries[1:],
    )
