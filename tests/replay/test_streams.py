import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from replay.model import GO, LOSE, TERMINATE, TRUNCATE, Model
from winkel.replay import Streams

KEY = jax.random.key(3)
GAMMA = 0.9
SETTINGS = {
    "one step": Streams(capacity=5, num_envs=1),
    "one step, drawn by worth": Streams(capacity=12, num_envs=3, priority_exponent=0.5),
    "three steps": Streams(capacity=4, num_envs=1, n_step=3, priority_exponent=0.5),
    "stacks": Streams(capacity=5, num_envs=1, stack=3),
    "both": Streams(capacity=17, num_envs=3, n_step=3, stack=4, priority_exponent=0.5),
    "steps longer than the share": Streams(capacity=6, num_envs=3, n_step=4, stack=2),
}
SETTING = pytest.mark.parametrize("name", SETTINGS)
EVENTS = st.sampled_from([GO] * 5 + [TERMINATE, TRUNCATE, LOSE])


@functools.cache
def compiled(replay):
    """add, at, sample and reprioritise, each one program."""
    return (
        jax.jit(replay.add),
        jax.jit(lambda state, indices: replay.at(state, indices, GAMMA)),
        jax.jit(lambda state, key: replay.sample(state, 64, key, gamma=GAMMA, progress=0.2)),
        jax.jit(replay.reprioritise),
    )


def begun(replay, seed=0):
    model = Model(replay, seed)
    example, _ = Model(replay).step([GO] * replay.num_envs)
    return model, replay.init(example)


def played(replay, story, seed=0):
    """The replay and its model after a story, the events of all environments step by step."""
    add = compiled(replay)[0]
    model, state = begun(replay, seed)
    for events in story:
        transitions, keep = model.step(events)
        state = add(state, transitions, keep=keep)
    return model, state


def storied(rng, replay, length, often=(0.7, 0.1, 0.15, 0.05)):
    return rng.choice([GO, TERMINATE, TRUNCATE, LOSE], (length, replay.num_envs), p=often).tolist()


def worth(replay, state):
    """Priorities of all slots."""
    return np.asarray(state.priorities[0]).ravel()[: replay.num_envs * replay.slots]


def assert_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        if np.asarray(a).dtype == np.float32:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(a, b)


def assert_holds(replay, state, model):
    """Samples start where they can and nowhere else, and every one of them is right."""
    starts = model.starts()
    np.testing.assert_array_equal(np.flatnonzero(worth(replay, state)), sorted(starts))
    if not starts:
        return
    indices = np.resize(sorted(starts), replay.num_envs * replay.slots)
    found = jax.tree.map(np.asarray, compiled(replay)[1](state, jnp.asarray(indices)))
    for row, index in enumerate(sorted(starts)):
        expected = model.sample(*starts[index], GAMMA)
        assert_same(jax.tree.map(lambda x, row=row: x[row], found), expected)


@SETTING
@settings(max_examples=12)
@given(data=st.data())
def test_samples_are_those_of_plain_lists_after_every_step(name, data):
    """Rings of a few slots, through several rounds, with ends and losses anywhere."""
    replay = SETTINGS[name]
    add = compiled(replay)[0]
    model, state = begun(replay)
    step = st.lists(EVENTS, min_size=replay.num_envs, max_size=replay.num_envs)
    for events in data.draw(st.lists(step, max_size=24)):
        transitions, keep = model.step(events)
        state = add(state, transitions, keep=keep)
        assert_holds(replay, state, model)


@SETTING
def test_rings_that_wrap_many_times(name, rng):
    replay = SETTINGS[name]
    add = compiled(replay)[0]
    model, state = begun(replay)
    for i, events in enumerate(storied(rng, replay, 8 * replay.slots)):
        transitions, keep = model.step(events)
        state = add(state, transitions, keep=keep)
        if i % 5 == 0:
            assert_holds(replay, state, model)
    assert min(len(line.slots) for line in model.lines) > 7 * replay.slots


@pytest.mark.parametrize("end", [TERMINATE, TRUNCATE, LOSE])
def test_an_end_at_every_offset(end):
    """Episodes of 1 to 6 steps, of which samples sum up to 3, in a ring that holds them all."""
    replay = Streams(capacity=60, num_envs=1, n_step=3, stack=4)
    story = [[e] for length in range(1, 7) for e in [GO] * (length - (end != LOSE)) + [end]]
    model, state = played(replay, story)
    assert_holds(replay, state, model)
    assert len(model.starts()) == 21
    lasts = [model.sample(*start, GAMMA)[0] for start in model.starts().values()]
    assert {round(float(t.discount), 4) for t in lasts if t.boundary} == (
        {0.0} if end == TERMINATE else {1.0, 0.9, 0.81}
    )


def test_the_share_of_every_environment_can_be_drawn():
    """In episodes that never end, exactly capacity / environments starts each."""
    for replay in SETTINGS.values():
        model, _ = begun(replay)
        for _ in range(3 * replay.slots):
            model.step([GO] * replay.num_envs)
        assert len(model.starts()) == replay.capacity // replay.num_envs * replay.num_envs


@SETTING
def test_draws_reach_every_start_and_nothing_else(name, rng):
    replay = SETTINGS[name]
    for length in (replay.n_step, 3, replay.slots, 5 * replay.slots):
        story = [[GO] * replay.num_envs] * replay.n_step + storied(rng, replay, length)
        model, state = played(replay, story)
        drawn = [compiled(replay)[2](state, jax.random.fold_in(KEY, i)).indices for i in range(6)]
        assert set(np.concatenate(drawn).tolist()) == set(model.starts())


def test_uniform_draws_are_uniform_over_all_streams(rng):
    """Environments with very different numbers of starts."""
    replay = Streams(capacity=600, num_envs=3, n_step=2)
    story = [
        [GO, TRUNCATE if i % 2 else GO, LOSE if i % 5 else GO] for i in range(replay.slots + 50)
    ]
    model, state = played(replay, story)
    starts = sorted(model.starts())
    batch = jax.jit(lambda s: replay.sample(s, 40_000, KEY))(state)
    indices, counts = np.unique(batch.indices, return_counts=True)
    np.testing.assert_array_equal(indices, starts)
    assert stats.chisquare(counts).pvalue > 1e-3
    np.testing.assert_array_equal(batch.weights, np.ones(40_000))


def test_priorities_are_drawn_by_and_weighed_away():
    """After learning of every start, all frequencies and weights follow from |p|^α alone."""
    replay = Streams(capacity=60, num_envs=3, n_step=3, stack=2, priority_exponent=0.5)
    story = [[GO, TRUNCATE if i % 4 == 0 else GO, GO] for i in range(2 * replay.slots)]
    model, state = played(replay, story)
    starts = np.array(sorted(model.starts()))
    batch = compiled(replay)[2](state, KEY)
    size = len(starts)
    whole = batch._replace(indices=jnp.asarray(starts))
    priorities = np.linspace(-4.0, 9.0, size).astype(np.float32)
    priorities[3] = 0.0
    state = compiled(replay)[3](state, whole, jnp.asarray(priorities))
    expected = (np.abs(priorities.astype(np.float64)) + 1e-6) ** 0.5
    np.testing.assert_allclose(worth(replay, state)[starts], expected, rtol=1e-5)
    assert float(state.highest) == pytest.approx(3.0)
    batch = jax.jit(lambda s: replay.sample(s, 20_000, KEY, progress=0.4))(state)
    rows = np.searchsorted(starts, batch.indices)
    counts = np.bincount(rows, minlength=size)
    share = expected / expected.sum()
    often = share * 20_000 > 5
    assert sum(often) == size - 1
    expected = share[often] / share[often].sum() * counts[often].sum()
    assert stats.chisquare(counts[often], expected).pvalue > 1e-3
    weights = (size * share[rows]) ** -(0.45 + 0.4 * 0.55)
    np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=1e-4)
    for progress, exponent in ((0.0, 0.45), (1.0, 1.0), (1.5, 1.0)):
        found = replay.sample(state, 20_000, KEY, progress=progress).weights
        weights = share[rows] ** -exponent
        np.testing.assert_allclose(found, weights / weights.max(), rtol=1e-4)


def test_new_samples_get_the_highest_priority_so_far():
    replay = Streams(capacity=40, num_envs=2, n_step=2, priority_exponent=1.0)
    add, _, sample, reprioritise = compiled(replay)
    model, state = played(replay, [[GO, GO]] * 4)
    np.testing.assert_array_equal(np.unique(worth(replay, state)), [0.0, 1.0])
    for priority, count in ((6.0, 3), (2.0, 2)):  # with the second, an episode of one step
        before = set(model.starts())
        batch = sample(state, KEY)
        state = reprioritise(state, batch, jnp.full(64, priority))
        transitions, keep = model.step([GO, TERMINATE])
        state = add(state, transitions, keep=keep)
        new = sorted(set(model.starts()) - before)
        assert len(new) == count
        np.testing.assert_allclose(worth(replay, state)[new], 6.0, rtol=1e-5)


def test_a_loss_completes_what_was_pending_and_changes_nothing_else():
    replay = Streams(capacity=10, num_envs=1, n_step=2, priority_exponent=1.0)
    add, _, sample, reprioritise = compiled(replay)
    model, state = played(replay, [[GO]] * 4)
    state = reprioritise(state, sample(state, KEY), jnp.full(64, 0.25))
    transitions, keep = model.step([LOSE])
    state = add(state, transitions, keep=keep)
    np.testing.assert_allclose(worth(replay, state)[:5], [0.25, 0.25, 0.25, 1.0, 0.0], rtol=1e-5)
    before = state
    state = add(state, transitions, keep=keep)
    assert_same(state, before)


def test_what_can_no_longer_be_drawn_is_not_brought_back():
    """Not even where steps were added between a draw and its priorities."""
    replay = Streams(capacity=8, num_envs=2, n_step=2, stack=3, priority_exponent=0.5)
    add, _, sample, reprioritise = compiled(replay)
    model, state = played(replay, [[GO, GO]] * 12)
    batch = sample(state, KEY)
    for _ in range(3):
        transitions, keep = model.step([GO, TRUNCATE])
        state = add(state, transitions, keep=keep)
    assert not set(np.asarray(batch.indices).tolist()) <= set(model.starts())
    state = reprioritise(state, batch, jnp.full(64, 5.0))
    assert_holds(replay, state, model)


def test_uniform_replay_learns_nothing_from_priorities():
    replay = SETTINGS["one step"]
    _, _, sample, reprioritise = compiled(replay)
    _, state = played(replay, [[GO]] * 4)
    assert_same(reprioritise(state, sample(state, KEY), jnp.arange(64.0)), state)


def test_all_are_kept_unless_told_otherwise():
    replay = SETTINGS["both"]
    model, state = begun(replay)
    transitions, keep = model.step([GO] * 3)
    assert_same(replay.add(state, transitions), replay.add(state, transitions, keep=keep))


def test_lanes_are_streams_of_their_own(rng):
    """Two lanes go through different things, together as alone, to the bit."""
    replay = SETTINGS["both"]
    add, _, sample, reprioritise = compiled(replay)
    models = [Model(replay, seed) for seed in range(2)]
    alone = [begun(replay)[1] for _ in models]
    lanes = jax.tree.map(lambda *x: jnp.stack(x), *alone)
    keys = jax.random.split(KEY, 2)

    @jax.jit
    @jax.vmap
    def step(state, transitions, keep, key):
        state = replay.add(state, transitions, keep=keep)
        batch = replay.sample(state, 64, key, gamma=GAMMA, progress=0.2)
        return replay.reprioritise(state, batch, jnp.abs(batch.transitions.reward)), batch

    for events in zip(*(storied(rng, replay, 40) for _ in models), strict=True):
        made = [model.step(e) for model, e in zip(models, events, strict=True)]
        lanes, batches = step(lanes, *jax.tree.map(lambda *x: jnp.stack(x), *made), keys)
        alone = [add(s, t, keep=k) for s, (t, k) in zip(alone, made, strict=True)]
        expected = [sample(s, k) for s, k in zip(alone, keys, strict=True)]
        alone = [
            reprioritise(s, b, jnp.abs(b.transitions.reward))
            for s, b in zip(alone, expected, strict=True)
        ]
    for lane in range(2):
        assert_same(
            jax.tree.map(lambda x, n=lane: x[n], (lanes, batches)), (alone[lane], expected[lane])
        )
        assert_holds(replay, alone[lane], models[lane])
