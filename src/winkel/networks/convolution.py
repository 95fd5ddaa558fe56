"""Convolutions that stay fast where lanes with weights of their own are batched, and max-pooling.

Gradients of the pooling need no scatter: a forward pass keeps the position of each maximum, in a
byte. From that, the gradient at each place is a sum of few numbers, which a GPU computes in one
pass; JAX's own gradient would be a sum of pictures that are nearly everywhere zero. Of equal
numbers in a window, one gets the gradient.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int8, PRNGKeyArray

from winkel.networks.mlp import he_uniform

SIDE = 3
"""Side of all kernels."""
HERE, BEFORE, AFTER = range(3)
"""Numbers of three neighbours, in the order of preference where they are equal."""


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
        return add_bias(convolve(x, self.weight.astype(x.dtype)), self.bias)


@jax.custom_vjp
def convolve(x: Float[Array, "B H W I"], weight: Float[Array, "O 3 3 I"]) -> Array:
    """Convolve pictures with 3 × 3 weights, with zeros around the picture.

    Under `vmap` over pictures they become one larger batch. Under `vmap` over weights every lane
    is a convolution of its own: JAX would make one grouped convolution of them, which is several
    times slower.
    """
    return _forward(x, weight)


def _plain(x: Array, weight: Array, layout: str = "OHWI") -> Array:
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
        return jnp.transpose(_plain(pictures, weights, "HWIO"), (3, 1, 2, 0))

    def as_transpose(x: Array, gradient: Array) -> Array:
        (made,) = jax.linear_transpose(lambda w: _plain(x, w), weight)(gradient)
        return made

    in_weight = jax.lax.platform_dependent(x, gradient, cpu=as_plain, default=as_transpose)
    return _plain(gradient, weight[:, ::-1, ::-1], "IHWO"), in_weight


_forward = custom_vmap(lambda x, weight: _plain(x, weight))  # a layout is no array
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
    """Apply a function at each index of the first axis of `batched` arguments."""
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


def halve(x: Float[Array, "B H W C"]) -> Float[Array, "B h w C"]:
    """The maximum of every 3 × 3 window around each second place: sides become ⌈n / 2⌉."""
    return _halve(x.shape[1:3], x)


def _halve_forward(
    _: tuple[int, int], x: Float[Array, "B H W C"]
) -> tuple[Float[Array, "B h w C"], Int8[Array, "B h w C"]]:
    """Maxima, and the place of each in its window, 3 · row + column."""
    by_row, column = _largest(*_neighbours(x, 2, -jnp.inf))
    largest, row = _largest(*_neighbours(by_row, 1, -jnp.inf))
    here, before, after = _neighbours(column, 1, 0)
    column = jnp.where(row == HERE, here, jnp.where(row == BEFORE, before, after))
    return largest, 3 * row + column


def _neighbours(x: Array, axis: int, filler: float | int) -> tuple[Array, Array, Array]:
    """Along an axis, each second entry, and those before and after it."""
    x = jnp.moveaxis(x, axis, 0)
    here, after = x[::2], x[1::2]
    if len(after) < len(here):
        after = jnp.concatenate([after, jnp.full_like(here[:1], filler)])
    before = jnp.concatenate([jnp.full_like(here[:1], filler), after[:-1]])
    here, before, after = (jnp.moveaxis(part, 0, axis) for part in (here, before, after))
    return here, before, after


def _largest(here: Array, before: Array, after: Array) -> tuple[Array, Int8[Array, "..."]]:
    """The maximum of three, and which of them it is."""
    beside = jnp.where(before >= after, before, after)
    which = jnp.where(before >= after, jnp.int8(BEFORE), jnp.int8(AFTER))
    central = here >= beside
    return jnp.where(central, here, beside), jnp.where(central, jnp.int8(HERE), which)


def _halve_backward(sides: tuple[int, int], place: Array, gradient: Array) -> tuple[Array]:
    def of(row: int, column: int) -> Array:
        return jnp.where(place == 3 * row + column, gradient, 0)

    here, before, after = (
        _interleave(of(row, HERE), of(row, BEFORE), of(row, AFTER), axis=2) for row in range(3)
    )
    return (_interleave(here, before, after, axis=1)[:, : sides[0], : sides[1]],)


def _interleave(here: Array, before: Array, after: Array, axis: int) -> Array:
    """The inverse of `_neighbours`: add what belongs to each place along an axis."""
    end = jnp.zeros_like(jax.lax.slice_in_dim(before, 0, 1, axis=axis))
    of_next = jnp.concatenate([jax.lax.slice_in_dim(before, 1, None, axis=axis), end], axis)
    both = jnp.stack([here, after + of_next], axis + 1)
    return both.reshape(*here.shape[:axis], -1, *here.shape[axis + 1 :])


_halve = jax.custom_vjp(lambda sides, x: _halve_forward(sides, x)[0], (0,))
_halve.defvjp(_halve_forward, _halve_backward)


Windows = tuple[tuple[int, int], ...]
"""First row of each window, and the row after its last."""


def resize(x: Float[Array, "B H W C"], side: int) -> Float[Array, "B side side C"]:
    """Adaptive max-pooling to `side` × `side`.

    Row i is the maximum of the rows from ⌊i H / side⌋ to before ⌈(i + 1) H / side⌉: a picture that
    is smaller than the result is enlarged by repeating rows and their maxima.
    """
    _, height, width, _ = x.shape
    by_row = _pool_rows(_windows(width, side), jnp.swapaxes(x, 1, 2))
    return _pool_rows(_windows(height, side), jnp.swapaxes(by_row, 1, 2))


def _windows(height: int, side: int) -> Windows:
    return tuple((i * height // side, -(-(i + 1) * height // side)) for i in range(side))


def _pool_rows_forward(
    windows: Windows, x: Float[Array, "B H W C"]
) -> tuple[Float[Array, "B h W C"], Int8[Array, "B h W C"]]:
    """Maxima of windows of rows, and the row of each in its window."""
    largest, which = [], []
    for low, high in windows:
        value, row = x[:, low], jnp.zeros_like(x[:, low], jnp.int8)
        for number in range(low + 1, high):
            row = jnp.where(value >= x[:, number], row, jnp.int8(number - low))
            value = jnp.where(value >= x[:, number], value, x[:, number])
        largest.append(value)
        which.append(row)
    return jnp.stack(largest, 1), jnp.stack(which, 1)


def _pool_rows_backward(windows: Windows, which: Array, gradient: Array) -> tuple[Array]:
    def at(row: int) -> Array:
        parts = [
            jnp.where(which[:, i] == row - low, gradient[:, i], 0)
            for i, (low, high) in enumerate(windows)
            if low <= row < high
        ]
        return sum(parts[1:], parts[0])

    return (jnp.stack([at(row) for row in range(windows[-1][1])], 1),)


_pool_rows = jax.custom_vjp(lambda windows, x: _pool_rows_forward(windows, x)[0], (0,))
_pool_rows.defvjp(_pool_rows_forward, _pool_rows_backward)
