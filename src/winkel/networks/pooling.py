"""Maxima over windows of pictures, with gradients that need no scatter.

A forward pass keeps where each maximum was, in a byte. From that, a gradient at each place is a sum
of few numbers, which a GPU writes in one pass: derived from slices, it would be a sum of pictures
that are nearly everywhere zero. Of equal numbers in a window, the gradient goes to one.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8

HERE, BEFORE, AFTER = range(3)
"""Of three neighbours, in the order of preference where they are equal."""


def halved(x: Float[Array, "B H W C"]) -> Float[Array, "B h w C"]:
    """The maximum of every 3 × 3 window around each second place: sides become ⌈n / 2⌉."""
    return _halved_from(x.shape[1:3], x)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _halved_from(sides: tuple[int, int], x: Float[Array, "B H W C"]) -> Float[Array, "B h w C"]:
    return _halved(x)[0]


def _halved(x: Float[Array, "B H W C"]) -> tuple[Float[Array, "B h w C"], Int8[Array, "B h w C"]]:
    """With the place of each maximum in its window, 3 · row + column."""
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


def _halved_kept(sides: tuple[int, int], x: Array) -> tuple[Array, Array]:
    return _halved(x)


def _halved_pulled(sides: tuple[int, int], place: Array, slopes: Array) -> tuple[Array]:
    def of(row: int, column: int) -> Array:
        return jnp.where(place == 3 * row + column, slopes, 0)

    here, before, after = (
        _interleaved(of(row, HERE), of(row, BEFORE), of(row, AFTER), axis=2) for row in range(3)
    )
    return (_interleaved(here, before, after, axis=1)[:, : sides[0], : sides[1]],)


def _interleaved(here: Array, before: Array, after: Array, axis: int) -> Array:
    """What went to neighbours along an axis, each at its own place: the way back."""
    of_next = jnp.concatenate(
        [jax.lax.slice_in_dim(before, 1, None, axis=axis), _empty_end(before, axis)], axis
    )
    both = jnp.stack([here, after + of_next], axis + 1)
    return both.reshape(*here.shape[:axis], -1, *here.shape[axis + 1 :])


def _empty_end(x: Array, axis: int) -> Array:
    return jnp.zeros_like(jax.lax.slice_in_dim(x, 0, 1, axis=axis))


_halved_from.defvjp(_halved_kept, _halved_pulled)


def resized(x: Float[Array, "B H W C"], side: int) -> Float[Array, "B side side C"]:
    """Adaptive max-pooling to `side` × `side`.

    Row i is the maximum of the rows from ⌊i H / side⌋ to before ⌈(i + 1) H / side⌉: a picture that
    is smaller than the result is enlarged by repeating rows and their maxima.
    """
    _, height, width, _ = x.shape
    by_row = _highest(_windows(width, side), jnp.swapaxes(x, 1, 2))
    return _highest(_windows(height, side), jnp.swapaxes(by_row, 1, 2))


def _windows(height: int, side: int) -> tuple[tuple[int, int], ...]:
    """From which row to before which."""
    return tuple((i * height // side, -(-(i + 1) * height // side)) for i in range(side))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _highest(
    windows: tuple[tuple[int, int], ...], x: Float[Array, "B H W C"]
) -> Float[Array, "B h W C"]:
    """Maxima of windows of rows."""
    return _highest_kept(windows, x)[0]


def _highest_kept(
    windows: tuple[tuple[int, int], ...], x: Array
) -> tuple[Array, Int8[Array, "B h W C"]]:
    """With the row of each maximum in its window."""
    largest, which = [], []
    for low, high in windows:
        value, row = x[:, low], jnp.zeros_like(x[:, low], jnp.int8)
        for number in range(low + 1, high):
            row = jnp.where(value >= x[:, number], row, jnp.int8(number - low))
            value = jnp.where(value >= x[:, number], value, x[:, number])
        largest.append(value)
        which.append(row)
    return jnp.stack(largest, 1), jnp.stack(which, 1)


def _highest_pulled(
    windows: tuple[tuple[int, int], ...], which: Array, slopes: Array
) -> tuple[Array]:
    def at(row: int) -> Array:
        came = [
            jnp.where(which[:, i] == row - low, slopes[:, i], 0)
            for i, (low, high) in enumerate(windows)
            if low <= row < high
        ]
        return sum(came[1:], came[0])

    return (jnp.stack([at(row) for row in range(windows[-1][1])], 1),)


_highest.defvjp(_highest_kept, _highest_pulled)
