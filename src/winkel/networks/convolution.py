"""Convolutions that stay fast where lanes with weights of their own are batched."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, PRNGKeyArray

SIDE = 3
"""Of all kernels."""


def he_uniform(
    key: PRNGKeyArray, shape: tuple[int, ...], fan_in: int, slope: float = 0.0
) -> Float[Array, "..."]:
    """Weights between ± sqrt(6 / ((1 + a²) fan_in)), for rectifiers of slope a (He et al. 2015).

    Their deviation is sqrt(2 / fan_in) for those that let nothing negative through.
    """
    bound = (6.0 / ((1.0 + slope**2) * fan_in)) ** 0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class Conv(eqx.Module):
    """A 3 × 3 convolution that keeps the size of pictures, the bias starting at 0.

    Weights lie as a GPU's convolutions take them and give their gradient, so that optimiser and
    target copies need not turn them around.
    """

    weight: Float[Array, "*S O 3 3 I"]
    bias: Float[Array, "*S O"]

    @classmethod
    def init(cls, key: PRNGKeyArray, inputs: int, outputs: int, slope: float = 0.0) -> "Conv":
        """He's uniform weights."""
        shape = (outputs, SIDE, SIDE, inputs)
        return cls(he_uniform(key, shape, SIDE**2 * inputs, slope), jnp.zeros(outputs))

    def __call__(self, x: Float[Array, "B H W I"]) -> Float[Array, "B H W O"]:
        """A batch of pictures, in their own precision."""
        return biased(self.unbiased(x), self.bias)

    def unbiased(self, x: Float[Array, "B H W I"]) -> Float[Array, "B H W O"]:
        """A batch of pictures, without the bias."""
        return convolve(x, self.weight.astype(x.dtype))

    def at(self, number: int) -> "Conv":
        """One of several that are stacked along a first axis."""
        return Conv(weight=self.weight[number], bias=self.bias[number])


@jax.custom_vjp
def convolve(x: Float[Array, "B H W I"], weight: Float[Array, "O 3 3 I"]) -> Array:
    """Every place's 3 × 3 neighbourhood times the weights, with zeros around the picture.

    Under `vmap` over pictures they become one larger batch. Under `vmap` over weights every lane
    is a convolution of its own: as the groups of a single one, which is what JAX makes of them,
    they are several times slower.
    """
    return _forward(x, weight)


def _plain(x: Array, weight: Array) -> Array:
    return _formed(x, weight, "OHWI")


def _formed(x: Array, weight: Array, form: str) -> Array:
    """With weights whose axes are in this order: outputs, inputs and the sides of pictures."""
    numbers, padding = ("NHWC", form, "NHWC"), ((1, 1), (1, 1))
    return jax.lax.conv_general_dilated(x, weight, (1, 1), padding, dimension_numbers=numbers)


def _plain_gradients(x: Array, weight: Array, slopes: Array) -> tuple[Array, Array]:
    """In pictures and weights, both as plain convolutions.

    XLA's own transposes of a convolution are tens of times slower than it inside of a loop on a
    CPU. A GPU has a program of its own for gradients in weights, which it knows by its form.
    """

    def as_plain(x: Array, slopes: Array) -> Array:
        pictures, weights = jnp.transpose(x, (3, 1, 2, 0)), jnp.transpose(slopes, (1, 2, 0, 3))
        made = _formed(pictures, weights, "HWIO")
        return jnp.transpose(made, (3, 1, 2, 0))

    def as_transpose(x: Array, slopes: Array) -> Array:
        (made,) = jax.linear_transpose(lambda w: _plain(x, w), weight)(slopes)
        return made

    in_weight = jax.lax.platform_dependent(x, slopes, cpu=as_plain, default=as_transpose)
    return _formed(slopes, weight[:, ::-1, ::-1], "IHWO"), in_weight


_forward = custom_vmap(_plain)
_gradients = custom_vmap(_plain_gradients)


@_forward.def_vmap
def _forward_batched(size: int, batched: list[bool], x: Array, weight: Array) -> tuple[Array, bool]:
    if batched[1]:
        return _one_by_one(_forward, size, batched, x, weight), True
    merged = _forward(x.reshape(-1, *x.shape[2:]), weight)
    return merged.reshape(*x.shape[:2], *merged.shape[1:]), True


@_gradients.def_vmap
def _gradients_batched(
    size: int, batched: list[bool], *arguments: Array
) -> tuple[tuple[Array, Array], tuple[bool, bool]]:
    if batched[1]:
        return _one_by_one(_gradients, size, batched, *arguments), (True, True)
    axes = [0 if is_batched else None for is_batched in batched]
    return jax.vmap(_plain_gradients, in_axes=axes)(*arguments), (True, True)


def _one_by_one(function: Any, size: int, batched: list[bool], *arguments: Array) -> Any:
    """A function at each index of a first axis that some arguments have."""
    made = [
        function(*(x[i] if has else x for x, has in zip(arguments, batched, strict=True)))
        for i in range(size)
    ]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *made)


def _kept(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return _forward(x, weight), (x, weight)


def _pulled(kept: tuple[Array, Array], slopes: Array) -> tuple[Array, Array]:
    return _gradients(*kept, slopes)


convolve.defvjp(_kept, _pulled)


@jax.custom_vjp
def biased(x: Float[Array, "B H W O"], bias: Float[Array, "O"]) -> Float[Array, "B H W O"]:
    """Pictures plus a number for each channel.

    The bias's gradient is summed over pictures first, in float32: over all at once a GPU would have
    one column for each of few channels, and most of it nothing to do.
    """
    return x + bias.astype(x.dtype)[None, None, None]


def _biased_kept(x: Array, bias: Array) -> tuple[Array, None]:
    return biased(x, bias), None


def _biased_pulled(_: None, slopes: Array) -> tuple[Array, Array]:
    by_place = jax.lax.optimization_barrier(jnp.sum(slopes, axis=0, dtype=jnp.float32))
    return slopes, jnp.sum(by_place, axis=(0, 1))


biased.defvjp(_biased_kept, _biased_pulled)
