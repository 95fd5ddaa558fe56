"""Environments made of others."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.envs.base import Environment, Observation, Outcome
from winkel.types import AnyArray


class PerturbedParams(NamedTuple):
    """Parameters of the environment inside, and what is done to its rewards."""

    inner: Any
    reward_scale: Float[AnyArray, ""]
    noise_scale: Float[AnyArray, ""]


class PerturbedDraws(NamedTuple):
    """Draws of the environment inside, and a standard normal."""

    inner: PyTree
    noise: Float[Array, ""]


class PerturbedReward(Environment):
    """Rewards times a scale plus Gaussian noise on every transition; facts stay unperturbed.

    With scale 1 and noise 0 rewards are exactly those inside, so that bsuite's plain, noise and
    scale experiments on one environment are settings of one program.
    """

    env: Environment

    @property
    def observation(self) -> Observation:
        """That of the environment inside."""
        return self.env.observation

    @property
    def num_actions(self) -> int:
        """That of the environment inside."""
        return self.env.num_actions

    def draw_start(self, key: PRNGKeyArray, params: PerturbedParams) -> PyTree:
        """Those of the environment inside."""
        return self.env.draw_start(key, params.inner)

    def start(self, draws: PyTree, episode: Int[Array, ""], params: PerturbedParams) -> PyTree:
        """That of the environment inside."""
        return self.env.start(draws, episode, params.inner)

    def draw(self, key: PRNGKeyArray, params: PerturbedParams) -> PerturbedDraws:
        """Those of the environment inside, and the noise."""
        key_inner, key_noise = (jax.random.fold_in(key, use) for use in range(2))
        return PerturbedDraws(
            inner=self.env.draw(key_inner, params.inner), noise=jax.random.normal(key_noise)
        )

    def transition(
        self, state: PyTree, action: Int[Array, ""], draws: PerturbedDraws, params: PerturbedParams
    ) -> tuple[PyTree, Outcome]:
        """The transition inside, its reward perturbed."""
        state, inside = self.env.transition(state, action, draws.inner, params.inner)
        reward = inside.reward * params.reward_scale + draws.noise * params.noise_scale
        return state, inside._replace(reward=jnp.asarray(reward, jnp.float32))

    def observe(self, state: PyTree, params: PerturbedParams) -> Array:
        """What the environment inside shows."""
        return self.env.observe(state, params.inner)
