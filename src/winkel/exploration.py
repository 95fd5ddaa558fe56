"""How actions are chosen, and how exploration decays. Functions of one state."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.types import Clock

Scalar = Float[Array, ""] | Int[Array, ""] | float


def mask_unavailable(
    scores: Float[Array, "*M A"], available: Int[Array, ""] | None
) -> Float[Array, "*M A"]:
    """Scores with −∞ for all but the first `available` actions; None if all are available."""
    if available is None:
        return scores
    return jnp.where(jnp.arange(scores.shape[-1]) < available, scores, -jnp.inf)


def epsilon_greedy(
    key: PRNGKeyArray,
    value: Float[Array, " A"],
    epsilon: Scalar,
    available: Int[Array, ""] | None = None,
) -> Int[Array, ""]:
    """The greedy action, or with probability ε any of the first `available`, by default of all.

    The values of actions that are not available must be −∞.
    """
    key_explore, key_action = (jax.random.fold_in(key, use) for use in range(2))
    count = len(value) if available is None else available
    anything = jax.random.randint(key_action, (), 0, count)
    return jnp.where(jax.random.uniform(key_explore) < epsilon, anything, jnp.argmax(value))


def linear_schedule(start: Scalar, end: Scalar, duration: Scalar, at: Scalar) -> Float[Array, ""]:
    """Linear from `start` at 0 to `end` at `duration`, constant afterwards.

    `at` and `duration` have the same unit: shares of the horizon, episodes or steps.
    """
    done = jnp.clip(jnp.asarray(at, float) / duration, 0.0, 1.0)
    return start + (end - start) * done


def epsilon_schedule(clock: Clock, hyper: Any) -> Float[Array, ""]:
    """ε now: linear from `epsilon` to `epsilon_final` over `epsilon_steps` environment steps.

    With `epsilon_steps` 0, linear over the share `epsilon_decay` of the horizon, or constant for
    an agent without that field.
    """
    start, end = hyper.epsilon, hyper.epsilon_final
    steps = jnp.asarray(hyper.epsilon_steps, float)
    otherwise = start
    if hasattr(hyper, "epsilon_decay"):
        otherwise = linear_schedule(start, end, hyper.epsilon_decay, clock.progress)
    by_steps = linear_schedule(start, end, jnp.maximum(steps, 1.0), clock.env_steps)
    return jnp.where(steps > 0, by_steps, otherwise)


def dltv_schedule(start: Scalar, scaled_time: Scalar) -> Float[Array, ""]:
    """β₀ sqrt(log(αt) / αt), the schedule of DLTV (Mavrin et al. 2019).

    The logarithm is negative before αt = 1 and the whole increases up to αt = e; earlier times
    count as e, so that β starts at β₀ e^(−1/2) and never increases.
    """
    t = jnp.maximum(jnp.asarray(scaled_time, float), jnp.e)
    return start * jnp.sqrt(jnp.log(t) / t)
