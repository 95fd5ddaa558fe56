"""The first action takes an umbrella or not; the last reward tells whether that was right.

In bsuite every run of `umbrella_distract` draws its random numbers from seed 0. All of them are
fair coins, and their order does not depend on actions, so that here they are read from one stream
of bits. `umbrella_length` draws with JAX's keys.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from winkel.envs.base import Environment, Experiment, Family, Returns, Setting, outcome
from winkel.envs.bsuite import common
from winkel.errors import LARGEST, InputError
from winkel.types import AnyArray, Dense, EnvStep

NUM_EPISODES = 10_000
Coins = Int[Array, "coins"] | None
"""None where they come from the stream of bits."""


class UmbrellaState(NamedTuple):
    """Need and possession of an umbrella, step, distractors, position in the stream of bits."""

    need: Int[Array, ""]
    has: Int[Array, ""]
    step: Int[Array, ""]
    distractors: Int[Array, "D"]
    cursor: Int[Array, ""]


class UmbrellaParams(NamedTuple):
    """Length of the chain, number of distractors, time feature by step (padded)."""

    length: Int[AnyArray, ""]
    num_distractors: Int[AnyArray, ""]
    time: Float[AnyArray, "T"]


class UmbrellaChain(Environment):
    """A chain of any length up to `max_length` with up to `max_distractors` distractors.

    `stream` holds packed bits that replace random draws, or None.
    """

    max_length: int = eqx.field(static=True)
    max_distractors: int = eqx.field(static=True)
    stream: UInt8[AnyArray, "bytes"] | None = None

    num_actions = 2

    @property
    def observation(self) -> Dense:
        """Need, possession, time left, distractors."""
        return Dense((1, 3 + self.max_distractors))

    def draw_start(self, key: PRNGKeyArray, params: UmbrellaParams) -> Coins:
        return self._draw_coins(key, 2 + self.max_distractors)

    def start(self, draws: Coins, episode: Int[Array, ""], params: UmbrellaParams) -> UmbrellaState:
        """Start with or without an umbrella at random; the first action overwrites that."""
        step = cursor = jnp.zeros((), jnp.int32)
        if draws is not None:
            return UmbrellaState(draws[0], draws[1], step, distractors=draws[2:], cursor=cursor)
        count = params.num_distractors
        per_episode = 2 + count * (params.length + 1) + params.length - 1
        cursor = (1 + (episode % NUM_EPISODES) * per_episode).astype(jnp.int32)
        need, has = self._read(cursor, 1)[0], self._read(cursor + 1, 1)[0]
        distractors = self._read(cursor + 2, self.max_distractors)
        return UmbrellaState(need, has, step, distractors, cursor + 2 + count)

    def draw(self, key: PRNGKeyArray, params: UmbrellaParams) -> Coins:
        return self._draw_coins(key, 1 + self.max_distractors)

    def transition(
        self, state: UmbrellaState, action: Int[Array, ""], draws: Coins, params: UmbrellaParams
    ) -> tuple[UmbrellaState, EnvStep]:
        """Pay ±1 at random on the way, and ±1 for the umbrella at the end."""
        step = state.step + 1
        ended = step == params.length
        cursor = state.cursor
        if draws is not None:
            coin, distractors = draws[0], draws[1:]
        else:
            after_reward = jnp.where(ended, cursor, cursor + 1)  # the last step draws no reward
            coin = self._read(cursor, 1)[0]
            distractors = self._read(after_reward, self.max_distractors)
            cursor = (after_reward + params.num_distractors).astype(jnp.int32)
        has = jnp.where(step == 1, action, state.has).astype(jnp.int32)
        right = has == state.need
        reward = jnp.where(ended, jnp.where(right, 1.0, -1.0), 2.0 * coin - 1.0)
        following = UmbrellaState(state.need, has, step, distractors, cursor)
        return following, outcome(reward, ended, wrong=ended & ~right)

    def observe(self, state: UmbrellaState, params: UmbrellaParams) -> Float[Array, "1 O"]:
        used = jnp.arange(self.max_distractors) < params.num_distractors
        has, time = state.has.astype(jnp.float32), jnp.asarray(params.time)[state.step]
        head = jnp.stack([state.need.astype(jnp.float32), has, time])
        tail = jnp.where(used, state.distractors, 0).astype(jnp.float32)
        return jnp.concatenate([head, tail])[None]

    def _draw_coins(self, key: PRNGKeyArray, count: int) -> Coins:
        if self.stream is not None:
            return None
        return jax.random.bernoulli(key, 0.5, (count,)).astype(jnp.int32)

    def _read(self, start: Int[Array, ""], count: int) -> Int[Array, "count"]:
        assert self.stream is not None
        position = start + jnp.arange(count)
        byte = jnp.asarray(self.stream)[position >> 3].astype(jnp.int32)
        return (byte >> (7 - (position & 7))) & 1


def seed_zero_stream(length: int, num_distractors: int) -> UInt8[np.ndarray, "bytes"]:
    """Pack the coins of 10,000 episodes with seed 0; a coin is a uniform number above 0.5."""
    per_episode = 2 + num_distractors * (length + 1) + length - 1
    if NUM_EPISODES * per_episode > LARGEST:
        raise InputError(
            f"need fewer than {LARGEST // NUM_EPISODES} random numbers in an episode, got "
            f"{per_episode} with {num_distractors} distractors and a chain of {length}"
        )
    rng = np.random.RandomState(0)
    # Whole bytes, with room for reads beyond the last distractor in use.
    num_bytes = (1 + NUM_EPISODES * per_episode + num_distractors) // 8 + 2
    sizes = [250_000] * (num_bytes // 250_000) + [num_bytes % 250_000]
    return np.packbits(np.concatenate([rng.random_sample(8 * size) > 0.5 for size in sizes]))


def _returns(setting: Setting, gamma: float) -> Returns:
    """Bound by ±1 at the end; a fair coin's ±1 at every step before it is noise."""
    noise_std = math.sqrt(common.discounted_sum(gamma**2, setting["chain_length"] - 1))
    return -1.0, 1.0, noise_std


def _family(
    name: str, chain_length: int, n_distractor: int, settings: Sequence[Setting], *, replay: bool
) -> Family:
    tags = ("credit_assignment", "noise")
    defaults = {"chain_length": chain_length, "n_distractor": n_distractor}

    def make_env(settings: Sequence[Setting]) -> UmbrellaChain:
        length, distractors = (max(setting[key] for setting in settings) for key in defaults)
        stream = seed_zero_stream(length, distractors) if replay else None
        return UmbrellaChain(max_length=length, max_distractors=distractors, stream=stream)

    return Family(
        name=name,
        experiments=(Experiment(name, name, NUM_EPISODES, tags, settings),),
        defaults=defaults,
        ranges={"chain_length": (1, common.MAX_LENGTH), "n_distractor": (0, common.MAX_WIDTH)},
        make_env=make_env,
        make_params=lambda env, setting: UmbrellaParams(
            length=np.asarray(setting["chain_length"], np.int32),
            num_distractors=np.asarray(setting["n_distractor"], np.int32),
            time=common.countdown_table(setting["chain_length"], env.max_length),
        ),
        returns=_returns,
        longest_episode=lambda setting: setting["chain_length"],
        inputs=lambda setting: setting["n_distractor"] + 3,
        facts=("wrong",),
        info=common.regret_of_wrong,
    )


_WIDE = [{"n_distractor": count} for count in common.LENGTHS]
_LONG = [{"chain_length": length, "n_distractor": 20} for length in common.LENGTHS]
DISTRACT = _family("umbrella_distract", 20, 1, _WIDE, replay=True)
LENGTH = _family("umbrella_length", 1, 20, _LONG, replay=False)
