"""What the kernels share: powers of two, masked tiles."""

from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu
from jaxtyping import Array

SMALLEST = 16
"""Least side of a tile in a matrix product."""


def power_of_two(size: int, at_least: int = 1) -> int:
    """The next one: tiles have no other sides."""
    return max(pl.next_power_of_2(size), at_least)


def span(start: Any, size: int) -> Array:
    """`size` indices from `start` on."""
    return start + jnp.arange(size)


def tile(ref: Any, rows: Array, columns: Array, num_rows: int, num_columns: int) -> Array:
    """`ref[rows, columns]`, 0 outside of the array."""
    inside = (rows < num_rows)[:, None] & (columns < num_columns)[None, :]
    return gpu.load(ref.at[rows[:, None], columns[None, :]], mask=inside, other=0.0)


def whole(*shape: int) -> pl.BlockSpec:
    """All of an array that the members share."""
    return pl.BlockSpec(shape, lambda *_: (0,) * len(shape))


def member(*shape: int) -> pl.BlockSpec:
    """One member's part of an array [M, …]."""
    return pl.BlockSpec((None, *shape), lambda index, *_: (index,) + (0,) * len(shape))


def params(warps: int, stages: int = 1) -> gpu.CompilerParams:
    """Warps of a program, and how many turns of its loop it loads ahead."""
    return gpu.CompilerParams(num_warps=warps, num_stages=stages)
