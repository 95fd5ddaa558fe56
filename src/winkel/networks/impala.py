"""The residual torso of IMPALA (Espeholt et al. 2018), as Schmidt and Schmied (2021) use it.

Three blocks, each a convolution, a max-pooling that halves the picture and two residual units;
then a rectifier and an adaptive max-pooling to 8 × 8. The paper's pictures of 42 × 42 leave the
blocks as 6 × 6, so that the last pooling enlarges them, to 4,096 features.

A `Body` divides the weights of the residual units by an estimate of their largest singular value
(spectral normalisation, Miyato et al. 2018). The estimate is σ = uᵀ W v, of weights as a matrix
[outputs, inputs · 9], with vectors u and v that one step of power iteration at each update keeps
near the leading ones. Gradients flow through W, also where it is in σ, never through u and v.

`Windows` is the torso of MinAtar (Young and Tian 2019) for small pictures: 16 filters of 3 × 3 and
a rectifier. The windows of a picture are laid side by side, so that the convolution is one matrix
product: lanes with filters of their own are then a batched product, fast on every platform.
"""

from dataclasses import replace
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped, UInt8

from winkel.errors import InputError
from winkel.networks.convolution import Conv, add_bias, convolve, halve, resize
from winkel.networks.mlp import Linear, he_uniform
from winkel.types import Image, Observation, Planes

CHANNELS = (16, 32, 32)
"""Channels of the blocks, before the multiplier."""
UNITS = 2
"""Residual units of a block."""
SIDE = 8
"""Side of the last pooling, and the least side of a frame."""
FIRST_STEPS = 15
"""Steps of power iteration before a weight is first used."""
LEAST_NORM = 1e-12
"""Vectors shorter than this are not scaled to length one."""
FILTERS, WINDOW = 16, 3
"""Filters of `Windows`, and their side."""


class Block(eqx.Module):
    """A convolution, a pooling and two units, each x + conv(relu(conv(relu(x)))).

    The convolutions of the units are stacked in one array each for weights and biases: optimizer,
    target copies and spectral norms then have few large arrays instead of many small ones, each of
    which would be a kernel launch on a GPU. The first bias is added after the pooling, which gives
    the same result with a quarter of the additions.
    """

    conv: Conv
    units: Conv

    @classmethod
    def init(cls, key: PRNGKeyArray, inputs: int, channels: int, slope: float) -> "Block":
        """Draw weights."""
        key_conv, *key_units = jax.random.split(key, 1 + UNITS)
        keys = jnp.concatenate([jax.random.split(k) for k in key_units])
        units = jax.vmap(lambda k: Conv.init(k, channels, channels, slope))(keys)
        return cls(conv=Conv.init(key_conv, inputs, channels, slope), units=units)

    def __call__(self, x: Float[Array, "B H W I"]) -> Float[Array, "B h w C"]:
        """A batch."""
        x = halve(convolve(x, self.conv.weight.astype(x.dtype)))
        x = add_bias(x, self.conv.bias)
        units = self.units
        convs = [Conv(units.weight[i], units.bias[i]) for i in range(2 * UNITS)]
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
        """Draw weights for observations of this shape; `slope` is that of `he_uniform`."""
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
        """Features of a batch, computed in the given precision, returned in float32."""
        x = jnp.moveaxis(frames, 1, -1)
        x = x.reshape(*x.shape[:3], -1).astype(dtype) / 255
        for block in self.blocks:
            x = block(x)
        x = resize(jax.nn.relu(x), SIDE)
        return x.reshape(len(x), -1).astype(jnp.float32)

    @property
    def residual_weights(self) -> list[Any]:
        """Weights of the convolutions in the units, [convolutions, C, 3, 3, C] for each block."""
        return [block.units.weight for block in self.blocks]


def num_features(observation: Observation, multiplier: int) -> int | None:
    """F, the same for every size of frames; None for observations without a body."""
    if isinstance(observation, Image):
        return SIDE**2 * CHANNELS[-1] * multiplier
    if not isinstance(observation, Planes):
        return None
    height, width, _ = observation.shape
    return FILTERS * (height - WINDOW + 1) * (width - WINDOW + 1)


class Windows(eqx.Module):
    """From planes to features."""

    filters: Linear
    values: tuple[int, ...] | None = eqx.field(static=True)
    """Symbols of each channel, as in `Planes`."""

    @classmethod
    def init(cls, key: PRNGKeyArray, observation: Planes, slope: float = 0.0) -> "Windows":
        """Draw weights for observations of this form; `slope` is that of `he_uniform`."""
        inputs = WINDOW**2 * observation.channels
        weight = he_uniform(key, (inputs, FILTERS), inputs, slope)
        return cls(Linear(weight, jnp.zeros(FILTERS)), observation.values)

    def __call__(
        self, planes: Shaped[Array, "B H W C"], dtype: str = "float32"
    ) -> Float[Array, "B F"]:
        """Features of a batch, computed in the given precision, returned in float32."""
        x = planes
        if self.values is not None:  # one channel for each symbol
            symbols = [jax.nn.one_hot(x[..., i], count) for i, count in enumerate(self.values)]
            x = jnp.concatenate(symbols, axis=-1)
        x = x.astype(dtype)
        height, width = x.shape[1] - WINDOW + 1, x.shape[2] - WINDOW + 1
        shifted = [
            x[:, down : down + height, right : right + width]
            for down in range(WINDOW)
            for right in range(WINDOW)
        ]
        weight, bias = self.filters.weight.astype(dtype), self.filters.bias.astype(dtype)
        x = jnp.concatenate(shifted, axis=-1).reshape(-1, len(weight)) @ weight + bias[None]
        return jax.nn.relu(x).reshape(len(planes), -1).astype(jnp.float32)


class Spectrum(NamedTuple):
    """Estimates of a weight's leading singular vectors, u and v."""

    left: Float[Array, "*S O"]
    right: Float[Array, "*S I"]

    @classmethod
    def init(cls, key: PRNGKeyArray, weight: Float[Array, "O ..."]) -> "Spectrum":
        """Start from random vectors, with `FIRST_STEPS` steps."""
        drawn = [
            jax.random.normal(jax.random.fold_in(key, use), (length,))
            for use, length in enumerate(_matrix(weight).shape)
        ]
        first = cls(*map(_unit, drawn))
        return jax.lax.fori_loop(0, FIRST_STEPS, lambda _, u_v: u_v.power_iteration(weight), first)

    def power_iteration(self, weight: Float[Array, "O ..."]) -> "Spectrum":
        """One step: v ← Wᵀu, u ← Wv, both of length one."""
        matrix = jax.lax.stop_gradient(_matrix(weight))
        right = _unit(self.left @ matrix)
        return Spectrum(left=_unit(matrix @ right), right=right)

    def norm(self, weight: Float[Array, "O ..."]) -> Float[Array, ""]:
        """σ = uᵀ W v."""
        left, right = jax.lax.stop_gradient(self)
        return left @ (_matrix(weight) @ right)

    def normalise(self, weight: Float[Array, "O ..."]) -> Float[Array, "O ..."]:
        """W / σ."""
        return weight / self.norm(weight)


def _matrix(weight: Float[Array, "O ..."]) -> Float[Array, "O I"]:
    return weight.reshape(len(weight), -1)


def _unit(vector: Float[Array, " N"]) -> Float[Array, " N"]:
    return vector / jnp.maximum(jnp.linalg.norm(vector), LEAST_NORM)


class Body(eqx.Module):
    """A torso whose features many heads share, with the state of its spectral normalisation."""

    torso: Impala | Windows
    spectra: tuple[Spectrum, ...] | None
    """For each block, of the stacked convolutions in its units; () without normalisation."""
    dtype: str = eqx.field(static=True)
    """Precision of the convolutions; weights and features are float32 in any case."""

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        observation: Image | Planes,
        *,
        multiplier: int,
        normalise: bool,
        dtype: str,
        slope: float = 0.0,
    ) -> "Body":
        """Draw weights; `slope` is that of `he_uniform`.

        `multiplier` and `normalise` are for images alone.
        """
        if isinstance(observation, Planes):
            return cls(Windows.init(key, observation, slope), spectra=(), dtype=dtype)
        key_torso, key_spectra = (jax.random.fold_in(key, use) for use in range(2))
        torso = Impala.init(key_torso, observation, multiplier, slope)
        weights = torso.residual_weights if normalise else []
        keys = [
            jax.random.split(jax.random.fold_in(key_spectra, number), len(weight))
            for number, weight in enumerate(weights)
        ]
        spectra = tuple(map(jax.vmap(Spectrum.init), keys, weights))
        return cls(torso=torso, spectra=spectra, dtype=dtype)

    def __call__(self, observations: Shaped[Array, "B *S"]) -> Float[Array, "B F"]:
        """Features of a batch."""
        torso: Any = self.torso
        if self.spectra:
            normalise = jax.vmap(Spectrum.normalise)
            weights = list(map(normalise, self.spectra, torso.residual_weights))
            torso = eqx.tree_at(lambda torso: torso.residual_weights, torso, weights)
        return torso(observations, self.dtype)

    @property
    def learned(self) -> "Body":
        """The part that has gradients, without the spectra."""
        return replace(self, spectra=None)

    def power_iteration(self) -> "Body":
        """One step for each spectrum, to be made once in an update."""
        if not self.spectra:
            return self
        step, torso = jax.vmap(Spectrum.power_iteration), cast(Impala, self.torso)
        spectra = tuple(map(step, self.spectra, torso.residual_weights))
        return replace(self, spectra=spectra)
