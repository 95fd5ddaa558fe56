"""Take an umbrella or not at first, learn at the end whether it was right; noise in between.

`umbrella_distract` draws everything from seed 0 in every run of bsuite. All of these draws are fair
coins, and the order of them does not depend on actions, so that here they are read off one stream
of bits; `umbrella_length` draws anew.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from winkel.envs.base import Dense, Environment, Outcome, countdown_table, outcome
from winkel.types import AnyArray

NUM_EPISODES = 10_000


class UmbrellaState(NamedTuple):
    """What is needed and had, the steps taken, the distractors, and where the stream is."""

    need: Int[Array, ""]
    has: Int[Array, ""]
    step: Int[Array, ""]
    distractors: Int[Array, "D"]
    cursor: Int[Array, ""]


class UmbrellaParams(NamedTuple):
    """Length of the chain, number of distractors, the time feature by step (padded)."""

    length: Int[AnyArray, ""]
    num_distractors: Int[AnyArray, ""]
    time: Float[AnyArray, "T"]


class UmbrellaStartDraws(NamedTuple):
    """Fair coins."""

    need: Int[Array, ""]
    has: Int[Array, ""]
    distractors: Int[Array, "D"]


class UmbrellaDraws(NamedTuple):
    """Fair coins; the reward's is used on every step but the last."""

    reward: Int[Array, ""]
    distractors: Int[Array, "D"]


class UmbrellaChain(Environment):
    """A chain with any length and number of distractors up to its own.

    `stream` holds packed bits to replay instead of drawing, or None.
    """

    max_length: int = eqx.field(static=True)
    max_distractors: int = eqx.field(static=True)
    stream: UInt8[AnyArray, "bytes"] | None = None

    @property
    def observation(self) -> Dense:
        """Need, has, time left, distractors."""
        return Dense((1, 3 + self.max_distractors))

    @property
    def num_actions(self) -> int:
        """Leave it or take it."""
        return 2

    def draw_start(self, key: PRNGKeyArray, params: UmbrellaParams) -> UmbrellaStartDraws | None:
        """Three kinds of coins, unless they come from the stream."""
        if self.stream is not None:
            return None
        coins = _coins(key, 2 + self.max_distractors)
        return UmbrellaStartDraws(need=coins[0], has=coins[1], distractors=coins[2:])

    def start(
        self, draws: UmbrellaStartDraws | None, episode: Int[Array, ""], params: UmbrellaParams
    ) -> UmbrellaState:
        """What is had at first is random, and overwritten by the first action."""
        cursor = jnp.zeros((), jnp.int32)
        if draws is None:
            count = params.num_distractors
            per_episode = 2 + count * (params.length + 1) + params.length - 1
            cursor = (1 + (episode % NUM_EPISODES) * per_episode).astype(jnp.int32)
            draws = UmbrellaStartDraws(
                need=self._read(cursor, 1)[0],
                has=self._read(cursor + 1, 1)[0],
                distractors=self._read(cursor + 2, self.max_distractors),
            )
            cursor = cursor + 2 + count
        return UmbrellaState(
            need=draws.need,
            has=draws.has,
            step=jnp.zeros((), jnp.int32),
            distractors=draws.distractors,
            cursor=cursor,
        )

    def draw(self, key: PRNGKeyArray, params: UmbrellaParams) -> UmbrellaDraws | None:
        """Two kinds of coins, unless they come from the stream."""
        if self.stream is not None:
            return None
        coins = _coins(key, 1 + self.max_distractors)
        return UmbrellaDraws(reward=coins[0], distractors=coins[1:])

    def transition(
        self,
        state: UmbrellaState,
        action: Int[Array, ""],
        draws: UmbrellaDraws | None,
        params: UmbrellaParams,
    ) -> tuple[UmbrellaState, Outcome]:
        """±1 at random on the way, ±1 for the umbrella at the end."""
        step = state.step + 1
        ended = step == params.length
        cursor = state.cursor
        if draws is None:
            after_reward = jnp.where(ended, cursor, cursor + 1)  # the last step draws no reward
            draws = UmbrellaDraws(
                reward=self._read(cursor, 1)[0],
                distractors=self._read(after_reward, self.max_distractors),
            )
            cursor = (after_reward + params.num_distractors).astype(jnp.int32)
        has = jnp.where(step == 1, action, state.has).astype(jnp.int32)
        right = has == state.need
        reward = jnp.where(ended, jnp.where(right, 1.0, -1.0), 2.0 * draws.reward - 1.0)
        following = UmbrellaState(
            need=state.need, has=has, step=step, distractors=draws.distractors, cursor=cursor
        )
        return following, outcome(reward, ended, wrong=ended & ~right)

    def observe(self, state: UmbrellaState, params: UmbrellaParams) -> Float[Array, "1 O"]:
        """Need, has, time left, distractors."""
        used = jnp.arange(self.max_distractors) < params.num_distractors
        head = jnp.stack(
            [
                state.need.astype(jnp.float32),
                state.has.astype(jnp.float32),
                jnp.asarray(params.time)[state.step],
            ]
        )
        tail = jnp.where(used, state.distractors, 0).astype(jnp.float32)
        return jnp.concatenate([head, tail])[None]

    def _read(self, start: Int[Array, ""], count: int) -> Int[Array, "count"]:
        assert self.stream is not None
        position = start + jnp.arange(count)
        byte = jnp.asarray(self.stream)[position >> 3].astype(jnp.int32)
        return (byte >> (7 - (position & 7))) & 1


def _coins(key: PRNGKeyArray, count: int) -> Int[Array, "count"]:
    return jax.random.bernoulli(key, 0.5, (count,)).astype(jnp.int32)


def umbrella_params(max_length: int, length: int, num_distractors: int) -> UmbrellaParams:
    """One chain."""
    return UmbrellaParams(
        length=np.asarray(length, np.int32),
        num_distractors=np.asarray(num_distractors, np.int32),
        time=countdown_table(length, max_length),
    )


def seed_zero_stream(length: int, num_distractors: int) -> UInt8[np.ndarray, "bytes"]:
    """The coins of 10,000 episodes with seed 0, packed: a fair coin is a uniform above one half."""
    per_episode = 2 + num_distractors * (length + 1) + length - 1
    rng = np.random.RandomState(0)
    # Whole bytes, and padding enough for reads beyond the last distractor in use.
    num_bytes = (1 + NUM_EPISODES * per_episode + num_distractors) // 8 + 2
    chunks = [rng.random_sample(8 * size) > 0.5 for size in _chunks(num_bytes, 250_000)]
    return np.packbits(np.concatenate(chunks))


def _chunks(total: int, size: int) -> list[int]:
    return [size] * (total // size) + [total % size]
