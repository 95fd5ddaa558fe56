"""Draws in proportion to priorities that change at every update.

Priorities are the leaves of a tree whose inner nodes hold the sums of their children. A node has
many children, so that the tree is low: an accelerator sums a block at once but waits for every
level. When a child changes, its parent's sum is computed anew from all children, so that rounding
errors do not accumulate. With integers all sums are exact; with float32 they are equal, bit by bit,
to those of a tree that is built from scratch.
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Int, Num, PRNGKeyArray

FAN_OUT = 128
"""Children of a node."""

SumTree = tuple[Num[Array, "..."], ...]
"""Levels [blocks, FAN_OUT], from the leaves to the one block at the top: the sum of block i of a
level is entry i of the next."""


def empty(size: int, dtype: DTypeLike = jnp.float32) -> SumTree:
    """A tree of at least `size` leaves, all 0."""
    levels: list[Array] = []
    while not levels or size > 1:
        size = -(-size // FAN_OUT)
        levels.append(jnp.zeros((size, FAN_OUT), dtype))
    return tuple(levels)


def leaves(tree: SumTree, indices: Int[Array, "B"]) -> Num[Array, "B"]:
    """Priorities of some leaves."""
    return tree[0].at[indices // FAN_OUT, indices % FAN_OUT].get(mode="promise_in_bounds")


def put(tree: SumTree, indices: Int[Array, "N"], priorities: Num[Array, "N"]) -> SumTree:
    """Set the priorities of some leaves; negative indices are ignored.

    If an index repeats, the largest of its priorities counts, on every platform.
    """
    levels = list(tree)
    cleared = _set(levels[0], indices, jnp.zeros_like(priorities))
    levels[0] = cleared.at[indices // FAN_OUT, indices % FAN_OUT].max(
        priorities, mode="drop", wrap_negative_indices=False
    )
    for below in range(len(levels) - 1):
        indices = indices // FAN_OUT
        sums = totals(levels[below].at[indices].get(mode="clip"))
        levels[below + 1] = _set(levels[below + 1], indices, sums)
    return tuple(levels)


def totals(blocks: Num[Array, "N F"]) -> Num[Array, "N"]:
    """Sums of blocks, by adding halves: always in the same order."""
    while blocks.shape[1] > 1:
        half = blocks.shape[1] // 2
        blocks = blocks[:, :half] + blocks[:, half:]
    return blocks[:, 0]


def _set(
    level: Num[Array, "blocks F"], indices: Int[Array, "N"], values: Num[Array, "N"]
) -> Num[Array, "blocks F"]:
    return level.at[indices // FAN_OUT, indices % FAN_OUT].set(
        values, mode="drop", wrap_negative_indices=False
    )


def draw(tree: SumTree, batch_size: int, key: PRNGKeyArray) -> Int[Array, "{batch_size}"]:
    """Draw leaves independently, in proportion to their priorities, never one of priority 0.

    From the top down, every level draws a child with its own random number, so that a million
    leaves are drawn as exactly as a hundred. For integers a draw is exactly in proportion.
    Undefined if all priorities are 0.
    """
    node = jnp.zeros(batch_size, jnp.int32)
    keys = jax.random.split(key, len(tree))
    for level, key_level in zip(reversed(tree), keys, strict=True):
        block = level.at[node].get(mode="promise_in_bounds")
        node = node * FAN_OUT + _child(block, key_level)
    return node


def _child(block: Num[Array, "B F"], key: PRNGKeyArray) -> Int[Array, "B"]:
    """Draw an entry of each block, in proportion to its value.

    By rounding, a cumulative sum need not increase, nor end in the total; so only entries that are
    not 0 are considered, and the last of them is drawn if the sum ends below the random number.
    """
    ends = jnp.cumsum(block, axis=-1, dtype=block.dtype)
    total = ends[:, -1]
    if jnp.issubdtype(block.dtype, jnp.integer):
        number = jax.random.randint(key, total.shape, 0, total, block.dtype)
    else:
        number = jax.random.uniform(key, total.shape, block.dtype) * total
    positions = jax.lax.broadcasted_iota(jnp.int32, block.shape, 1)
    positive = block > 0
    beyond = positive & (ends > number[:, None])
    first = jnp.min(jnp.where(beyond, positions, FAN_OUT), axis=-1)
    last = jnp.max(jnp.where(positive, positions, 0), axis=-1)
    return jnp.minimum(first, last)
