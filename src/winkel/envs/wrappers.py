"""Scale rewards and add noise, as bsuite's `*_scale` and `*_noise` experiments do."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.envs.base import Environment, Observation, Outcome
from winkel.types import AnyArray

PERTURBATION: Mapping[str, float] = {"reward_scale": 1.0, "noise_scale": 0.0}
"""Settings of the wrapper, with their defaults."""


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


def build_perturbed(
    make_env: Callable[[Path | None], Environment],
    make_params: Callable[[Mapping[str, Any]], Any],
) -> Callable[[Sequence[Mapping[str, Any]], Path | None], tuple[Environment, list[Any]]]:
    """Return a `Family.build` of the wrapped environment; one environment serves all settings."""

    def build(
        settings: Sequence[Mapping[str, Any]], mnist_dir: Path | None
    ) -> tuple[Environment, list[Any]]:
        return PerturbedReward(env=make_env(mnist_dir)), [
            PerturbedParams(
                inner=make_params(setting),
                reward_scale=np.asarray(setting["reward_scale"], np.float32),
                noise_scale=np.asarray(setting["noise_scale"], np.float32),
            )
            for setting in settings
        ]

    return build
