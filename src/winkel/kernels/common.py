"""What the kernels share: masked tiles, outputs of a pair of models, vectors of a program.

In the kernels of distributions, one program of one warp computes one distribution. Quantiles are
sorted in registers, by a network of comparisons; the rest is prefix sums, index arithmetic on the
even grid of the categories, and binary search. Locations are measured in steps of that grid, from
its lower end.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu
from jaxtyping import Array, Float

SMALLEST = 16
"""Least side of a tile in a matrix product."""
INTERPRET = False
"""Whether kernels run in Pallas' interpreter: tests do that where there is no GPU."""


def power_of_two(size: int, at_least: int = 1) -> int:
    """The next power of two, as sides of tiles must be."""
    return max(pl.next_power_of_2(size), at_least)


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


def kernel_call(name: str, kernel: Callable[..., None], warps: int, **blocks: Any) -> Any:
    """`pallas_call` with so many warps of a program, and one stage of its loop at a time."""
    params = gpu.CompilerParams(num_warps=warps, num_stages=1)
    return pl.pallas_call(kernel, compiler_params=params, interpret=INTERPRET, name=name, **blocks)


def floats(*shape: int) -> jax.ShapeDtypeStruct:
    """A result of this shape."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


class Layout(NamedTuple):
    """The static shape of a pair of models: indices of members, A, K, and who has a prior."""

    quantile: int
    categorical: int
    actions: int
    size: int
    prior_members: tuple[int, ...] = ()


class Outputs(NamedTuple):
    """Outputs of the networks of a pair for a batch, in the parts in which they are computed.

    O is at least A · K: the outputs of the first action come first.
    """

    products: Float[Array, "2 B O"]
    """Products of the last layer, without its bias."""
    bias: Float[Array, "2 O"]
    prior: Float[Array, "P B O"] | None = None
    """Outputs of the priors, of the members that have one."""

    def operands(self) -> list[Array]:
        """A kernel's operands, in the order of `specs`."""
        return [self.products, self.bias] + ([] if self.prior is None else [self.prior])

    def specs(self) -> list[pl.BlockSpec]:
        """Blocks of the operands: all members' outputs of one example."""

        def rows(array: Array) -> pl.BlockSpec:
            members, _, outputs = array.shape
            return pl.BlockSpec((members, None, outputs), lambda example, *_: (0, example, 0))

        bias = pl.BlockSpec(self.bias.shape, lambda *_: (0, 0))
        return [rows(self.products), bias] + ([] if self.prior is None else [rows(self.prior)])


def read_row(
    refs: Any, layout: Layout, prior_scale: Any, action: Any, member: int, other: float
) -> Array:
    """Outputs of one member for one action, with its prior; `other` fills the padding.

    `refs` are those of `Outputs.operands`.
    """
    at = jnp.arange(padded(layout.size))
    products_ref, bias_ref, *prior_refs = refs

    def load(ref: Any, index: int, other: float) -> Array:
        place = ref.at[index, action * layout.size + at]
        return gpu.load(place, mask=at < layout.size, other=other)

    made = load(products_ref, member, other) + load(bias_ref, member, 0.0)
    if prior_refs and member in layout.prior_members:
        made = made + prior_scale * load(prior_refs[0], layout.prior_members.index(member), 0.0)
    return made


# The threads of a program exchange vectors through rows of memory, `scratch`.


def put(scratch: Any, *rows: tuple[int, Array]) -> None:
    """Store vectors, visible to all threads."""
    for row, values in rows:
        gpu.store(scratch.at[row, jnp.arange(len(values))], values)
    if not INTERPRET:
        gpu.debug_barrier()


def get(scratch: Any, row: int, index: Array) -> Array:
    """Load one entry for each thread; indices below 0 count as 0."""
    return gpu.load(scratch.at[row, jnp.maximum(index, 0)])


def count_below(scratch: Any, row: int, size: int, bounds: Array, strictly: bool) -> Array:
    """Number of the `size` increasing entries of a row that are below each bound."""
    found = jnp.zeros_like(bounds, jnp.int32)
    step = power_of_two(size + 1) // 2
    while step:
        probe = get(scratch, row, found + (step - 1))
        below = probe < bounds if strictly else probe <= bounds
        found = jnp.where(below & (found + step <= size), found + step, found)
        step //= 2
    return found


def padded(size: int) -> int:
    """Length of vectors, with room for one more than `size`."""
    return power_of_two(size + 1)


def sort(values: Array) -> Array:
    """Sort in increasing order, by Batcher's bitonic network; the length is a power of two."""
    length = len(values)
    block = 2
    while block <= length:
        step = block // 2
        while step:
            pairs = values.reshape(length // (2 * step), 2, step)
            row = jax.lax.broadcasted_iota(jnp.int32, pairs.shape, 0)
            second = jax.lax.broadcasted_iota(jnp.int32, pairs.shape, 1)
            descending = ((row * (2 * step)) & block) // block
            low = jnp.broadcast_to(jnp.min(pairs, axis=1)[:, None, :], pairs.shape)
            high = jnp.broadcast_to(jnp.max(pairs, axis=1)[:, None, :], pairs.shape)
            values = jnp.where(second == descending, low, high).reshape(length)
            step //= 2
        block *= 2
    return values


def softmax(logits: Array) -> tuple[Array, Array]:
    """Probabilities, and the logarithm of their normaliser; padding is −∞."""
    highest = jnp.max(logits)
    weights = jnp.exp(logits - highest)
    total = jnp.sum(weights)
    return weights / total, highest + jnp.log(total)
