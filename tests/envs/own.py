"""Environments in JAX as a user writes them, right and wrong."""

import dataclasses
import random
from typing import NamedTuple

import jax
import jax.numpy as jnp

from winkel.types import Image, OneHot, Planes


@dataclasses.dataclass  # which is not hashable
class Walk:
    """A walk on a line from its middle; its right end is worth 1, and time is limited."""

    size: int = 5
    limit: int = 9

    num_actions = 2

    @property
    def observation(self):
        return (self.size,)

    def reset(self, key):
        state = {"place": self.size // 2, "time": 0}
        return state, self.observe(state)

    def step(self, key, state, action):
        moved = {"place": state["place"] + 2 * action - 1, "time": state["time"] + 1}
        at_end = (moved["place"] == 0) | (moved["place"] == self.size - 1)
        reward = jnp.where(moved["place"] == self.size - 1, 1, 0)
        return moved, self.observe(moved), reward, at_end, moved["time"] >= self.limit

    def observe(self, state):
        return jnp.arange(self.size) == state["place"]


class Tabled(Walk):
    """The same walk, whose rewards are in an array that is made with it."""

    def __init__(self):
        super().__init__()
        self.rewards = jnp.zeros(self.size).at[-1].set(1.0)

    def step(self, key, state, action):
        moved, obs, _, *ends = super().step(key, state, action)
        return moved, obs, self.rewards[moved["place"]], *ends


class Pictures(Walk):
    """The same walk, observed as a frame."""

    observation = Image((4, 4), stack=1)

    def observe(self, state):
        return jnp.full((1, 4, 4), 40 * state["place"], jnp.uint8)


WALK = Walk(size=7)


class Cells(Walk):
    """The same walk, observed as an index."""

    @property
    def observation(self):
        return OneHot((self.size,))

    def observe(self, state):
        return state["place"]


class Board(NamedTuple):
    row: jax.Array
    column: jax.Array
    time: jax.Array


class Symbols:
    """A piece on a random cell of a board of symbols, which wants to go home to the corner."""

    observation = Planes((4, 4, 2), values=(2, 3))
    num_actions = 4

    def reset(self, key):
        row, column = jax.random.randint(key, (2,), 1, 4)
        state = Board(row, column, jnp.zeros((), jnp.int32))
        return state, self.observe(state)

    def step(self, key, state, action):
        down = jnp.where(action < 2, 2 * action - 1, 0)
        right = jnp.where(action < 2, 0, 2 * action - 5)
        row, column = (jnp.clip(at, 0, 3) for at in (state.row + down, state.column + right))
        state = Board(row, column, state.time + 1)
        home = (row == 0) & (column == 0)
        return state, self.observe(state), home.astype(float), home, state.time >= 12

    def observe(self, state):
        piece = jnp.zeros((4, 4), int).at[state.row, state.column].set(1)
        clock = jnp.full((4, 4), state.time % 3)
        return jnp.stack([piece, clock], axis=-1)


def make_walk(size=5):
    return Walk(size=size)


class NoStep:
    observation, num_actions = (3,), 2

    def reset(self, key):
        return 0, jnp.zeros(3)


class Continuous(Walk):
    num_actions = None


class Grows(Walk):
    def step(self, key, state, action):
        state, _, *others = super().step(key, state, action)
        return state, jnp.zeros(self.size + 1), *others


class Changes(Walk):
    def step(self, key, state, action):
        state, *others = super().step(key, state, action)
        return state | {"place": state["place"] + 0.5}, *others


class Four(Walk):
    def step(self, key, state, action):
        return super().step(key, state, action)[:4]


class Chance(Walk):
    def observe(self, state):
        return super().observe(state) + random.random()


class Counts(Walk):
    calls = 0

    def step(self, key, state, action):
        self.calls += 1
        state, obs, _, *others = super().step(key, state, action)
        return state, obs, self.calls, *others


class Keeps(Walk):
    def reset(self, key):
        self.first = jax.random.randint(key, (), 1, 4)
        return super().reset(key)


class Raises(Walk):
    def reset(self, key):
        raise RuntimeError("no board")


class Misshapen(Walk):
    observation = (4,)


class Worded(Walk):
    observation = "a line"


NUMBER = 3
