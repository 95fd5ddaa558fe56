"""Scale rewards and add noise, as bsuite's `*_scale` and `*_noise` experiments do."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.envs.base import Environment, Outcome
from winkel.types import AnyArray, Observation


class PerturbedParams(NamedTuple):
    """Parameters of the wrapped environment, scale of its rewards and of the noise."""

    inner: Any
    reward_scale: Float[AnyArray, ""]
    noise_scale: Float[AnyArray, ""]


class PerturbedDraws(NamedTuple):
    """Draws of the wrapped environment, and a standard normal number."""

    inner: PyTree
    noise: Float[Array, ""]


class PerturbedReward(Environment):
    """Multiply rewards by a scale and add Gaussian noise on every transition; facts do not change.

    With scale 1 and noise 0 rewards are exactly those of the wrapped environment, so that bsuite's
    plain, noise and scale experiments on one environment are settings of one program.
    """

    env: Environment

    @property
    def observation(self) -> Observation:
        """Observation of the wrapped environment."""
        return self.env.observation

    @property
    def num_actions(self) -> int:
        """Number of actions of the wrapped environment."""
        return self.env.num_actions

    def draw_start(self, key: PRNGKeyArray, params: PerturbedParams) -> PyTree:
        """Draw for the wrapped environment."""
        return self.env.draw_start(key, params.inner)

    def start(self, draws: PyTree, episode: Int[Array, ""], params: PerturbedParams) -> PyTree:
        """Start the wrapped environment."""
        return self.env.start(draws, episode, params.inner)

    def draw(self, key: PRNGKeyArray, params: PerturbedParams) -> PerturbedDraws:
        """Draw for the wrapped environment, and draw the noise."""
        key_inner, key_noise = (jax.random.fold_in(key, use) for use in range(2))
        return PerturbedDraws(
            inner=self.env.draw(key_inner, params.inner), noise=jax.random.normal(key_noise)
        )

    def transition(
        self, state: PyTree, action: Int[Array, ""], draws: PerturbedDraws, params: PerturbedParams
    ) -> tuple[PyTree, Outcome]:
        """Make a transition and perturb its reward."""
        state, result = self.env.transition(state, action, draws.inner, params.inner)
        reward = result.reward * params.reward_scale + draws.noise * params.noise_scale
        return state, result._replace(reward=jnp.asarray(reward, jnp.float32))

    def observe(self, state: PyTree, params: PerturbedParams) -> Array:
        """Observe the wrapped environment."""
        return self.env.observe(state, params.inner)

    def render(self, state: PyTree, params: PerturbedParams) -> str:
        """Show the wrapped environment."""
        return self.env.render(state, params.inner)
