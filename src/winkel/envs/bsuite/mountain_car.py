"""A weak car between two hills pays −1 per step until it reaches the top, or for 1,000 steps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.envs.base import Experiment, Family, outcome
from winkel.envs.bsuite.common import PerturbedReward, count, perturbed, reward_each_step
from winkel.types import Dense, EnvStep

MIN_POSITION, MAX_POSITION, GOAL = -1.2, 0.6, 0.5
MAX_SPEED, FORCE, GRAVITY = 0.07, 0.001, 0.0025
NUM_STEPS = 1_000
TIME = (np.arange(NUM_STEPS + 1) / NUM_STEPS).astype(np.float32)


class MountainCarState(NamedTuple):
    """Position, velocity, number of steps."""

    position: Float[Array, ""]
    velocity: Float[Array, ""]
    step: Int[Array, ""]


class MountainCar(PerturbedReward):
    """Mountain car; the time limit is a termination."""

    observation = Dense((1, 3))
    """Position, velocity, time."""
    num_actions = 3
    """Left, coast, right."""

    def draw_start(self, key: PRNGKeyArray, params: Any) -> Float[Array, ""]:
        return jax.random.uniform(key, minval=-0.6, maxval=-0.4)

    def start(
        self, draws: Float[Array, ""], episode: Int[Array, ""], params: Any
    ) -> MountainCarState:
        return MountainCarState(
            position=draws, velocity=jnp.zeros(()), step=jnp.zeros((), jnp.int32)
        )

    def exact_transition(
        self, state: MountainCarState, action: Int[Array, ""], inner: None
    ) -> tuple[MountainCarState, EnvStep]:
        """Update the velocity, then the position; the left wall stops the car."""
        velocity = state.velocity + (action - 1) * FORCE - jnp.cos(3 * state.position) * GRAVITY
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(state.position + velocity, MIN_POSITION, MAX_POSITION)
        velocity = jnp.where(position == MIN_POSITION, jnp.maximum(velocity, 0.0), velocity)
        state = MountainCarState(position=position, velocity=velocity, step=state.step + 1)
        ended = (position >= GOAL) | (state.step >= NUM_STEPS)
        return state, outcome(jnp.full((), -1.0), ended)

    def observe(self, state: MountainCarState, params: Any) -> Float[Array, "1 3"]:
        return jnp.stack([state.position, state.velocity, jnp.asarray(TIME)[state.step]])[None]


_TAGS = ("basic", "generalization")
FAMILY = perturbed(
    Family(
        name="mountain_car",
        experiments=(Experiment("mountain_car", "mountain_car", 1_000, _TAGS, [{}] * 20),),
        defaults={},
        make_env=lambda _: MountainCar(),
        returns=reward_each_step(-1.0, 0.0),
        longest_episode=lambda _: NUM_STEPS,
        info=lambda episodes: {"raw_return": -1.0 * count(episodes["length"])},
    ),
    "generalization",
)
