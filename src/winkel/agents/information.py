"""What an action tells and what it may cost: the two sides of information-directed sampling."""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from winkel.agents import base
from winkel.exploration import Scalar

ADDED_VARIANCE = 1e-4
"""ε_1, which the paper adds to the return variances."""
LEAST_NOISE = 0.25
"""Where Nikolov et al. clip ρ²."""
LEAST_GAIN = 1e-5
"""ε_2, which keeps the information gain from 0."""


def noise_epsilon(
    variances: Float[Array, " A"], available: Int[Array, ""] | None = None
) -> Float[Array, " A"]:
    """ρ_ε²: return variances relative to their mean, ε_1 added to both (App. B)."""
    return (variances + ADDED_VARIANCE) / (ADDED_VARIANCE + _average(variances, available))


def noise_clipped(
    variances: Float[Array, " A"], available: Int[Array, ""] | None = None
) -> Float[Array, " A"]:
    """ρ²: return variances relative to their mean, at least 0.25; 1 where no return varies."""
    average = _average(variances, available)
    relative = jnp.where(average > 0, variances / average, 1.0)
    return jnp.maximum(relative, LEAST_NOISE)


def _average(variances: Float[Array, " A"], available: Int[Array, ""] | None) -> Float[Array, ""]:
    """The mean over the actions that there are."""
    if available is None:
        return jnp.mean(variances)
    there = jnp.arange(len(variances)) < available
    return jnp.sum(jnp.where(there, variances, 0.0)) / available


NOISES: Mapping[str, Callable[[Array, Array | None], Array]] = {
    "epsilon": noise_epsilon,
    "clipped": noise_clipped,
}
"""ρ² of every action, from the return variances of all."""


def information_gain(spread: Float[Array, " A"], noise: Float[Array, " A"]) -> Float[Array, " A"]:
    """I = log(1 + σ²/ρ²) + ε_2, from σ and ρ²."""
    return jnp.log1p(spread**2 / noise) + LEAST_GAIN


def regret(
    value: Float[Array, " A"],
    spread: Float[Array, " A"],
    beta: Scalar,
    available: Int[Array, ""] | None = None,
) -> Float[Array, " A"]:
    """Δ̂(a) = max_a' (μ(a') + β σ(a')) − (μ(a) − β σ(a)), the most that an action may cost.

    Never negative; with β = 0 it is 0 for the greedy action, exactly.
    """
    best = jnp.max(base.possible(value + beta * spread, available))
    return best - (value - beta * spread)


def root_ratio(lost: Float[Array, " A"], gain: Float[Array, " A"]) -> Float[Array, " A"]:
    """Δ̂ / I^½, which orders actions as Δ̂² / I does but cannot round a small regret to 0.

    So when β has come to its end at 0, no other action ties with the greedy one.
    """
    return lost / jnp.sqrt(gain)
