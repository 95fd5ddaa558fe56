"""Max-pooling of pictures, with gradients that need no scatter.

A forward pass keeps the position of each maximum, in a byte. From that, the gradient at each place
is a sum of few numbers, which a GPU computes in one pass; JAX's own gradient would be a sum of
pictures that are nearly everywhere zero. Of equal numbers in a window, one gets the gradient.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8

HERE, BEFORE, AFTER = range(3)
"""Of three neighbours, in the order of preference where they are equal."""


def halve(x: Float[Array, "B H W C"]) -> Float[Array, "B h w C"]:
    """The maximum of every 3 × 3 window around each second place: sides become ⌈n / 2⌉."""
    return _halve(x.shape[1:3], x)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _halve(sides: tuple[int, int], x: Float[Array, "B H W C"]) -> Float[Array, "B h w C"]:
    return _halve_forward(sides, x)[0]


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


_halve.defvjp(_halve_forward, _halve_backward)


def resize(x: Float[Array, "B H W C"], side: int) -> Float[Array, "B side side C"]:
    """Adaptive max-pooling to `side` × `side`.

    Row i is the maximum of the rows from ⌊i H / side⌋ to before ⌈(i + 1) H / side⌉: a picture that
    is smaller than the result is enlarged by repeating rows and their maxima.
    """
    _, height, width, _ = x.shape
    by_row = _pool_rows(_windows(width, side), jnp.swapaxes(x, 1, 2))
    return _pool_rows(_windows(height, side), jnp.swapaxes(by_row, 1, 2))


def _windows(height: int, side: int) -> tuple[tuple[int, int], ...]:
    """First row of each window, and the row after its last."""
    return tuple((i * height // side, -(-(i + 1) * height // side)) for i in range(side))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _pool_rows(
    windows: tuple[tuple[int, int], ...], x: Float[Array, "B H W C"]
) -> Float[Array, "B h W C"]:
    """Maxima of windows of rows."""
    return _pool_rows_forward(windows, x)[0]


def _pool_rows_forward(
    windows: tuple[tuple[int, int], ...], x: Array
) -> tuple[Array, Int8[Array, "B h W C"]]:
    """Maxima, and the row of each in its window."""
    largest, which = [], []
    for low, high in windows:
        value, row = x[:, low], jnp.zeros_like(x[:, low], jnp.int8)
        for number in range(low + 1, high):
            row = jnp.where(value >= x[:, number], row, jnp.int8(number - low))
            value = jnp.where(value >= x[:, number], value, x[:, number])
        largest.append(value)
        which.append(row)
    return jnp.stack(largest, 1), jnp.stack(which, 1)


def _pool_rows_backward(
    windows: tuple[tuple[int, int], ...], which: Array, gradient: Array
) -> tuple[Array]:
    def at(row: int) -> Array:
        parts = [
            jnp.where(which[:, i] == row - low, gradient[:, i], 0)
            for i, (low, high) in enumerate(windows)
            if low <= row < high
        ]
        return sum(parts[1:], parts[0])

    return (jnp.stack([at(row) for row in range(windows[-1][1])], 1),)


_pool_rows.defvjp(_pool_rows_forward, _pool_rows_backward)
