"""The range of discounted returns of every family: what a categorical support must hold.

One readable place. `low` and `high` bound the discounted return without noise under any policy,
`noise_std` is the standard deviation of what the environment's own noise adds to it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

MARGIN = 0.5
"""Share of the width that is added at either end: [−0.5, 1.5] for deep sea."""
NOISE_WIDTHS = 3.0
"""Standard deviations of discounted noise that are added at either end."""


class Returns(NamedTuple):
    """Bounds of the noiseless discounted return, and the noise on top of it."""

    low: float
    high: float
    noise_std: float = 0.0


def _once(low: float, high: float) -> Callable[[Mapping[str, Any], float], Returns]:
    """Paid once in an episode."""
    return lambda setting, gamma: Returns(low, high)


def _each_step(low: float, high: float) -> Callable[[Mapping[str, Any], float], Returns]:
    """Paid at every step, for up to 1,000 steps."""
    return lambda setting, gamma: Returns(
        low * _total(gamma, 1_000), high * _total(gamma, 1_000), _noise(setting, gamma, 1_000)
    )


def _total(gamma: float, steps: int) -> float:
    return float(steps) if gamma == 1.0 else (1.0 - gamma**steps) / (1.0 - gamma)


def _noise(setting: Mapping[str, Any], gamma: float, steps: int) -> float:
    return setting.get("noise_scale", 0.0) * math.sqrt(_total(gamma**2, steps))


def _deep_sea(setting: Mapping[str, Any], gamma: float) -> Returns:
    """The treasure; what all moves cost is within the margin, unless the user makes it more."""
    return Returns(min(0.0, MARGIN - setting.get("move_cost", 0.0)), 1.0)


def _umbrella(setting: Mapping[str, Any], gamma: float) -> Returns:
    """±1 at the end, and a fair coin's ±1 at every step before it."""
    return Returns(-1.0, 1.0, math.sqrt(_total(gamma**2, setting["chain_length"] - 1)))


def _noisy_once(
    low: float, high: float, steps: int
) -> Callable[[Mapping[str, Any], float], Returns]:
    return lambda setting, gamma: Returns(low, high, _noise(setting, gamma, steps))


RETURNS: Mapping[str, Callable[[Mapping[str, Any], float], Returns]] = {
    "bandit": _noisy_once(0.0, 1.0, 1),
    "cartpole": _each_step(0.0, 1.0),
    "cartpole_swingup": _each_step(-0.1, 1.0),
    "catch": _noisy_once(-1.0, 1.0, 9),
    "deep_sea": _deep_sea,
    "deep_sea_stochastic": lambda setting, gamma: _deep_sea(setting, gamma)._replace(noise_std=1.0),
    "discounting_chain": _once(0.0, 1.1),
    "memory_len": _once(-1.0, 1.0),
    "memory_size": _once(-1.0, 1.0),
    "mnist": _noisy_once(-1.0, 1.0, 1),
    "mountain_car": _each_step(-1.0, 0.0),
    "umbrella_distract": _umbrella,
    "umbrella_length": _umbrella,
}


def support(family: str, setting: Mapping[str, Any], gamma: float) -> tuple[float, float]:
    """Ends of a support for the returns: a margin, three widths of the noise, the reward's scale.

    `*_scale` multiplies the range, `*_noise` widens it.
    """
    returns = RETURNS[family](setting, gamma)
    margin = MARGIN * (returns.high - returns.low)
    scale, noise = setting.get("reward_scale", 1.0), NOISE_WIDTHS * returns.noise_std
    low, high = sorted((scale * (returns.low - margin), scale * (returns.high + margin)))
    return low - noise, high + noise
