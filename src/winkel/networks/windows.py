"""The torso of MinAtar (Young and Tian 2019) for small pictures: 16 filters of 3 × 3, a rectifier.

The windows of a picture are laid side by side, so that the convolution is one matrix product: lanes
with filters of their own are then a batched product, which is fast on every platform.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from winkel.networks.mlp import Linear, he_uniform
from winkel.types import Planes

FILTERS = 16
SIDE = 3
"""Side of a window; a step leads from each to the next."""


class Windows(eqx.Module):
    """From planes to features."""

    filters: Linear
    values: tuple[int, ...] | None = eqx.field(static=True)
    """Symbols of each channel, as in `Planes`."""

    @classmethod
    def init(cls, key: PRNGKeyArray, observation: Planes, slope: float = 0.0) -> "Windows":
        """Draw weights for observations of this form; `slope` is that of `he_uniform`."""
        inputs = SIDE**2 * observation.channels
        weight = he_uniform(key, (inputs, FILTERS), inputs, slope)
        return cls(Linear(weight, jnp.zeros(FILTERS)), observation.values)

    def __call__(
        self, planes: Shaped[Array, "B H W C"], dtype: str = "float32"
    ) -> Float[Array, "B F"]:
        """Features of a batch, computed in the given precision, returned in float32."""
        x = one_hot_planes(planes, self.values).astype(dtype)
        height, width = x.shape[1] - SIDE + 1, x.shape[2] - SIDE + 1
        shifted = [
            x[:, down : down + height, right : right + width]
            for down in range(SIDE)
            for right in range(SIDE)
        ]
        weight, bias = self.filters.weight.astype(dtype), self.filters.bias.astype(dtype)
        x = jnp.concatenate(shifted, axis=-1).reshape(-1, len(weight)) @ weight + bias[None]
        return jax.nn.relu(x).reshape(len(planes), -1).astype(jnp.float32)


def one_hot_planes(
    planes: Shaped[Array, "B H W C"], values: tuple[int, ...] | None
) -> Shaped[Array, "B H W D"]:
    """Replace each channel of symbols by one channel for each symbol; numbers stay as they are."""
    if values is None:
        return planes
    channels = [jax.nn.one_hot(planes[..., i], count) for i, count in enumerate(values)]
    return jnp.concatenate(channels, axis=-1)


def num_window_features(observation: Planes) -> int:
    """F, for observations of this form."""
    height, width, _ = observation.shape
    return FILTERS * (height - SIDE + 1) * (width - SIDE + 1)
