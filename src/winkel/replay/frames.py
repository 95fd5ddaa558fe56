"""Stacks of frames, from frames that are stored once."""

import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped


def stacked(
    frames: Shaped[Array, "E T *frame"],
    environment: Int[Array, "B"],
    slot: Int[Array, "B"],
    age: Int[Array, "B"],
    stack: int,
) -> Shaped[Array, "B {stack} *frame"]:
    """The last `stack` frames up to each slot, oldest first.

    Every environment has a ring of T slots, filled in order. An episode of which `age` frames lie
    before the slot has no more than these: its first frame stands for those before it.
    """
    back = jnp.minimum(jnp.arange(stack)[None, ::-1], age[:, None])  # [B, stack]
    slots = (slot[:, None] - back) % frames.shape[1]
    return frames.at[environment[:, None], slots].get(mode="promise_in_bounds")
