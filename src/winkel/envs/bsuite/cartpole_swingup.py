"""Swing a hanging pole up and hold it, although every push costs."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.envs.base import Environment, Episodes, Experiment, Family, Outcome, outcome
from winkel.envs.bsuite import cartpole
from winkel.envs.bsuite.cartpole import NUM_STEPS, CartpoleParams, CartpoleState
from winkel.envs.bsuite.common import best, count, reward_each_step
from winkel.types import Dense

X_THRESHOLD, THETA_DOT_THRESHOLD, MOVE_COST = 3.0, 1.0, 0.1
HANGING = np.array([0.0, 0.0, np.pi, 0.0], np.float32)


class CartpoleSwingup(Environment):
    """Pays 1 while the pole is up, slow and central, less 0.1 for a push.

    An episode ends when the cart leaves the table or the time is out.
    """

    observation = Dense((1, 8))
    """Cartpole's six features, ±1 for a central cart, ±1 for a slow pole."""
    num_actions = 3
    """Left, stay, right."""

    def draw_start(self, key: PRNGKeyArray, params: CartpoleParams) -> Float[Array, "4"]:
        """Draw a pose near upright, which `start` turns upside down."""
        return cartpole.draw_pose(key)

    def start(
        self, draws: Float[Array, "4"], episode: Int[Array, ""], params: CartpoleParams
    ) -> CartpoleState:
        """Let the pole hang."""
        return cartpole.pose_state(draws + jnp.asarray(HANGING))

    def transition(
        self, state: CartpoleState, action: Int[Array, ""], draws: None, params: CartpoleParams
    ) -> tuple[CartpoleState, Outcome]:
        """Count steps as facts; the original's raw return is upright − 0.1 moves."""
        state = cartpole.move(state, action)
        upright = (
            (jnp.cos(state.theta) > params.height_threshold)
            & (jnp.abs(state.theta_dot) < THETA_DOT_THRESHOLD)
            & (jnp.abs(state.x) < params.x_threshold)
        )
        moves = jnp.abs(action - 1)
        ended = (state.step >= NUM_STEPS) | (jnp.abs(state.x) > X_THRESHOLD)
        reward = upright.astype(jnp.float32) - MOVE_COST * moves
        return state, outcome(reward, ended, upright=upright, moves=moves)

    def observe(self, state: CartpoleState, params: CartpoleParams) -> Float[Array, "1 8"]:
        """Return the eight features."""
        pose = cartpole.pose_features(state, jnp.asarray(X_THRESHOLD, np.float32))
        central = jnp.abs(state.x) < params.x_threshold
        slow = jnp.abs(state.theta_dot) < THETA_DOT_THRESHOLD
        return jnp.concatenate([pose, jnp.where(jnp.stack([central, slow]), 1.0, -1.0)])[None]


def _info(episodes: Episodes) -> dict[str, np.ndarray]:
    upright, moves = episodes["upright"], episodes["moves"]
    return {
        "raw_return": count(upright) - count(moves) / 10,
        "total_upright": 1.0 * count(upright),
        "best_episode": best(upright - moves / 10),
    }


_NAME = "cartpole_swingup"
_SETTINGS = [{"height_threshold": n / 20, "x_reward_threshold": 1 - n / 20} for n in range(20)]
FAMILY = Family(
    name=_NAME,
    experiments=(Experiment(_NAME, _NAME, 1_000, ("exploration", "generalization"), _SETTINGS),),
    defaults={"height_threshold": 0.5, "x_reward_threshold": 1.0},
    make_env=lambda *_: CartpoleSwingup(),
    make_params=lambda _, setting: CartpoleParams(
        height_threshold=np.asarray(setting["height_threshold"], np.float32),
        x_threshold=np.asarray(setting["x_reward_threshold"], np.float32),
    ),
    returns=reward_each_step(-0.1, 1.0),
    longest_episode=lambda _: NUM_STEPS,
    facts=("upright", "moves"),
    info=_info,
)
