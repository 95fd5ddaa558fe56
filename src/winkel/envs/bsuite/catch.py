"""A ball falls down a board of 10 × 5; a paddle on the last row must be below it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.envs.base import Experiment, Family, outcome
from winkel.envs.bsuite.common import PerturbedReward, perturbed, regret_of_wrong, reward_once
from winkel.types import Dense, EnvStep

ROWS, COLUMNS = 10, 5


class CatchState(NamedTuple):
    """Column and row of the ball, column of the paddle."""

    ball_x: Int[Array, ""]
    ball_y: Int[Array, ""]
    paddle_x: Int[Array, ""]


class Catch(PerturbedReward):
    """Pays 1 for a catch and −1 for a miss, after nine steps."""

    observation = Dense((ROWS, COLUMNS))
    """The board, ones at ball and paddle (a single one where they meet)."""
    num_actions = 3
    """Left, stay, right."""

    def draw_start(self, key: PRNGKeyArray, params: Any) -> Int[Array, ""]:
        """Draw the ball's column: five times cheaper than `randint`, with a bias below 1e-6."""
        return jnp.floor(jax.random.uniform(key) * COLUMNS).astype(jnp.int32)

    def start(self, draws: Int[Array, ""], episode: Int[Array, ""], params: Any) -> CatchState:
        return CatchState(
            ball_x=draws.astype(jnp.int32),
            ball_y=jnp.zeros((), jnp.int32),
            paddle_x=jnp.full((), COLUMNS // 2, jnp.int32),
        )

    def exact_transition(
        self, state: CatchState, action: Int[Array, ""], inner: None
    ) -> tuple[CatchState, EnvStep]:
        state = CatchState(
            ball_x=state.ball_x,
            ball_y=state.ball_y + 1,
            paddle_x=jnp.clip(state.paddle_x + action - 1, 0, COLUMNS - 1).astype(jnp.int32),
        )
        ended = state.ball_y == ROWS - 1
        caught = state.paddle_x == state.ball_x
        reward = jnp.where(ended, jnp.where(caught, 1.0, -1.0), 0.0)
        return state, outcome(reward, ended, wrong=ended & ~caught)

    def observe(self, state: CatchState, params: Any) -> Float[Array, "R C"]:
        cell = jnp.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
        ball = cell == state.ball_y * COLUMNS + state.ball_x
        paddle = cell == (ROWS - 1) * COLUMNS + state.paddle_x
        return (ball | paddle).astype(jnp.float32)


_TAGS = ("basic", "credit_assignment")
FAMILY = perturbed(
    Family(
        name="catch",
        experiments=(Experiment("catch", "catch", 10_000, _TAGS, [{}] * 20),),
        defaults={},
        make_env=lambda _: Catch(),
        returns=reward_once(-1.0, 1.0, num_steps=ROWS - 1),
        longest_episode=lambda _: ROWS - 1,
        facts=("wrong",),
        info=regret_of_wrong,
    ),
    "credit_assignment",
)
