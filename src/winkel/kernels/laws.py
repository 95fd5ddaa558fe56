"""What the kernels of laws share: outputs of a pair of models, and how a program handles a vector.

One program of one warp for each law. Quantiles are sorted in registers, by a network of
comparisons; everything that follows is prefix sums, index arithmetic on the categories' even grid,
and binary search. Locations are measured in steps of that grid, from its lower end.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu
from jaxtyping import Array, Float

from winkel.kernels.tiles import power_of_two


class Pair(NamedTuple):
    """Which member of an ensemble of two is which."""

    quantile: int
    categorical: int


class Said(NamedTuple):
    """What the networks of a pair say of a batch, as they are computed.

    O is at least A · K: the outputs of the first action come first.

    Attributes:
        products: of the last layer, without its bias.
        bias: of the last layer.
        prior: outputs of the members' priors, of those that carry one.
    """

    products: Float[Array, "2 B O"]
    bias: Float[Array, "2 O"]
    prior: Float[Array, "P B O"] | None = None


class Shape(NamedTuple):
    """What is known of a pair before anything runs.

    Attributes:
        pair: which member is which.
        actions: A.
        size: K.
        carriers: members with a prior.
    """

    pair: Pair
    actions: int
    size: int
    carriers: tuple[int, ...] = ()


class Shelf(NamedTuple):
    """Rows of memory through which a program's threads hand each other vectors."""

    ref: Any
    interpret: bool

    def put(self, *rows: tuple[int, Array]) -> None:
        """Store vectors, for all threads to see."""
        for row, values in rows:
            gpu.store(self.ref.at[row, jnp.arange(len(values))], values)
        if not self.interpret:
            gpu.debug_barrier()

    def get(self, row: int, index: Array) -> Array:
        """One entry for each thread; indices below 0 count as 0."""
        return gpu.load(self.ref.at[row, jnp.maximum(index, 0)])

    def count_below(self, row: int, size: int, bounds: Array, strictly: bool) -> Array:
        """How many of the `size` increasing numbers of a row are below each bound."""
        found = jnp.zeros_like(bounds, jnp.int32)
        step = power_of_two(size + 1) // 2
        while step:
            probe = self.get(row, found + (step - 1))
            below = probe < bounds if strictly else probe <= bounds
            found = jnp.where(below & (found + step <= size), found + step, found)
            step //= 2
        return found


def slots(size: int) -> int:
    """Length of vectors, with room for one more than `size`."""
    return power_of_two(size + 1)


def sorted_values(values: Array) -> Array:
    """In increasing order, by Batcher's bitonic network; the length is a power of two."""
    length = len(values)
    block = 2
    while block <= length:
        step = block // 2
        while step:
            pairs = values.reshape(length // (2 * step), 2, step)
            row = jax.lax.broadcasted_iota(jnp.int32, pairs.shape, 0)
            second = jax.lax.broadcasted_iota(jnp.int32, pairs.shape, 1)
            falling = ((row * (2 * step)) & block) // block
            low = jnp.broadcast_to(jnp.min(pairs, axis=1)[:, None, :], pairs.shape)
            high = jnp.broadcast_to(jnp.max(pairs, axis=1)[:, None, :], pairs.shape)
            values = jnp.where(second == falling, low, high).reshape(length)
            step //= 2
        block *= 2
    return values


def softmax(logits: Array) -> tuple[Array, Array]:
    """Probabilities, and the logarithm of their normaliser; padding is −∞."""
    highest = jnp.max(logits)
    weights = jnp.exp(logits - highest)
    total = jnp.sum(weights)
    return weights / total, highest + jnp.log(total)


class Reader(NamedTuple):
    """Outputs of one example and one action."""

    refs: Any
    shape: Shape
    start: Any
    prior_scale: Any

    def row(self, member: int, other: float) -> Array:
        """Of one member, with its prior."""
        at = jnp.arange(slots(self.shape.size))
        inside = at < self.shape.size
        products_ref, bias_ref, *prior_refs = self.refs

        def load(ref: Any, index: int, other: float) -> Array:
            return gpu.load(ref.at[index, self.start + at], mask=inside, other=other)

        made = load(products_ref, member, other) + load(bias_ref, member, 0.0)
        if prior_refs and member in self.shape.carriers:
            carrier = self.shape.carriers.index(member)
            made = made + self.prior_scale * load(prior_refs[0], carrier, 0.0)
        return made


def given(said: Said) -> list[Array]:
    """A kernel's operands, as a `Reader` takes their references."""
    return [said.products, said.bias] + ([] if said.prior is None else [said.prior])


def given_specs(said: Said) -> list[pl.BlockSpec]:
    """All members' outputs of one example."""

    def rows(array: Array) -> pl.BlockSpec:
        members, _, outputs = array.shape
        return pl.BlockSpec((members, None, outputs), lambda example, *_: (0, example, 0))

    bias = pl.BlockSpec(said.bias.shape, lambda *_: (0, 0))
    return [rows(said.products), bias] + ([] if said.prior is None else [rows(said.prior)])
