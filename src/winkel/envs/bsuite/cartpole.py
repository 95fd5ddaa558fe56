"""A pole on a cart, to balance or to swing up: Euler steps of 0.01 s, ten seconds at most."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.envs.base import Environment, Episodes, Experiment, Family, Setting, outcome
from winkel.envs.bsuite.common import PerturbedReward, best, count, perturbed, reward_each_step
from winkel.types import AnyArray, Dense, EnvStep

TIMESCALE, MAX_TIME = 0.01, 10.0
_ELAPSED = np.concatenate([[0.0], np.cumsum(np.full(1_100, TIMESCALE))])
# Sums of 0.01 in float64 first exceed 10 after 1,001 steps; in float32 after 1,000.
NUM_STEPS = int(np.argmax(_ELAPSED > MAX_TIME))
TIME = (_ELAPSED[: NUM_STEPS + 1] / MAX_TIME).astype(np.float32)
MASS_CART, MASS_POLE, LENGTH, FORCE, GRAVITY = 1.0, 0.1, 0.5, 10.0, 9.8
INIT_RANGE = 0.05
FULL_TURN = 2 * np.pi
SWINGUP_X_THRESHOLD, THETA_DOT_THRESHOLD, MOVE_COST = 3.0, 1.0, 0.1
HANGING = np.array([0.0, 0.0, np.pi, 0.0], np.float32)


class CartpoleState(NamedTuple):
    """Position and angle with their velocities, and the number of steps."""

    x: Float[Array, ""]
    x_dot: Float[Array, ""]
    theta: Float[Array, ""]
    theta_dot: Float[Array, ""]
    step: Int[Array, ""]


Limits = tuple[Float[AnyArray, ""], Float[AnyArray, ""]]
"""Limits of height and x, within which the pole is up and the cart is central."""


def move(state: CartpoleState, action: Int[Array, ""]) -> CartpoleState:
    """Make one Euler step; positions advance by the old velocities."""
    force = (action - 1) * FORCE
    cos, sin = jnp.cos(state.theta), jnp.sin(state.theta)
    total = MASS_CART + MASS_POLE
    swing = MASS_POLE * LENGTH
    pushed = (force + swing * state.theta_dot**2 * sin) / total
    theta_acceleration = (GRAVITY * sin - cos * pushed) / (
        LENGTH * (4 / 3 - MASS_POLE * cos**2 / total)
    )
    x_acceleration = pushed - swing * theta_acceleration * cos / total
    theta = state.theta + TIMESCALE * state.theta_dot
    return CartpoleState(
        x=state.x + TIMESCALE * state.x_dot,
        x_dot=state.x_dot + TIMESCALE * x_acceleration,
        # The remainder by 2π, in operations that vectorise; XLA's own calls libm for each element.
        theta=theta - FULL_TURN * jnp.floor(theta / FULL_TURN),
        theta_dot=state.theta_dot + TIMESCALE * theta_acceleration,
        step=state.step + 1,
    )


def pose_features(state: CartpoleState, x_threshold: Float[AnyArray, ""]) -> Float[Array, "6"]:
    """Return the features that both cartpole tasks observe."""
    place = state.x / x_threshold, state.x_dot / x_threshold
    angle = jnp.sin(state.theta), jnp.cos(state.theta), state.theta_dot
    return jnp.stack([*place, *angle, jnp.asarray(TIME)[state.step]])


class Cartpole(PerturbedReward):
    """Pays 1 while the pole is up and the cart central; a step that pays 0 ends the episode."""

    observation = Dense((1, 6))
    """x, x_dot, sin, cos, theta_dot, time, roughly normalised."""
    num_actions = 3
    """Left, stay, right."""

    def draw_start(self, key: PRNGKeyArray, params: Any) -> Float[Array, "4"]:
        return jax.random.uniform(key, (4,), minval=-INIT_RANGE, maxval=INIT_RANGE)

    def start(
        self, draws: Float[Array, "4"], episode: Int[Array, ""], params: Any
    ) -> CartpoleState:
        return CartpoleState._make([*draws, jnp.zeros((), jnp.int32)])

    def exact_transition(
        self, state: CartpoleState, action: Int[Array, ""], inner: Limits
    ) -> tuple[CartpoleState, EnvStep]:
        """Pay for the state reached; the time limit is a termination."""
        state, (height_limit, x_limit) = move(state, action), inner
        balanced = (jnp.cos(state.theta) > height_limit) & (jnp.abs(state.x) < x_limit)
        ended = (state.step >= NUM_STEPS) | ~balanced
        return state, outcome(balanced, ended, balanced=balanced)

    def observe(self, state: CartpoleState, params: Any) -> Float[Array, "1 6"]:
        return pose_features(state, params.inner[1])[None]


class CartpoleSwingup(Environment):
    """Pays 1 while a pole that hung is up, slow and central, less 0.1 for a push."""

    observation = Dense((1, 8))
    """Cartpole's six features, ±1 for a central cart, ±1 for a slow pole."""
    num_actions = 3
    """Left, stay, right."""

    def draw_start(self, key: PRNGKeyArray, params: Limits) -> Float[Array, "4"]:
        return jax.random.uniform(key, (4,), minval=-INIT_RANGE, maxval=INIT_RANGE)

    def start(
        self, draws: Float[Array, "4"], episode: Int[Array, ""], params: Limits
    ) -> CartpoleState:
        return CartpoleState._make([*(draws + jnp.asarray(HANGING)), jnp.zeros((), jnp.int32)])

    def transition(
        self, state: CartpoleState, action: Int[Array, ""], draws: None, params: Limits
    ) -> tuple[CartpoleState, EnvStep]:
        """Count steps as facts; the original's raw return is upright − 0.1 moves."""
        state, (height_limit, x_limit) = move(state, action), params
        upright = (
            (jnp.cos(state.theta) > height_limit)
            & (jnp.abs(state.theta_dot) < THETA_DOT_THRESHOLD)
            & (jnp.abs(state.x) < x_limit)
        )
        moves = jnp.abs(action - 1)
        ended = (state.step >= NUM_STEPS) | (jnp.abs(state.x) > SWINGUP_X_THRESHOLD)
        reward = upright.astype(jnp.float32) - MOVE_COST * moves
        return state, outcome(reward, ended, upright=upright, moves=moves)

    def observe(self, state: CartpoleState, params: Limits) -> Float[Array, "1 8"]:
        pose = pose_features(state, jnp.asarray(SWINGUP_X_THRESHOLD, np.float32))
        central = jnp.abs(state.x) < params[1]
        slow = jnp.abs(state.theta_dot) < THETA_DOT_THRESHOLD
        return jnp.concatenate([pose, jnp.where(jnp.stack([central, slow]), 1.0, -1.0)])[None]


def _swingup_info(episodes: Episodes) -> dict[str, np.ndarray]:
    upright, moves = episodes["upright"], episodes["moves"]
    return {
        "raw_return": count(upright) - count(moves) / 10,
        "total_upright": 1.0 * count(upright),
        "best_episode": best(upright - moves / 10),
    }


def _limits(setting: Setting, x_key: str) -> Limits:
    height, x = setting["height_threshold"], setting[x_key]
    return np.asarray(height, np.float32), np.asarray(x, np.float32)


_TAGS = ("basic", "credit_assignment", "generalization")
FAMILY = perturbed(
    Family(
        name="cartpole",
        experiments=(Experiment("cartpole", "cartpole", 1_000, _TAGS, [{}] * 20),),
        defaults={"height_threshold": 0.8, "x_threshold": 3.0},
        make_env=lambda _: Cartpole(),
        make_params=lambda _, setting: _limits(setting, "x_threshold"),
        returns=reward_each_step(0.0, 1.0),
        longest_episode=lambda _: NUM_STEPS,
        facts=("balanced",),
        info=lambda episodes: {
            "raw_return": 1.0 * count(episodes["balanced"]),
            "best_episode": best(episodes["balanced"]),
        },
    ),
    "generalization",
)
_SWINGUP, _SWINGUP_TAGS = "cartpole_swingup", ("exploration", "generalization")
_HARDER = [{"height_threshold": n / 20, "x_reward_threshold": 1 - n / 20} for n in range(20)]
SWINGUP = Family(
    name=_SWINGUP,
    experiments=(Experiment(_SWINGUP, _SWINGUP, 1_000, _SWINGUP_TAGS, _HARDER),),
    defaults={"height_threshold": 0.5, "x_reward_threshold": 1.0},
    make_env=lambda _: CartpoleSwingup(),
    make_params=lambda _, setting: _limits(setting, "x_reward_threshold"),
    returns=reward_each_step(-0.1, 1.0),
    longest_episode=lambda _: NUM_STEPS,
    facts=("upright", "moves"),
    info=_swingup_info,
)
