"""dm_env's environments: the same course, every spec, their own discounts."""

import numpy as np
import pytest
from dm_env import specs

from simulators.dm_worlds import LAST, MID, Tells
from winkel.errors import InputError
from winkel.simulators.adapters import DmSimulator
from winkel.simulators.base import Layout
from winkel.simulators.names import make_bsuite, parse
from winkel.simulators.pool import Pool

bsuite = pytest.importorskip("bsuite.bsuite")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("catch/0", {"seed": 5}), ("bandit/3", {}), ("memory_len/2", {"seed": 5})],
)
def test_the_course_of_bsuite_is_deepminds(name, settings, rng):
    env = bsuite.load(name.partition("/")[0], dict(bsuite.sweep.SETTINGS[name]) | settings)
    with Pool(parse(f"dm:bsuite/{name}")[1], [5], 0) as pool:
        actions = rng.integers(pool.num_actions, size=30)
        np.testing.assert_array_equal(pool.reset()[0], env.reset().observation)
        for action in actions:
            moves, step = pool.step(np.array([action])), env.step(action)
            np.testing.assert_array_equal(moves.next_obs[0], step.observation)
            assert moves.reward[0] == np.float32(step.reward)
            assert moves.discount[0] == step.discount
            assert moves.boundary[0] == step.last()
            if step.last():
                step = env.reset()
            np.testing.assert_array_equal(moves.obs[0], step.observation)


def throws(target, seeds, num_workers=0):
    with Pool(parse(f"simulators.dm_worlds:{target}")[1], seeds, num_workers) as pool:
        zeros = np.zeros(len(seeds), int)
        return np.stack([pool.reset(), *(pool.step(zeros).obs for _ in range(20))])


def test_a_factory_with_a_seed_gets_ours():
    same = throws("Dice", [1, 2, 1])
    np.testing.assert_array_equal(throws("Dice", [1, 2, 1], num_workers=2), same)
    np.testing.assert_array_equal(same[:, 0], same[:, 2])
    assert (same[:, 0] != same[:, 1]).any()


def test_a_factory_without_a_seed_is_left_as_it_is():
    same = throws("seedless", [1, 2])
    np.testing.assert_array_equal(same[:, 0], same[:, 1])
    fixed = parse("simulators.dm_worlds:Dice:seed=4")[1]
    with Pool(fixed, [1, 2], 0) as pool:
        np.testing.assert_array_equal(pool.reset(), same[0])


def test_rewards_discounts_and_ends_are_passed_on():
    told = [(MID, None, 1.0), (MID, 2, 0.25), (LAST, 1.0, 1.0), (LAST, 3.0, 0.0), (LAST, 1.0, 0.5)]
    sim = DmSimulator(Tells(specs.Array((1,), float), np.zeros(1), told))
    sim.reset(0)
    moved = [sim.step(0) for _ in told]
    assert [m.reward for m in moved] == [0, 2, 1, 3, 1]
    assert [m.discount for m in moved] == [1, 0.25, 1, 0, 0.5]
    assert [m.boundary for m in moved] == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("spec", "shown", "layout", "expected"),
    [
        (specs.Array((2, 2), float), np.eye(2), Layout((2, 2), "float32"), np.eye(2)),
        (specs.Array((), int), 3, Layout((1,), "float32"), [3]),
        (specs.DiscreteArray(3), 2, Layout((3,), "float32"), [0, 0, 1]),
        (
            {"b": specs.Array((2,), float), "a": [specs.DiscreteArray(2), specs.Array((), bool)]},
            {"b": np.array([5.0, 6.0]), "a": [1, True]},
            Layout((5,), "float32"),
            [0, 1, 1, 5, 6],
        ),
        (
            specs.BoundedArray((9, 8), np.uint8, 0, 255),
            np.full((9, 8), 200, np.uint8),
            Layout((9, 8), "uint8", 4),
            np.full((9, 8), 200),
        ),
    ],
)
def test_observations_of_every_spec(spec, shown, layout, expected):
    with Pool(lambda: DmSimulator(Tells(spec, shown)), [0], 0) as pool:
        assert pool.layout == layout
        np.testing.assert_array_equal(pool.reset()[0], expected)


def test_actions_may_be_a_bounded_number():
    told = [(MID, 0.0, 1.0)] * 3
    env = Tells(specs.Array((1,), float), np.zeros(1), told, specs.BoundedArray((), int, -1, 1))
    sim = DmSimulator(env)
    sim.reset(None)
    for action in range(sim.num_actions):
        sim.step(action)
    assert env.taken == [-1, 0, 1]


@pytest.mark.parametrize(
    "actions",
    [
        specs.BoundedArray((), float, -1, 1),
        specs.BoundedArray((2,), int, 0, 1),
        specs.Array((), int),
    ],
)
def test_other_actions_are_refused(actions):
    with pytest.raises(InputError, match="need discrete actions, a dm_env"):
        DmSimulator(Tells(specs.Array((1,), float), None, (), actions))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (specs.StringArray(()), "need observations that are arrays of numbers, got StringArray"),
        ({"a": 3}, "need observations that are arrays of numbers, got 3"),
        ({}, "need observations with at least one array, got {}"),
    ],
)
def test_other_observations_are_refused(spec, message):
    with pytest.raises(InputError, match=message):
        DmSimulator(Tells(spec, None))


def test_unknown_ids_and_a_missing_bsuite(monkeypatch):
    with pytest.raises(
        InputError, match="unknown environment 'dm:bsuite/cach/0'; did you mean catch"
    ):
        make_bsuite("cach/0")
    monkeypatch.setitem(__import__("sys").modules, "bsuite", None)
    with pytest.raises(InputError, match="dm:bsuite/catch/0 needs DeepMind's: pip install bsuite"):
        make_bsuite("catch/0")
