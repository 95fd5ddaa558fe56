"""Disagreement as a reward of its own: what the bonus sums up, and in which unit."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

MEMORY = 0.999
"""What is kept of the weight of all earlier batches, so that the last thousand or so count."""


class Moments(NamedTuple):
    """Mean and variance of a stream of numbers that comes in batches.

    The paper normalises by "a running estimate of its marginal standard deviation" (App. B), as
    Burda et al. (2019) do. Disagreement falls by orders of magnitude in a run, so that what is old
    is forgotten. Before there is anything, the deviation is 1.
    """

    weight: Float[Array, ""]
    mean: Float[Array, ""]
    variance: Float[Array, ""]

    @classmethod
    def empty(cls) -> "Moments":
        """Of nothing."""
        return cls(weight=jnp.zeros(()), mean=jnp.zeros(()), variance=jnp.ones(()))

    def with_batch(self, values: Float[Array, " B"]) -> "Moments":
        """Moments of the union of what came before, at `MEMORY` of its weight, and a batch."""
        old, new = MEMORY * self.weight, len(values)
        share = new / (old + new)
        apart = jnp.mean(values) - self.mean
        within = (1.0 - share) * self.variance + share * jnp.var(values)
        return Moments(
            weight=old + new,
            mean=self.mean + share * apart,
            variance=within + share * (1.0 - share) * apart**2,
        )

    @property
    def deviation(self) -> Float[Array, ""]:
        """The standard deviation, never 0."""
        return jnp.sqrt(self.variance) + 1e-8
