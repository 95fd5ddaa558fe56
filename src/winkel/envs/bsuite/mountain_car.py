"""An underpowered car between two hills: −1 a step until it is up, a thousand steps at most."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.envs.base import Dense, Environment, Outcome, outcome, time_table

MIN_POSITION, MAX_POSITION, GOAL = -1.2, 0.6, 0.5
MAX_SPEED, FORCE, GRAVITY = 0.07, 0.001, 0.0025
NUM_STEPS = 1_000
TIME = time_table(np.arange(NUM_STEPS + 1) / NUM_STEPS)


class MountainCarState(NamedTuple):
    """Position, velocity, steps taken."""

    position: Float[Array, ""]
    velocity: Float[Array, ""]
    step: Int[Array, ""]


class MountainCar(Environment):
    """Actions are left, coast, right; running out of time is a termination."""

    @property
    def observation(self) -> Dense:
        """Position, velocity, time."""
        return Dense((1, 3))

    @property
    def num_actions(self) -> int:
        """Left, coast, right."""
        return 3

    def draw_start(self, key: PRNGKeyArray, params: None) -> Float[Array, ""]:
        """A position in the valley."""
        return jax.random.uniform(key, minval=-0.6, maxval=-0.4)

    def start(
        self, draws: Float[Array, ""], episode: Int[Array, ""], params: None
    ) -> MountainCarState:
        """At rest."""
        return MountainCarState(
            position=draws, velocity=jnp.zeros(()), step=jnp.zeros((), jnp.int32)
        )

    def draw(self, key: PRNGKeyArray, params: None) -> None:
        """Nothing is random."""

    def transition(
        self, state: MountainCarState, action: Int[Array, ""], draws: None, params: None
    ) -> tuple[MountainCarState, Outcome]:
        """Velocity first, then position; the left wall stops the car."""
        velocity = state.velocity + (action - 1) * FORCE - jnp.cos(3 * state.position) * GRAVITY
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(state.position + velocity, MIN_POSITION, MAX_POSITION)
        velocity = jnp.where(position == MIN_POSITION, jnp.maximum(velocity, 0.0), velocity)
        state = MountainCarState(position=position, velocity=velocity, step=state.step + 1)
        ended = (position >= GOAL) | (state.step >= NUM_STEPS)
        return state, outcome(jnp.full((), -1.0), ended)

    def observe(self, state: MountainCarState, params: None) -> Float[Array, "1 3"]:
        """The three features."""
        return jnp.stack([state.position, state.velocity, jnp.asarray(TIME)[state.step]])[None]
