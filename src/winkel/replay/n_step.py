"""Returns over several steps."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Outcome(NamedTuple):
    """What k steps come to.

    Attributes:
        reward: Σ_{i<k} γ^i r_i.
        discount: `decay`, or 0 where the last step terminated.
        decay: γ^(k−1). The agent multiplies by γ once more.
        last: k − 1, the offset of the step whose next observation bootstraps.
        boundary: whether the episode ended with that step.
    """

    reward: Float[Array, "*batch"]
    discount: Float[Array, "*batch"]
    decay: Float[Array, "*batch"]
    last: Int[Array, "*batch"]
    boundary: Bool[Array, "*batch"]


def outcome(
    rewards: Float[Array, "*batch n"],
    discounts: Float[Array, "*batch n"],
    boundaries: Bool[Array, "*batch n"],
    gamma: Float[Array, ""] | float,
) -> Outcome:
    """What the first k of n steps come to: n, or as many as there are up to the first boundary.

    The step at the boundary counts, with its reward; what stands behind it is of another episode
    and may be anything. Truncation bootstraps, as its discount is 1.
    """
    offsets = jnp.broadcast_to(jnp.arange(rewards.shape[-1]), rewards.shape)
    counts = jnp.cumsum(boundaries, axis=-1) - boundaries == 0
    last = jnp.sum(counts, axis=-1, dtype=jnp.int32) - 1
    is_last = offsets == last[..., None]
    powers = jnp.power(gamma, offsets.astype(rewards.dtype))
    decay = jnp.sum(jnp.where(is_last, powers, 0.0), axis=-1)
    return Outcome(
        reward=jnp.sum(jnp.where(counts, powers * rewards, 0.0), axis=-1),
        discount=decay * jnp.sum(jnp.where(is_last, discounts, 0.0), axis=-1),
        decay=decay,
        last=last,
        boundary=jnp.any(counts & boundaries, axis=-1),
    )
