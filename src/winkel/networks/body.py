"""A body that many heads share: features of images."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from winkel.networks import spectral
from winkel.networks.convolution import he_uniform
from winkel.networks.impala import Impala
from winkel.networks.spectral import Spectrum
from winkel.networks.torso import MLP, Linear
from winkel.types import Image


class Body(eqx.Module):
    """A torso, and what its spectral normalisation remembers.

    The torso is learned. The spectra are state: `sharpened` is for once in an update, everything
    else takes them as they are.
    """

    torso: Impala
    spectra: tuple[Spectrum, ...]
    """Of each block's convolutions in residual units, along a first axis; empty for a body that is
    not normalised."""
    dtype: str = eqx.field(static=True)
    """In which convolutions are computed; weights and features are float32 whatever it is."""

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        observation: Image,
        *,
        multiplier: int,
        normalise: bool,
        dtype: str,
        slope: float = 0.0,
    ) -> "Body":
        """Fresh weights; `slope` is that of `he_uniform`."""
        key_torso, key_spectra = (jax.random.fold_in(key, use) for use in range(2))
        torso = Impala.init(key_torso, observation, multiplier, slope)
        weights = torso.residual_weights if normalise else []
        keys = [
            jax.random.split(jax.random.fold_in(key_spectra, number), len(weight))
            for number, weight in enumerate(weights)
        ]
        spectra = tuple(map(jax.vmap(spectral.fresh), keys, weights))
        return cls(torso=torso, spectra=spectra, dtype=dtype)

    def sharpened(self) -> "Body":
        """The body with spectra after a step of power iteration."""
        if not self.spectra:
            return self
        spectra = tuple(
            map(jax.vmap(spectral.sharpened), self.torso.residual_weights, self.spectra)
        )
        return Body(torso=self.torso, spectra=spectra, dtype=self.dtype)

    def __call__(self, frames: UInt8[Array, "B stack H W *C"]) -> Float[Array, "B F"]:
        """Features of a batch."""
        torso = self.torso
        if self.spectra:
            weights = map(jax.vmap(spectral.normalised), torso.residual_weights, self.spectra)
            torso = torso.with_residual_weights(list(weights))
        return torso(frames, self.dtype)


def head(
    key: PRNGKeyArray,
    inputs: int,
    hidden: tuple[int, ...],
    outputs: tuple[int, int],
    slope: float = 0.0,
) -> MLP:
    """A network on features, He's uniform as the body is; `outputs` is (rows, columns)."""
    sizes = (inputs, *hidden, outputs[0] * outputs[1])
    keys = jax.random.split(key, len(sizes) - 1)
    layers = [
        Linear(weight=he_uniform(k, (before, after), before, slope), bias=jnp.zeros(after))
        for k, before, after in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]
    return MLP(layers=tuple(layers), rows=outputs[0], columns=outputs[1])
