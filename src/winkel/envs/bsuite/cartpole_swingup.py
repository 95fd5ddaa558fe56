"""Swing a hanging pole up and hold it, although every push costs."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.envs.base import Dense, Environment, Outcome, outcome
from winkel.envs.bsuite.cartpole import (
    NUM_STEPS,
    CartpoleState,
    draw_pose,
    move,
    pose_features,
    pose_state,
)
from winkel.types import AnyArray

X_THRESHOLD, THETA_DOT_THRESHOLD, MOVE_COST = 3.0, 1.0, 0.1
HANGING = np.array([0.0, 0.0, np.pi, 0.0], np.float32)


class SwingupParams(NamedTuple):
    """How high the pole and how central the cart must be to pay."""

    height_threshold: Float[AnyArray, ""]
    x_reward_threshold: Float[AnyArray, ""]


class CartpoleSwingup(Environment):
    """Pays 1 while the pole is up, slow and central, less 0.1 for a push; only the table ends."""

    @property
    def observation(self) -> Dense:
        """Cartpole's six features, and ±1 for a central cart and for a slow pole."""
        return Dense((1, 8))

    @property
    def num_actions(self) -> int:
        """Left, stay, right."""
        return 3

    def draw_start(self, key: PRNGKeyArray, params: SwingupParams) -> Float[Array, "4"]:
        """A pose, to be turned upside down."""
        return draw_pose(key)

    def start(
        self, draws: Float[Array, "4"], episode: Int[Array, ""], params: SwingupParams
    ) -> CartpoleState:
        """The pole hangs."""
        return pose_state(draws + jnp.asarray(HANGING))

    def draw(self, key: PRNGKeyArray, params: SwingupParams) -> None:
        """Nothing is random."""

    def transition(
        self, state: CartpoleState, action: Int[Array, ""], draws: None, params: SwingupParams
    ) -> tuple[CartpoleState, Outcome]:
        """Facts are counts of steps; the original's raw return is upright − 0.1 moves."""
        state = move(state, action)
        upright = (
            (jnp.cos(state.theta) > params.height_threshold)
            & (jnp.abs(state.theta_dot) < THETA_DOT_THRESHOLD)
            & (jnp.abs(state.x) < params.x_reward_threshold)
        )
        moves = jnp.abs(action - 1)
        ended = (state.step >= NUM_STEPS) | (jnp.abs(state.x) > X_THRESHOLD)
        reward = upright.astype(jnp.float32) - MOVE_COST * moves
        return state, outcome(reward, ended, upright=upright, moves=moves)

    def observe(self, state: CartpoleState, params: SwingupParams) -> Float[Array, "1 8"]:
        """The eight features."""
        flags = jnp.stack(
            [
                jnp.abs(state.x) < params.x_reward_threshold,
                jnp.abs(state.theta_dot) < THETA_DOT_THRESHOLD,
            ]
        )
        return jnp.concatenate(
            [
                pose_features(state, jnp.asarray(X_THRESHOLD, np.float32)),
                jnp.where(flags, 1.0, -1.0),
            ]
        )[None]
