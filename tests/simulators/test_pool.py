"""The pool steps copies of an environment as a plain loop would, with any number of workers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.worlds import Frames, Slow, TwoKinds, Walk, lenient
from winkel.errors import InputError
from winkel.simulators.names import parse
from winkel.simulators.pool import Pool

SEEDS = [5, 0, 7, 5, 2**31]


def rolled(maker, seeds, actions):
    """What a plain loop sees: first observations, and per step all fields of `StepBatch`."""
    simulators = [maker() for _ in seeds]
    first = np.stack([s.reset(seed) for s, seed in zip(simulators, seeds, strict=True)])
    steps = []
    for row in actions:
        moved = [s.step(int(a)) for s, a in zip(simulators, row, strict=True)]
        obs = [
            s.reset(None) if m.boundary else m.obs for s, m in zip(simulators, moved, strict=True)
        ]
        steps.append((moved, np.stack(obs)))
    return first, steps


def check(pool, maker, seeds, actions):
    first, steps = rolled(maker, seeds, actions)
    np.testing.assert_array_equal(pool.reset(), first)
    for row, (moved, obs) in zip(actions, steps, strict=True):
        pool.step_async(row)
        moves = pool.step_wait()
        assert moves.obs.dtype == first.dtype
        np.testing.assert_array_equal(moves.obs, obs)
        np.testing.assert_array_equal(moves.next_obs, [m.obs for m in moved])
        np.testing.assert_array_equal(moves.reward, np.float32([m.reward for m in moved]))
        np.testing.assert_array_equal(moves.discount, [m.discount for m in moved])
        np.testing.assert_array_equal(moves.boundary, [m.boundary for m in moved])
        np.testing.assert_array_equal(moves.probes, np.float32([m.probes for m in moved]))
        for i, name in enumerate(("steps", "ends")):
            np.testing.assert_array_equal(moves.facts[name], [m.facts[i] for m in moved])
        assert not moves.lost.any()


@pytest.mark.parametrize("maker", [Walk, Frames])
@pytest.mark.parametrize("num_workers", [0, 1, 2, 4])
def test_steps_are_those_of_a_plain_loop(maker, num_workers, rng):
    with Pool(maker, SEEDS, num_workers) as pool:
        assert len(pool) == 5
        assert len(pool.pids) == num_workers
        assert (pool.layout, pool.num_actions) == (maker.layout, 3)
        assert (pool.facts, pool.probes) == (("steps", "ends"), ("place",))
        check(pool, maker, SEEDS, rng.integers(3, size=(11, 5)))


@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6),
    st.integers(1, 5),
    st.data(),
)
@settings(max_examples=25)
def test_any_seeds_lengths_and_actions(seeds, length, data):
    one = st.lists(st.integers(0, 2), min_size=len(seeds), max_size=len(seeds))
    actions = np.array(data.draw(st.lists(one, min_size=1, max_size=12)))
    with Pool(lambda: Walk(length), seeds, 0) as pool:
        check(pool, lambda: Walk(length), seeds, actions)


def test_the_last_observation_of_an_episode_is_seen_before_the_first_of_the_next():
    with Pool(Walk, [3], 1) as pool:
        pool.reset()
        moves = [pool.step(np.array([1])) for _ in range(9)]
    times = [(m.next_obs[0, 1], m.obs[0, 1], m.obs[0, 2]) for m in moves]
    first, second = ([(t, t % 4, episode + (t == 4)) for t in (1, 2, 3, 4)] for episode in (0, 1))
    assert times == [*first, *second, (1, 1, 2)]
    assert [bool(m.boundary[0]) for m in moves] == [t in (3, 7) for t in range(9)]
    assert [m.discount[0] for m in moves] == [0.0 if t == 3 else 1.0 for t in range(9)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_environment_has_its_seed_and_gets_it_once(num_workers):
    with Pool(Walk, SEEDS, num_workers) as pool:
        first, again = pool.reset(), pool.reset()
    assert first[0, 3] == first[3, 3]  # the same seed
    assert len(set(first[:, 3])) == 4
    np.testing.assert_array_equal(again[:, 3], first[:, 3])  # no seed: nothing drawn anew
    np.testing.assert_array_equal(again[:, 2], first[:, 2] + 1)


def test_what_is_returned_is_not_overwritten():
    with Pool(Walk, [1, 2], 2) as pool:
        first = pool.reset()
        kept = first.copy()
        moves = pool.step(np.array([2, 2]))
        copies = [np.copy(x) for x in (moves.obs, moves.next_obs, moves.reward, moves.probes)]
        for _ in range(3):
            last = pool.step(np.array([0, 2]))
        assert last.boundary.all()
    np.testing.assert_array_equal(first, kept)
    for now, then in zip(
        (moves.obs, moves.next_obs, moves.reward, moves.probes), copies, strict=True
    ):
        np.testing.assert_array_equal(now, then)
    np.testing.assert_array_equal(moves.facts["ends"], 0)
    np.testing.assert_array_equal(moves.boundary, False)
    np.testing.assert_array_equal(moves.discount, 1)


def test_a_reset_may_come_in_the_middle_of_a_step():
    with Pool(Slow, [1, 2, 3], 2) as pool:
        pool.reset()
        pool.step_async(np.array([0, 1, 2]))
        np.testing.assert_array_equal(pool.reset()[:, 1:3], [[0, 1]] * 3)
        np.testing.assert_array_equal(pool.step(np.array([0, 1, 2])).obs[:, 1], 1)


def test_scalars_and_other_numbers_are_observations():
    with Pool(lenient, [1, 2], 0) as pool:
        assert pool.reset().dtype == np.float32
        for t in (1, 2, 3):
            moves = pool.step(np.array([1, 1]))
            np.testing.assert_array_equal(moves.next_obs, [[t], [t]])
            np.testing.assert_array_equal(moves.reward, np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": []}, "need at least one seed, got none"),
        ({"seeds": [-1]}, "need a seed >= 0, a whole number, got -1"),
        ({"seeds": [0.5]}, "need a seed >= 0, a whole number, got 0.5"),
        ({"num_workers": -1}, "need num_workers >= 0, a whole number, got -1"),
        ({"maker": TwoKinds(), "num_workers": 0}, "need environments of one kind, got 3 actions"),
    ],
)
def test_bad_arguments(arguments, message, without_shape_checks):
    TwoKinds.made = 0
    given = {"maker": Walk, "seeds": [1, 2], "num_workers": 0} | arguments
    with pytest.raises(InputError, match=message):
        Pool(**given)


def test_workers_that_make_different_kinds_are_found_out(tmp_path, monkeypatch):
    module = tmp_path / "odd_one.py"
    module.write_text(
        "import os\nfrom simulators.worlds import Frames, Walk\n"
        f"def make():\n    try:\n        os.mkdir({str(tmp_path / 'first')!r})\n"
        "    except FileExistsError:\n        return Frames()\n    return Walk()\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="need environments of one kind"):
        Pool(parse("odd_one:make")[1], [1, 2], 2)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0], r"need 2 whole numbers as actions, got int64 \(1,\)"),
        ([0.0, 1.0], "need 2 whole numbers as actions, got float64"),
        ([0, 3], r"need actions in 0 … 2, got \[0 3\]"),
        ([-1, 0], r"need actions in 0 … 2, got \[-1  0\]"),
    ],
)
def test_bad_actions(actions, message, without_shape_checks):
    with Pool(Walk, [1, 2], 0) as pool:
        pool.reset()
        with pytest.raises(InputError, match=message):
            pool.step_async(np.array(actions))


def test_calls_out_of_turn():
    pool = Pool(Walk, [1], 0)
    with pytest.raises(InputError, match="need reset before step_async"):
        pool.step_async(np.array([0]))
    pool.reset()
    with pytest.raises(InputError, match="need step_async before step_wait"):
        pool.step_wait()
    pool.step_async(np.array([0]))
    with pytest.raises(InputError, match="need step_wait before step_async"):
        pool.step_async(np.array([0]))
    pool.close()
    pool.close()
    with pytest.raises(InputError, match="need an open pool, this one is closed"):
        pool.reset()
