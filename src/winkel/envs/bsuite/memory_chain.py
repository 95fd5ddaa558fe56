"""Bits are shown at the start, and one of them is asked for at the end.

In bsuite every run draws its bits and questions from seed 0, so that all agents see the same ones.
Here they are tables, made by the same generator.
"""

from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from winkel.envs.base import Environment, Episodes, Experiment, Family, Setting, outcome
from winkel.envs.bsuite import common
from winkel.types import AnyArray, Dense, EnvStep

NUM_EPISODES = 10_000


class MemoryState(NamedTuple):
    """Number of steps, the bits, and the index of the bit that is asked for."""

    step: Int[Array, ""]
    context: Int[Array, "B"]
    query: Int[Array, ""]


class MemoryParams(NamedTuple):
    """Numbers of one setting."""

    length: Int[AnyArray, ""]
    """Steps between bits and question."""
    num_bits: Int[AnyArray, ""]
    time: Float[AnyArray, "T"]
    """The time feature by step, padded to the environment's length."""
    contexts: Int[AnyArray, "E B"]
    """Bits of each episode; after the last episode the first one follows."""
    queries: Int[AnyArray, "E"]


class MemoryChain(Environment):
    """A chain of any length up to `max_length` with up to `max_bits` bits."""

    max_length: int = eqx.field(static=True)
    max_bits: int = eqx.field(static=True)

    num_actions = 2

    @property
    def observation(self) -> Dense:
        """Time left, the question on the last step but one, the bits as ±1 at first."""
        return Dense((1, self.max_bits + 2))

    def start(self, draws: None, episode: Int[Array, ""], params: MemoryParams) -> MemoryState:
        row = episode % len(params.queries)
        return MemoryState(
            step=jnp.zeros((), jnp.int32),
            context=jnp.asarray(params.contexts)[row],
            query=jnp.asarray(params.queries)[row],
        )

    def transition(
        self, state: MemoryState, action: Int[Array, ""], draws: None, params: MemoryParams
    ) -> tuple[MemoryState, EnvStep]:
        """Advance; only the action of the last of length + 1 transitions counts."""
        ended = state.step == params.length
        right = action == state.context[state.query]
        reward = jnp.where(ended, jnp.where(right, 1.0, -1.0), 0.0)
        return state._replace(step=state.step + 1), outcome(reward, ended, perfect=ended & right)

    def observe(self, state: MemoryState, params: MemoryParams) -> Float[Array, "1 O"]:
        """Show bits twice: the original observes before it counts the step."""
        step = jnp.maximum(state.step - 1, 0)
        query = jnp.where(step == params.length - 1, state.query, 0)
        shown = (step == 0) & (jnp.arange(self.max_bits) < params.num_bits)
        bits = jnp.where(shown, 2 * state.context - 1, 0)
        features = jnp.concatenate([query[None], bits]).astype(jnp.float32)
        return jnp.concatenate([jnp.asarray(params.time)[step][None], features])[None]


def _make_params(env: MemoryChain, setting: Setting) -> MemoryParams:
    """Draw as the original does with seed 0; its constructor discards the first episode."""
    rng, length, num_bits = np.random.RandomState(0), setting["memory_length"], setting["num_bits"]
    contexts = np.zeros((NUM_EPISODES + 1, env.max_bits), np.int8)
    queries = np.zeros(NUM_EPISODES + 1, np.int32)
    for episode in range(NUM_EPISODES + 1):
        contexts[episode, :num_bits] = rng.binomial(1, 0.5, num_bits)
        queries[episode] = rng.randint(num_bits)
    return MemoryParams(
        length=np.asarray(length, np.int32),
        num_bits=np.asarray(num_bits, np.int32),
        time=common.countdown_table(length, env.max_length),
        contexts=contexts[1:],
        queries=queries[1:],
    )


def _info(episodes: Episodes) -> dict[str, np.ndarray]:
    perfect = common.count(episodes["perfect"])
    regret = 2.0 * (np.arange(1, perfect.size + 1) - perfect)
    return {"total_perfect": perfect, "total_regret": regret}


def _family(name: str, memory_length: int, key: str, values: Iterable[int]) -> Family:
    settings = [{key: value} for value in values]
    return Family(
        name=name,
        experiments=(Experiment(name, name, NUM_EPISODES, ("memory",), settings),),
        defaults={"memory_length": memory_length, "num_bits": 1},
        ranges={"memory_length": (1, common.MAX_LENGTH), "num_bits": (1, common.MAX_WIDTH)},
        make_env=lambda settings: MemoryChain(
            max_length=max(setting["memory_length"] for setting in settings),
            max_bits=max(setting["num_bits"] for setting in settings),
        ),
        make_params=_make_params,
        returns=common.reward_once(-1.0, 1.0),
        longest_episode=lambda setting: setting["memory_length"] + 1,
        inputs=lambda setting: setting["num_bits"] + 2,
        facts=("perfect",),
        info=_info,
    )


LENGTH = _family("memory_len", 1, "memory_length", common.LENGTHS)
SIZE = _family("memory_size", 2, "num_bits", (*common.LOG_SPACED, 30, 40))
