"""What is known about an environment beside its dynamics: settings, returns, lengths, facts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winkel.envs.base import Environment
from winkel.envs.wrappers import PerturbedParams, PerturbedReward

Setting = Mapping[str, Any]
Episodes = Mapping[str, np.ndarray]
"""Arrays over episodes: 'return', 'length' and the facts of the family."""

PERTURBATION = {"reward_scale": 1.0, "noise_scale": 0.0}
"""Settings of families whose rewards can be scaled and noisy, with their defaults."""
MARGIN = 0.5
"""Fraction of the range of returns that is added at either end: [−0.5, 1.5] for deep sea."""
NOISE_WIDTHS = 3.0
"""Standard deviations of discounted noise that are added at either end."""


class Returns(NamedTuple):
    """Bounds of the discounted return without noise, and the standard deviation of the noise."""

    low: float
    high: float
    noise_std: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Family:
    """One kind of environment with all of its settings.

    Attributes:
        name: such as 'catch'; catch, catch_noise and catch_scale are experiments of this family.
        defaults: every setting with its default, whose type is the type of the setting.
        at_least: smallest allowed values.
        make_env: makes an environment whose shapes hold all given settings; MNIST is read from
            the folder given.
        make_params: makes the parameters of a setting for that environment.
        returns: bounds of the discounted return under any policy, for a discount factor.
        longest_episode: upper bound on the number of steps of an episode.
        inputs: size of an observation, if it depends on the setting.
        num_pairs: number of state-action pairs that episodes can visit, if it is known.
        facts: names in `EnvStep.info`. All are integers that are counted before noise and scale
            change the reward, so that their sums over episodes are exact.
        info: DeepMind's `bsuite_info()` after each of several episodes.
    """

    name: str
    defaults: Mapping[str, int | float]
    at_least: Mapping[str, int | float] = field(default_factory=dict)
    make_env: Callable[[Sequence[Setting], Path | None], Environment]
    make_params: Callable[[Any, Setting], Any] = lambda env, setting: None
    returns: Callable[[Setting, float], Returns]
    longest_episode: Callable[[Setting], int]
    inputs: Callable[[Setting], int] | None = None
    num_pairs: Callable[[Setting], int] | None = None
    facts: tuple[str, ...] = ()
    info: Callable[[Episodes], dict[str, np.ndarray]] = lambda episodes: {}

    def build(
        self, settings: Sequence[Setting], mnist_dir: Path | None = None
    ) -> tuple[Environment, list[Any]]:
        """Make one environment for all given settings, and the parameters of each."""
        env = self.make_env(settings, mnist_dir)
        params = [self.make_params(env, setting) for setting in settings]
        if not PERTURBATION.keys() <= self.defaults.keys():
            return env, params
        return PerturbedReward(env=env), [
            PerturbedParams(
                inner=inner,
                reward_scale=np.asarray(setting["reward_scale"], np.float32),
                noise_scale=np.asarray(setting["noise_scale"], np.float32),
            )
            for inner, setting in zip(params, settings, strict=True)
        ]

    def return_range(self, setting: Setting, gamma: float) -> tuple[float, float]:
        """Return the ends of a categorical support: bounds, a margin and three widths of noise.

        The reward's scale multiplies the bounds and the margin; noise is not scaled.
        """
        returns = self.returns(setting, gamma)
        margin = MARGIN * (returns.high - returns.low)
        scale, noise = setting.get("reward_scale", 1.0), NOISE_WIDTHS * returns.noise_std
        low, high = sorted((scale * (returns.low - margin), scale * (returns.high + margin)))
        return low - noise, high + noise

    def num_inputs(self, setting: Setting, env: Environment) -> int:
        """Return the size of an observation without padding."""
        return math.prod(env.observation.shape) if self.inputs is None else self.inputs(setting)


def reward_once(low: float, high: float, num_steps: int = 1) -> Callable[[Setting, float], Returns]:
    """Bound the return of a reward in [low, high] at the end of `num_steps` noisy steps."""
    return lambda setting, gamma: Returns(low, high, _noise_std(setting, gamma, num_steps))


def reward_each_step(low: float, high: float) -> Callable[[Setting, float], Returns]:
    """Bound the return of a reward in [low, high] at every one of 1,000 steps."""
    return lambda setting, gamma: Returns(
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
