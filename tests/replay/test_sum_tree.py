from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from winkel.replay import sum_tree
from winkel.replay.sum_tree import FAN_OUT

KEY = jax.random.key(5)
WORTH = st.floats(0, 8, width=32, allow_subnormal=False)
SIZES = (1, 3, FAN_OUT, FAN_OUT + 1, 3 * FAN_OUT * FAN_OUT)  # one, two and three levels
put = jax.jit(sum_tree.put)
draw = jax.jit(sum_tree.draw, static_argnums=1)


def filled(priorities, dtype=jnp.float32):
    priorities = jnp.asarray(priorities, dtype)
    return put(sum_tree.empty(len(priorities), dtype), jnp.arange(len(priorities)), priorities)


def leaves(tree, size):
    return np.asarray(tree[0]).ravel()[:size]


def assert_sums_are_those_of_the_leaves(tree):
    """Bitwise as when all are summed anew, and near the true ones."""
    for below, above in pairwise(tree):
        sums = np.asarray(above).ravel()
        np.testing.assert_array_equal(sums[: len(below)], sum_tree.totals(below))
        np.testing.assert_array_equal(sums[len(below) :], 0)
        exact = np.sum(np.asarray(below, np.float64), axis=-1)
        np.testing.assert_allclose(sums[: len(below)], exact, rtol=1e-6)


def assert_frequencies(drawn, priorities, groups):
    """χ² of how often each group of leaves was drawn, none of priority 0 among them."""
    assert np.all(priorities[drawn] > 0)
    counts = np.bincount(groups[drawn], minlength=groups.max() + 1)
    mass = np.bincount(groups, weights=priorities.astype(np.float64))
    held = mass > 0
    expected = mass[held] / mass.sum() * len(drawn)
    assert np.all(expected > 5)
    assert stats.chisquare(counts[held], expected).pvalue > 1e-3


@settings(max_examples=60)
@given(data=st.data())
def test_a_write_is_to_the_leaves_and_all_sums_above(data):
    """The largest of the priorities for an index counts; negative indices are passed over."""
    size = data.draw(st.sampled_from(SIZES))
    expected, tree = np.zeros(size, np.float32), sum_tree.empty(size)
    for _ in range(3):
        index = st.one_of(st.integers(-3, min(size, 4) - 1), st.integers(0, size - 1))
        written = data.draw(st.lists(st.tuples(index, WORTH), min_size=6, max_size=6))
        indices = np.array([i for i, _ in written])
        values = np.array([v for _, v in written], np.float32)
        tree = put(tree, jnp.asarray(indices), jnp.asarray(values))
        for i in set(indices[indices >= 0].tolist()):
            expected[i] = values[indices == i].max()
        np.testing.assert_array_equal(leaves(tree, size), expected)
        assert_sums_are_those_of_the_leaves(tree)
    where = jnp.asarray([0, size - 1])
    np.testing.assert_array_equal(sum_tree.leaves(tree, where), expected[[0, size - 1]])


@pytest.mark.parametrize("size", SIZES)
def test_a_tree_has_room_for_its_leaves_and_one_block_at_the_top(size):
    tree = sum_tree.empty(size)
    assert tree[0].size >= size
    assert tree[-1].shape == (1, FAN_OUT)
    assert all(level.dtype == jnp.float32 for level in tree)


@pytest.mark.parametrize("size", [5, 40_000])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32])
def test_draws_are_in_proportion_to_priorities(size, dtype, rng):
    """Half of the leaves are 0; leaves are grouped, within blocks and across them."""
    priorities = rng.integers(1, 20, size) * (rng.random(size) < 0.5)
    priorities[[0, 2, -1]] = (3, 8, 0)
    drawn = np.asarray(draw(filled(priorities, dtype), 20_000, KEY))
    near, far = np.arange(size) % min(size, FAN_OUT), np.arange(size) * min(size, 100) // size
    assert_frequencies(drawn, priorities, near)
    assert_frequencies(drawn, priorities, far)


def test_every_level_draws_a_number_of_its_own(monkeypatch):
    """One number for all would not tell the leaves of a million apart."""
    numbers = iter((0.9, 0.1))
    fixed = lambda key, shape, dtype: jnp.full(shape, next(numbers), dtype)  # noqa: E731
    monkeypatch.setattr(jax.random, "uniform", fixed)
    tree = filled(np.ones(FAN_OUT * FAN_OUT))
    block, leaf = int(0.9 * FAN_OUT), int(0.1 * FAN_OUT)
    assert int(sum_tree.draw(tree, 1, KEY)[0]) == FAN_OUT * block + leaf


@pytest.mark.parametrize(("number", "expected"), [(0.0, 1), (1.0, 3)])
def test_no_leaf_of_zero_is_drawn_however_the_numbers_fall(number, expected, monkeypatch):
    """Also where the number is not below the cumulative sum, which rounds."""
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.full(shape, number))
    for size in (6, 300, 20_000):
        priorities = np.zeros(size, np.float32)
        priorities[[1, 2, 3]] = (0.1, 0.2, 0.7)
        assert int(sum_tree.draw(filled(priorities), 1, KEY)[0]) == expected


def test_no_leaf_of_zero_is_drawn_where_a_cumulative_sum_grows_over_it(monkeypatch):
    """As it may by rounding where it is summed in parallel."""
    rounded = lambda block, axis, dtype: jnp.asarray([[0.25, 0.5, 1.0]])  # noqa: E731
    monkeypatch.setattr(jnp, "cumsum", rounded)
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.full(shape, 0.3))
    monkeypatch.setattr(sum_tree, "FAN_OUT", 3)
    tree = (jnp.asarray([[0.25, 0.0, 0.75]]),)
    assert int(sum_tree.draw(tree, 1, KEY)[0]) == 2


def test_a_million_updates_leave_no_trace(rng):
    """10⁶ writes over seven orders of magnitude, then sums and frequencies are as after one."""
    size, batch, batches = 16_000, 1_000, 1_000

    @jax.jit
    def updated(tree):
        def update(i, tree):
            key_where, key_what = jax.random.split(jax.random.fold_in(KEY, i))
            indices = jax.random.randint(key_where, (batch,), 0, size)
            return sum_tree.put(
                tree, indices, 10.0 ** jax.random.uniform(key_what, (batch,), minval=-6, maxval=1)
            )

        return jax.lax.fori_loop(0, batches, update, tree)

    tree = updated(sum_tree.empty(size))
    last = rng.integers(0, 4, size).astype(np.float32) / 4
    assert_sums_are_those_of_the_leaves(tree)
    chosen = np.asarray(draw(tree, 40_000, KEY))
    assert_frequencies(chosen, leaves(tree, size), np.arange(size) // 200)
    assert_frequencies(chosen, leaves(tree, size), np.arange(size) % FAN_OUT)
    tree = put(tree, jnp.arange(size), jnp.asarray(last))
    np.testing.assert_array_equal(leaves(tree, size), last)
    total = np.sum(np.asarray(tree[-1], np.float64))
    assert total == np.sum(last, dtype=np.float64)  # quarters add up exactly in float32


def test_lanes_have_trees_of_their_own(rng):
    priorities = rng.integers(0, 5, (2, 300)).astype(np.float32)
    alone = [filled(lane) for lane in priorities]
    lanes = jax.tree.map(lambda *x: jnp.stack(x), *alone)
    indices, values = jnp.asarray(rng.integers(0, 300, (2, 9))), jnp.ones((2, 9))
    keys = jax.random.split(KEY, 2)
    written = jax.jit(jax.vmap(sum_tree.put))(lanes, indices, values)
    drawn = jax.jit(jax.vmap(lambda t, k: sum_tree.draw(t, 64, k)))(written, keys)
    for lane in range(2):
        expected = put(alone[lane], indices[lane], values[lane])
        for a, b in zip(written, expected, strict=True):
            np.testing.assert_array_equal(a[lane], b)
        np.testing.assert_array_equal(drawn[lane], draw(expected, 64, keys[lane]))
