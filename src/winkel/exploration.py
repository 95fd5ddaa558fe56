"""How actions are chosen, and how exploration fades. Functions of one state."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

Scalar = Float[Array, ""] | Int[Array, ""] | float


def optimistic(
    value: Float[Array, " A"], bonus: Float[Array, " A"], beta: Scalar
) -> Int[Array, ""]:
    """argmax_a Q(s, a) + β b(s, a), eq. 13."""
    return jnp.argmax(value + beta * bonus)


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


def linear_decay(start: Scalar, end: Scalar, duration: Scalar, at: Scalar) -> Float[Array, ""]:
    """From `start` at 0 to `end` at `duration` and after it, in any unit of time.

    A share of the horizon, episodes or frames: whatever `at`, a field of the clock, counts.
    """
    done = jnp.clip(jnp.asarray(at, float) / duration, 0.0, 1.0)
    return start + (end - start) * done


def falling(
    start: Scalar, end: Scalar, steps: Scalar, at: Scalar, otherwise: Scalar
) -> Float[Array, ""]:
    """From `start` at 0 to `end` at so many steps and after; `otherwise` where there are none."""
    steps = jnp.asarray(steps, float)
    return jnp.where(steps > 0, linear_decay(start, end, jnp.maximum(steps, 1.0), at), otherwise)


def dltv_decay(start: Scalar, scaled_time: Scalar) -> Float[Array, ""]:
    """β₀ sqrt(log(αt) / αt), the schedule of DLTV (Mavrin et al. 2019).

    The logarithm is negative before αt = 1 and the whole increases up to αt = e; earlier times
    count as e, so that β starts at β₀ e^(−1/2) and never increases.
    """
    t = jnp.maximum(jnp.asarray(scaled_time, float), jnp.e)
    return start * jnp.sqrt(jnp.log(t) / t)
