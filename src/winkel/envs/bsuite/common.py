"""What several of bsuite's environments share: perturbed rewards, bounds of returns, totals."""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.envs.base import Environment, Episodes, Experiment, Family, Returns, Setting
from winkel.types import AnyArray, EnvStep

LOG_SPACED = (*range(1, 11), 12, 14, 17, 20, 25)
LENGTHS = (*LOG_SPACED, *range(30, 105, 10))
"""Lengths of chains, and numbers of distractors."""
MAX_LENGTH, MAX_WIDTH = 1_000_000, 10_000
"""The greatest length of a chain, and width of its observations."""
COPIES = 4
"""Environments of each scale in an experiment."""


class PerturbedParams(NamedTuple):
    """Parameters of the environment itself, scale of its rewards and of the noise."""

    inner: Any
    reward_scale: Float[AnyArray, ""]
    noise_scale: Float[AnyArray, ""]


class PerturbedReward(Environment):
    """Multiply rewards by a scale and add Gaussian noise on every transition; facts do not change.

    With scale 1 and noise 0 rewards are exactly those of `exact_transition`, so that bsuite's
    plain, noise and scale experiments on one environment are settings of one program.
    """

    def draw(self, key: PRNGKeyArray, params: PerturbedParams) -> Float[Array, ""]:
        return jax.random.normal(jax.random.fold_in(key, 1))

    def transition(
        self, state: PyTree, action: Int[Array, ""], draws: Float[Array, ""], params: Any
    ) -> tuple[PyTree, EnvStep]:
        state, result = self.exact_transition(state, action, params.inner)
        reward = result.reward * params.reward_scale + draws * params.noise_scale
        return state, result._replace(reward=jnp.asarray(reward, jnp.float32))

    @abstractmethod
    def exact_transition(
        self, state: PyTree, action: Int[Array, ""], inner: Any
    ) -> tuple[PyTree, EnvStep]:
        """Make one transition without scale and noise."""


def perturbed(family: Family, *tags: str) -> Family:
    """Let rewards be scaled and noisy: settings, and two experiments with these tags."""
    (plain,) = family.experiments

    def experiment(kind: str, key: str, scales: tuple[float, ...]) -> Experiment:
        settings = [{key: s, **plain.settings[copy]} for s in scales for copy in range(COPIES)]
        name = f"{plain.name}_{kind}"
        return dataclasses.replace(plain, name=name, tags=(kind, *tags), settings=settings)

    def make_params(env: Any, setting: Setting) -> PerturbedParams:
        return PerturbedParams(
            inner=family.make_params(env, setting),
            reward_scale=np.asarray(setting["reward_scale"], np.float32),
            noise_scale=np.asarray(setting["noise_scale"], np.float32),
        )

    noise = experiment("noise", "noise_scale", (0.1, 0.3, 1.0, 3.0, 10.0))
    scale = experiment("scale", "reward_scale", (0.001, 0.03, 1.0, 30.0, 1000.0))
    return dataclasses.replace(
        family,
        experiments=(plain, noise, scale),
        defaults={**family.defaults, "reward_scale": 1.0, "noise_scale": 0.0},
        make_params=make_params,
    )


def reward_once(low: float, high: float, num_steps: int = 1) -> Callable[[Setting, float], Returns]:
    """Bound the return of a reward in [low, high] at the end of `num_steps` noisy steps."""
    return lambda setting, gamma: (low, high, _noise_std(setting, gamma, num_steps))


def reward_each_step(low: float, high: float) -> Callable[[Setting, float], Returns]:
    """Bound the return of a reward in [low, high] at every one of 1,000 steps."""
    return lambda setting, gamma: (
        low * discounted_sum(gamma, 1_000),
        high * discounted_sum(gamma, 1_000),
        _noise_std(setting, gamma, 1_000),
    )


def discounted_sum(gamma: float, num_steps: int) -> float:
    """Return 1 + γ + … + γ^(num_steps − 1)."""
    return float(num_steps) if gamma == 1.0 else (1.0 - gamma**num_steps) / (1.0 - gamma)


def _noise_std(setting: Setting, gamma: float, num_steps: int) -> float:
    return setting.get("noise_scale", 0.0) * math.sqrt(discounted_sum(gamma**2, num_steps))


def count(fact: np.ndarray) -> np.ndarray:
    """Return the total after each episode as an integer."""
    return np.cumsum(fact, dtype=np.int64)


def best(returns: np.ndarray) -> np.ndarray:
    """Return the best return after each episode, at least 0."""
    return np.maximum.accumulate(np.maximum(returns, 0.0), dtype=np.float64)


def regret_of_wrong(episodes: Episodes) -> dict[str, np.ndarray]:
    """Return bsuite's regret where episodes pay 1, or −1 if they are 'wrong'."""
    return {"total_regret": 2.0 * count(episodes["wrong"])}


def countdown_table(length: int, max_length: int) -> Float[np.ndarray, "T"]:
    """Return 1 − t/length by step t, padded with zeros to max_length + 1 entries."""
    padded = np.zeros(max_length + 1, np.float32)
    padded[: length + 1] = 1 - np.arange(length + 1) / length  # rounded from float64 only here
    return padded
