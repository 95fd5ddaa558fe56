"""The residual torso of IMPALA (Espeholt et al. 2018), as Schmidt and Schmied (2021) use it.

Three blocks, each a convolution, a max-pooling that halves the picture and two residual units;
then a rectifier and an adaptive max-pooling to 8 × 8. The paper's pictures of 42 × 42 leave the
blocks as 6 × 6, so that the last pooling enlarges them, to 4,096 features.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from winkel.errors import InputError
from winkel.networks import pooling
from winkel.networks.convolution import Conv, biased
from winkel.types import Image

CHANNELS = (16, 32, 32)
"""Of the blocks, before the multiplier."""
UNITS = 2
"""Residual units of a block."""
SIDE = 8
"""Of the last pooling, and the least that a frame may have."""


class Block(eqx.Module):
    """A convolution, a pooling and two units, each x + conv(relu(conv(relu(x)))).

    Convolutions of the units lie in one array each for weights and biases, in order: optimiser,
    target copies and spectral norms then have few large arrays instead of many small ones, of
    which a GPU would wait for the launch of each. The first bias comes after the pooling, which is
    the same with a quarter of the places.
    """

    conv: Conv
    units: Conv

    @classmethod
    def init(cls, key: PRNGKeyArray, inputs: int, channels: int, slope: float) -> "Block":
        """Fresh weights."""
        key_conv, *key_units = jax.random.split(key, 1 + UNITS)
        keys = jnp.concatenate([jax.random.split(k) for k in key_units])
        units = jax.vmap(lambda k: Conv.init(k, channels, channels, slope))(keys)
        return cls(conv=Conv.init(key_conv, inputs, channels, slope), units=units)

    def __call__(self, x: Float[Array, "B H W I"]) -> Float[Array, "B h w C"]:
        """A batch."""
        x = biased(pooling.halved(self.conv.unbiased(x)), self.conv.bias)
        convs = [self.units.at(number) for number in range(2 * UNITS)]
        for first, second in zip(convs[::2], convs[1::2], strict=True):
            x = x + second(jax.nn.relu(first(jax.nn.relu(x))))
        return x


class Impala(eqx.Module):
    """From stacked frames to features."""

    blocks: tuple[Block, ...]

    @classmethod
    def init(
        cls, key: PRNGKeyArray, observation: Image, multiplier: int, slope: float = 0.0
    ) -> "Impala":
        """Fresh weights for observations of this shape; `slope` is that of `he_uniform`."""
        height, width, *colours = observation.frame
        if min(height, width) < SIDE:
            raise InputError(f"need frames of at least {SIDE} × {SIDE}, got {height} × {width}")
        depths = [observation.stack * (colours[0] if colours else 1)]
        depths += [multiplier * channels for channels in CHANNELS]
        keys = jax.random.split(key, len(CHANNELS))
        ends = zip(keys, depths[:-1], depths[1:], strict=True)
        return cls(blocks=tuple(Block.init(k, low, high, slope) for k, low, high in ends))

    def __call__(
        self, frames: UInt8[Array, "B stack H W *C"], dtype: str = "float32"
    ) -> Float[Array, "B F"]:
        """Features of a batch, computed in a precision and given in float32."""
        x = jnp.moveaxis(frames, 1, -1)
        x = x.reshape(*x.shape[:3], -1).astype(dtype) / 255
        for block in self.blocks:
            x = block(x)
        x = pooling.resized(jax.nn.relu(x), SIDE)
        return x.reshape(len(x), -1).astype(jnp.float32)

    @property
    def residual_weights(self) -> list[Any]:
        """Of the convolutions in the units, [convolutions, C, 3, 3, C] for each block."""
        return [block.units.weight for block in self.blocks]

    def with_residual_weights(self, weights: list[Any]) -> "Impala":
        """The torso with others."""
        return eqx.tree_at(lambda torso: torso.residual_weights, self, weights)


def num_features(multiplier: int) -> int:
    """F, whatever the size of the frames."""
    return SIDE**2 * CHANNELS[-1] * multiplier
