from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winkel.replay.streams import stack_frames

stack_of = jax.jit(stack_frames, static_argnums=4)


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    stack=st.sampled_from([1, 2, 4]),
    shift=st.integers(0, 12),
)
def test_stacks_are_the_originals_at_every_position(lengths, stack, shift):
    """Two environments that went through the same, the other one with its ring turned further."""
    slots = 13
    frames = np.zeros((2, slots, 2, 3, 1), np.uint8)
    stored = deque(maxlen=slots)
    number = 0
    for length in lengths:
        seen = deque([None] * stack, maxlen=stack)
        for age in range(length):
            frame = np.full((2, 3, 1), number, np.uint8) + np.arange(6).reshape(2, 3, 1) * 40
            frame = frame.astype(np.uint8)
            seen.extend([frame] * (stack if age == 0 else 1))
            frames[0, number % slots] = frame
            frames[1, (number + shift) % slots] = 255 - frame
            stored.append((number, age, np.stack(seen)))
            number += 1
    whole = [(p, age, s) for p, age, s in stored if p - min(age, stack - 1) > number - 1 - slots]
    position, age, expected = (np.stack(x) for x in zip(*whole, strict=True))
    for environment, turned in ((0, 0), (1, shift)):
        found = stack_of(
            jnp.asarray(frames),
            jnp.full(slots, environment),
            jnp.asarray(np.resize((position + turned) % slots, slots)),
            jnp.asarray(np.resize(age, slots)),
            stack,
        )
        assert found.dtype == jnp.uint8
        found = found[: len(whole)]
        np.testing.assert_array_equal(found, 255 - expected if environment else expected)


@pytest.mark.parametrize("stack", [1, 6])
def test_the_first_frame_stands_for_what_was_before_it(stack):
    frames = jnp.arange(8, dtype=jnp.uint8).reshape(1, 8, 1)
    found = stack_frames(frames, jnp.zeros(1, int), jnp.asarray([1]), jnp.asarray([2]), stack)
    np.testing.assert_array_equal(found[0, :, 0], [7, 7, 7, 7, 0, 1][6 - stack :])
