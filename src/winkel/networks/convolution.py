"""Convolutions that stay fast where lanes with weights of their own are batched."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, PRNGKeyArray

from winkel.networks.mlp import he_uniform

SIDE = 3
"""Side of all kernels."""


class Conv(eqx.Module):
    """A 3 × 3 convolution that keeps the size of pictures.

    Weights have the layout in which a GPU's convolutions read them and return their gradient, so
    that optimizer and target copies need no transposition.
    """

    weight: Float[Array, "*S O 3 3 I"]
    bias: Float[Array, "*S O"]

    @classmethod
    def init(cls, key: PRNGKeyArray, inputs: int, outputs: int, slope: float = 0.0) -> "Conv":
        """Draw He's uniform weights; the bias is 0."""
        shape = (outputs, SIDE, SIDE, inputs)
        return cls(he_uniform(key, shape, SIDE**2 * inputs, slope), jnp.zeros(outputs))

    def __call__(self, x: Float[Array, "B H W I"]) -> Float[Array, "B H W O"]:
        """Convolve a batch of pictures, in their own precision."""
        return add_bias(self.without_bias(x), self.bias)

    def without_bias(self, x: Float[Array, "B H W I"]) -> Float[Array, "B H W O"]:
        """Convolve a batch of pictures, without adding the bias."""
        return convolve(x, self.weight.astype(x.dtype))


@jax.custom_vjp
def convolve(x: Float[Array, "B H W I"], weight: Float[Array, "O 3 3 I"]) -> Array:
    """Convolve pictures with 3 × 3 weights, with zeros around the picture.

    Under `vmap` over pictures they become one larger batch. Under `vmap` over weights every lane
    is a convolution of its own: JAX would make one grouped convolution of them, which is several
    times slower.
    """
    return _forward(x, weight)


def _plain(x: Array, weight: Array) -> Array:
    return _convolve_as(x, weight, "OHWI")


def _convolve_as(x: Array, weight: Array, layout: str) -> Array:
    """Convolve with weights of this layout: outputs, inputs and the sides of pictures."""
    numbers, padding = ("NHWC", layout, "NHWC"), ((1, 1), (1, 1))
    return jax.lax.conv_general_dilated(x, weight, (1, 1), padding, dimension_numbers=numbers)


def _plain_gradients(x: Array, weight: Array, gradient: Array) -> tuple[Array, Array]:
    """Gradients in pictures and weights, from that in the output, both as plain convolutions.

    On a CPU, XLA's own transposes of a convolution inside a loop are tens of times slower than the
    convolution. For a GPU, XLA recognises the transpose in weights and uses a program made for it.
    """

    def as_plain(x: Array, gradient: Array) -> Array:
        pictures, weights = jnp.transpose(x, (3, 1, 2, 0)), jnp.transpose(gradient, (1, 2, 0, 3))
        made = _convolve_as(pictures, weights, "HWIO")
        return jnp.transpose(made, (3, 1, 2, 0))

    def as_transpose(x: Array, gradient: Array) -> Array:
        (made,) = jax.linear_transpose(lambda w: _plain(x, w), weight)(gradient)
        return made

    in_weight = jax.lax.platform_dependent(x, gradient, cpu=as_plain, default=as_transpose)
    return _convolve_as(gradient, weight[:, ::-1, ::-1], "IHWO"), in_weight


_forward = custom_vmap(_plain)
_gradients = custom_vmap(_plain_gradients)


@_forward.def_vmap
def _forward_batched(size: int, batched: list[bool], x: Array, weight: Array) -> tuple[Array, bool]:
    if batched[1]:
        return _loop(_forward, size, batched, x, weight), True
    merged = _forward(x.reshape(-1, *x.shape[2:]), weight)
    return merged.reshape(*x.shape[:2], *merged.shape[1:]), True


@_gradients.def_vmap
def _gradients_batched(
    size: int, batched: list[bool], *arguments: Array
) -> tuple[tuple[Array, Array], tuple[bool, bool]]:
    if batched[1]:
        return _loop(_gradients, size, batched, *arguments), (True, True)
    axes = [0 if is_batched else None for is_batched in batched]
    return jax.vmap(_plain_gradients, in_axes=axes)(*arguments), (True, True)


def _loop(function: Any, size: int, batched: list[bool], *arguments: Array) -> Any:
    """Apply a function at each index of a first axis, which `batched` arguments have."""
    made = [
        function(*(x[i] if has else x for x, has in zip(arguments, batched, strict=True)))
        for i in range(size)
    ]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *made)


convolve.defvjp(
    lambda x, weight: (_forward(x, weight), (x, weight)),
    lambda kept, gradient: _gradients(*kept, gradient),
)


@jax.custom_vjp
def add_bias(x: Float[Array, "B H W O"], bias: Float[Array, "O"]) -> Float[Array, "B H W O"]:
    """Add a number for each channel.

    The bias's gradient is summed over pictures first, in float32: a sum over all axes at once has
    one column for each of few channels, which leaves most of a GPU idle.
    """
    return x + bias.astype(x.dtype)[None, None, None]


def _bias_backward(_: None, gradient: Array) -> tuple[Array, Array]:
    by_place = jax.lax.optimization_barrier(jnp.sum(gradient, axis=0, dtype=jnp.float32))
    return gradient, jnp.sum(by_place, axis=(0, 1))


add_bias.defvjp(lambda x, bias: (add_bias(x, bias), None), _bias_backward)
