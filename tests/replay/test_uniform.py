import functools
import itertools
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winkel.errors import InputError
from winkel.replay import Uniform
from winkel.types import Transition

KEY = jax.random.key(11)


def transition(obs, extras, number):
    """A transition around any observation and extras; its action tells which one it is."""
    return Transition(
        obs=obs,
        action=jnp.asarray(number, jnp.int32),
        reward=jnp.asarray(0.25 * number, jnp.float32),
        discount=jnp.asarray(number % 2, jnp.float32),
        next_obs=obs,
        boundary=jnp.asarray(number % 3 == 0),
        extras=extras,
    )


def index_item(number):
    """As of deep sea: an observation that is an index, nothing else."""
    return transition(jnp.asarray(number, jnp.int32), (), number)


def grid_item(number):
    """As of catch, with a bootstrap mask."""
    board = jnp.full((2, 3), number, jnp.float32)
    return transition(board, jnp.arange(4) % (number % 5 + 1) == 0, number)


def nested_item(number):
    """Nested containers of ints, bools, floats and arrays, Python's and NumPy's."""
    obs = {
        "where": {"cell": number, "seen": number % 2 == 0},
        "speed": number / 8,
        "pixels": np.arange(4, dtype=np.uint8).reshape(2, 2) + np.uint8(number % 100),
        "pair": (np.float32(number), [jnp.asarray([number, -number], jnp.int16)]),
    }
    return transition(obs, {"mask": np.array([number % 2 == 0, True])}, number)


def flags(count):
    return st.lists(st.booleans(), min_size=count, max_size=count)


ITEMS = {"index": index_item, "grid": grid_item, "nested": nested_item}
ITEM = pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)


@functools.cache
def compiled(capacity):
    replay = Uniform(capacity=capacity)
    sample = jax.jit(replay.sample, static_argnums=1)
    return replay, jax.jit(replay.add), sample


def filled(replay, add, item, numbers):
    state = replay.init(item(0))
    for number in numbers:
        state = add(state, item(number))
    return state


def at(tree, index):
    return jax.tree.map(lambda x: np.asarray(x)[index], tree)


def assert_same_item(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.asarray(a).dtype == jnp.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


def assert_holds(state, capacity, model, item):
    """The ring holds what the deque does, in the order of age."""
    added = int(state.added)
    for age, number in enumerate(model):
        slot = (added - len(model) + age) % capacity
        assert_same_item(at(state.items, slot), item(number))


@ITEM
@settings(max_examples=20)
@given(capacity=st.sampled_from([1, 3]), numbers=st.lists(st.integers(1, 1_000), max_size=8))
def test_the_ring_is_a_deque_with_a_maximum_length(item, capacity, numbers):
    replay, add, sample = compiled(capacity)
    state, model = replay.init(item(0)), deque(maxlen=capacity)
    for number in numbers:
        state = add(state, item(number))
        model.append(number)
    assert int(state.added) == len(numbers)
    assert_holds(state, capacity, model, item)
    if not model:
        return
    batch = sample(state, 16, jax.random.fold_in(KEY, len(numbers)))
    for row, index in enumerate(np.asarray(batch.indices)):
        drawn = at(batch.transitions, row)
        assert int(drawn.action) in model
        assert_same_item(drawn, item(int(drawn.action)))
        assert_same_item(drawn, at(state.items, index))


@ITEM
def test_an_empty_ring_has_the_shapes_of_its_items(item):
    state = Uniform(capacity=5).init(item(7))
    assert int(state.added) == 0
    for stored, example in zip(jax.tree.leaves(state.items), jax.tree.leaves(item(7)), strict=True):
        assert stored.shape == (5, *np.shape(example))
        assert stored.dtype == jnp.asarray(example).dtype


@ITEM
def test_lanes_are_rings_of_their_own(item):
    """Lanes that hold 1, 3 and 7 items get one more each, and are drawn from with their keys."""
    capacity = 3
    replay, add, sample = compiled(capacity)
    histories = [[10], [20, 21, 22], list(range(30, 37))]
    alone = [filled(replay, add, item, numbers) for numbers in histories]
    lanes = jax.tree.map(lambda *x: np.stack(x), *alone)
    new = jax.tree.map(lambda *x: np.stack([jnp.asarray(y) for y in x]), *map(item, (1, 2, 3)))
    keys = jax.random.split(KEY, 3)
    lanes = jax.jit(jax.vmap(replay.add))(lanes, new)
    batches = jax.jit(jax.vmap(lambda s, k: replay.sample(s, 16, k)))(lanes, keys)
    for lane, (numbers, last) in enumerate(zip(histories, (1, 2, 3), strict=True)):
        model = deque([*numbers, last], maxlen=capacity)
        assert_holds(at(lanes, lane), capacity, model, item)
        batch = at(batches, lane)
        assert set(batch.transitions.action.tolist()) == set(model)
        expected = sample(at(lanes, lane), 16, keys[lane])
        assert_same_item(batch, expected)


@pytest.mark.parametrize("added", [1, 5, 8, 21])
def test_draws_are_uniform_over_what_is_stored(added):
    """Of all that is stored, and never of an empty slot, whose action is 0."""
    capacity, count = 8, 8_000
    replay, add, sample = compiled(capacity)
    state = filled(replay, add, index_item, range(1, added + 1))
    batch = sample(state, count, KEY)
    stored = np.arange(max(1, added - capacity + 1), added + 1)
    drawn, counts = np.unique(batch.transitions.action, return_counts=True)
    np.testing.assert_array_equal(drawn, stored)
    expected = count / len(stored)
    chi_square = np.sum((counts - expected) ** 2 / expected)
    degrees = len(stored) - 1
    assert chi_square <= degrees + 4 * np.sqrt(2 * degrees)  # four standard deviations
    np.testing.assert_array_equal(batch.transitions.next_obs, batch.transitions.action)


def test_a_batch_may_be_larger_than_the_store():
    replay, add, sample = compiled(8)
    batch = sample(filled(replay, add, grid_item, [3]), 5, KEY)
    np.testing.assert_array_equal(batch.indices, 0)
    np.testing.assert_array_equal(batch.transitions.action, 3)
    assert batch.transitions.obs.shape == (5, 2, 3)


def test_all_draws_weigh_one_and_other_keys_draw_others():
    replay, add, sample = compiled(8)
    state = filled(replay, add, index_item, range(1, 9))
    first, again, other = (sample(state, 64, jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.weights, np.ones(64, np.float32))
    np.testing.assert_array_equal(first.indices, again.indices)
    assert not np.array_equal(first.indices, other.indices)


def test_priorities_change_nothing():
    replay, add, sample = compiled(3)
    state = filled(replay, add, nested_item, range(1, 7))
    batch = sample(state, 3, KEY)
    assert_same_item(replay.reprioritise(state, batch, jnp.arange(3.0)), state)


def test_one_program_serves_the_empty_the_filling_and_the_full_ring():
    replay, traces = Uniform(capacity=3), []

    @jax.jit
    def add_and_sample(state, item, key):
        traces.append(None)
        state = replay.add(state, item)
        return state, replay.sample(state, 2, key)

    state = replay.init(grid_item(0))
    for number in range(1, 9):
        state, _ = add_and_sample(state, grid_item(number), KEY)
    assert len(traces) == 1
    assert_holds(state, 3, (6, 7, 8), grid_item)


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_ring_needs_room(capacity):
    with pytest.raises(InputError, match=f"capacity >= 1.*got {capacity}"):
        Uniform(capacity=capacity)


@pytest.mark.parametrize("capacity", [2.0, "10"])
def test_a_capacity_is_a_whole_number(capacity, without_shape_checks):
    with pytest.raises(InputError, match="capacity >= 1, a whole number, got"):
        Uniform(capacity=capacity)


@functools.cache
def add_many(capacity):
    return jax.jit(Uniform(capacity=capacity).add)


@ITEM
@settings(max_examples=15)
@given(before=st.integers(0, 9), keep=st.sampled_from([1, 3, 5]).flatmap(flags))
def test_many_at_once_are_as_one_after_another(item, before, keep):
    """All of them, and those to keep where that is said; across the seam of the ring as well."""
    capacity, numbers = 5, range(100, 100 + len(keep))
    replay, add, _ = compiled(capacity)
    start = filled(replay, add, item, range(1, before + 1))
    many = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *map(item, numbers))
    for found, kept in (
        (add_many(capacity)(start, many), [True] * len(keep)),
        (add_many(capacity)(start, many, keep=jnp.asarray(keep)), keep),
    ):
        expected = start
        for number in itertools.compress(numbers, kept):
            expected = add(expected, item(number))
        assert_same_item(found, expected)


def test_more_at_once_than_there_is_room_for_are_refused():
    replay = Uniform(capacity=3)
    many = jax.tree.map(lambda x: jnp.stack([x] * 4), index_item(1))
    with pytest.raises(InputError, match=r"at most 3 transitions at a time.* got 4"):
        jax.eval_shape(replay.add, replay.init(index_item(0)), many)


def test_neither_discount_nor_progress_change_a_uniform_draw():
    replay, add, sample = compiled(8)
    state = filled(replay, add, index_item, range(1, 9))
    other = replay.sample(state, 16, KEY, gamma=0.5, progress=0.7)
    assert_same_item(other, sample(state, 16, KEY))
    np.testing.assert_array_equal(other.gamma_power, np.ones(16, np.float32))
