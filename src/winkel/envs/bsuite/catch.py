"""A ball falls down a board of 10 × 5; a paddle on the last row should be under it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.envs.base import Dense, Environment, Outcome, outcome

ROWS, COLUMNS = 10, 5


class CatchState(NamedTuple):
    """Column and row of the ball, column of the paddle."""

    ball_x: Int[Array, ""]
    ball_y: Int[Array, ""]
    paddle_x: Int[Array, ""]


class Catch(Environment):
    """Actions are left, stay, right; after nine steps the catch pays 1, a miss −1."""

    @property
    def observation(self) -> Dense:
        """The board, ones at ball and paddle (a single one where they meet)."""
        return Dense((ROWS, COLUMNS))

    @property
    def num_actions(self) -> int:
        """Left, stay, right."""
        return 3

    def draw_start(self, key: PRNGKeyArray, params: None) -> Int[Array, ""]:
        """The ball's column: a scaled uniform, biased by less than 1e-6, at a fifth of the cost."""
        return jnp.floor(jax.random.uniform(key) * COLUMNS).astype(jnp.int32)

    def start(self, draws: Int[Array, ""], episode: Int[Array, ""], params: None) -> CatchState:
        """The ball on the first row, the paddle in the middle."""
        return CatchState(
            ball_x=draws.astype(jnp.int32),
            ball_y=jnp.zeros((), jnp.int32),
            paddle_x=jnp.full((), COLUMNS // 2, jnp.int32),
        )

    def draw(self, key: PRNGKeyArray, params: None) -> None:
        """Nothing is random on the way down."""

    def transition(
        self, state: CatchState, action: Int[Array, ""], draws: None, params: None
    ) -> tuple[CatchState, Outcome]:
        """The paddle moves, the ball falls."""
        state = CatchState(
            ball_x=state.ball_x,
            ball_y=state.ball_y + 1,
            paddle_x=jnp.clip(state.paddle_x + action - 1, 0, COLUMNS - 1).astype(jnp.int32),
        )
        ended = state.ball_y == ROWS - 1
        caught = state.paddle_x == state.ball_x
        reward = jnp.where(ended, jnp.where(caught, 1.0, -1.0), 0.0)
        return state, outcome(reward, ended, wrong=ended & ~caught)

    def observe(self, state: CatchState, params: None) -> Float[Array, "R C"]:
        """The board."""
        cell = jnp.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
        ball = cell == state.ball_y * COLUMNS + state.ball_x
        paddle = cell == (ROWS - 1) * COLUMNS + state.paddle_x
        return (ball | paddle).astype(jnp.float32)
