"""Maxima over windows of pictures, written so that gradients need no scatter."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def halved(x: Float[Array, "B H W C"]) -> Float[Array, "B h w C"]:
    """The maximum of every 3 × 3 window around each second place: sides become ⌈n / 2⌉."""
    return _halved_rows(jnp.swapaxes(_halved_rows(jnp.swapaxes(x, 1, 2)), 1, 2))


def _halved_rows(x: Float[Array, "B H W C"]) -> Float[Array, "B h W C"]:
    """Row i of the result is the maximum of rows 2i − 1, 2i and 2i + 1, where they are."""
    here, after = x[:, ::2], x[:, 1::2]
    missing = here.shape[1] - after.shape[1]
    padding = ((0, 0), (0, missing), (0, 0), (0, 0))
    after = jnp.pad(after, padding, constant_values=-jnp.inf)
    before = jnp.pad(after[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0)), constant_values=-jnp.inf)
    return _larger(here, _larger(before, after))


def _larger(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """The maximum, whose gradient goes to the first of two that are equal.

    `jnp.maximum` would share it between them, which costs a GPU three times as many comparisons.
    """
    return jnp.where(a >= b, a, b)


def resized(x: Float[Array, "B H W C"], side: int) -> Float[Array, "B side side C"]:
    """Adaptive max-pooling to `side` × `side`.

    Row i is the maximum of the rows from ⌊i H / side⌋ to before ⌈(i + 1) H / side⌉: a picture that
    is smaller than the result is enlarged by repeating rows and their maxima.
    """
    return _resized_rows(jnp.swapaxes(_resized_rows(jnp.swapaxes(x, 1, 2), side), 1, 2), side)


def _resized_rows(x: Float[Array, "B H W C"], side: int) -> Float[Array, "B side W C"]:
    height = x.shape[1]
    windows = [(i * height // side, -(-(i + 1) * height // side)) for i in range(side)]
    rows = [jnp.max(x[:, low:high], axis=1, keepdims=True) for low, high in windows]
    return jnp.concatenate(rows, axis=1)
