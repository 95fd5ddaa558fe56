"""Gymnasium's environments: the same course, every space, its ends kept apart."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete

from simulators.gym_worlds import Shows
from winkel.errors import InputError
from winkel.simulators.adapters import GymSimulator
from winkel.simulators.base import Layout
from winkel.simulators.names import parse
from winkel.simulators.pool import Pool

PICTURE = np.arange(10 * 9 * 3, dtype=np.uint8).reshape(10, 9, 3)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_course_is_that_of_the_environment(num_workers, rng):
    seeds = [3, 4]
    actions = rng.integers(2, size=(120, 2))
    with Pool(parse("gym:CartPole-v1:max_episode_steps=20")[1], seeds, num_workers) as pool:
        first = pool.reset()
        moves = [pool.step(row) for row in actions]
    ends = set()
    for i, seed in enumerate(seeds):
        env = gymnasium.make("CartPole-v1", max_episode_steps=20)
        np.testing.assert_array_equal(first[i], env.reset(seed=seed)[0])
        for row, move in zip(actions, moves, strict=True):
            obs, reward, terminated, truncated, _ = env.step(row[i])
            ends |= {(terminated, truncated)}
            np.testing.assert_array_equal(move.next_obs[i], obs)
            assert move.reward[i] == reward
            assert move.discount[i] == (0.0 if terminated else 1.0)
            assert move.boundary[i] == (terminated or truncated)
            np.testing.assert_array_equal(move.obs[i], env.reset()[0] if move.boundary[i] else obs)
    assert {(True, False), (False, True)} <= ends


def test_seeds_decide_the_course_and_differ():
    def course(seeds):
        with Pool(parse("gym:simulators.gym_worlds:Dice-v0")[1], seeds, 0) as pool:
            return np.stack([pool.reset(), *(pool.step(np.zeros(3, int)).obs for _ in range(20))])

    same = course([1, 2, 1])
    np.testing.assert_array_equal(course([1, 2, 1]), same)
    np.testing.assert_array_equal(same[:, 0], same[:, 2])
    assert (same[:, 0] != same[:, 1]).any()
    assert (course([5, 2, 1])[:, 0] != same[:, 0]).any()


@pytest.mark.parametrize("end", [(True, False), (False, True), (True, True)])
def test_termination_and_truncation(end):
    sim = GymSimulator(Shows(Discrete(3), [0, 1, 2], ends=[(False, False), end]))
    sim.reset(0)
    assert sim.step(0)[1:4] == (0.5, 1.0, False)
    moved = sim.step(1)
    assert (moved.discount, moved.boundary) == (0.0 if end[0] else 1.0, True)
    np.testing.assert_array_equal(moved.obs, [0, 0, 1])


def test_actions_may_start_anywhere():
    env = Shows(Discrete(3), [0], actions=Discrete(4, start=-2))
    sim = GymSimulator(env)
    sim.reset(None)
    for action in range(sim.num_actions):
        sim.step(action)
    assert env.taken == [-2, -1, 0, 1]


def numbers(*values):
    return Layout((len(values),), "float32"), np.array(values, np.float32)


SPACES = {
    "box": (Box(-1, 1, (2,)), np.array([0.5, -1.0]), numbers(0.5, -1.0)),
    "grid": (Box(0, 9, (2, 3), int), np.arange(6).reshape(2, 3), None),
    "number": (Box(-1, 1, ()), 0.25, numbers(0.25)),
    "small bytes": (Box(0, 255, (7, 7), np.uint8), np.full((7, 7), 255, np.uint8), None),
    "choice": (Discrete(4, start=2), 3, numbers(0, 1, 0, 0)),
    "bits": (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), numbers(1, 0, 1)),
    "choices": (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), numbers(0, 1, 0, 0, 1)),
    "pair": (spaces.Tuple([Discrete(2), Box(0, 5, (2,))]), (1, [3, 4]), numbers(0, 1, 3, 4)),
    "dict": (
        spaces.Dict(a=spaces.Dict(x=Box(0, 9, (1, 2))), b=Discrete(2)),
        {"a": {"x": [[7, 8]]}, "b": 0},
        numbers(7, 8, 1, 0),
    ),
    "gray": (Box(0, 255, (10, 9), np.uint8), PICTURE[..., 0], (Layout((10, 9), "uint8", 4), None)),
    "colour": (Box(0, 255, (10, 9, 3), np.uint8), PICTURE, (Layout((10, 9, 3), "uint8", 4), None)),
    "channels first": (
        Box(0, 255, (3, 10, 9), np.uint8),
        PICTURE.transpose(2, 0, 1),
        (Layout((10, 9, 3), "uint8", 4), PICTURE),
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_observations_of_every_space(name):
    space, shown, expected = SPACES[name]
    layout, array = expected or (Layout(np.shape(shown), "float32"), np.float32(shown))
    with Pool(lambda: GymSimulator(Shows(space, [shown])), [0], 0) as pool:
        assert pool.layout == layout
        seen = pool.reset()[0]
    assert seen.dtype == layout.dtype
    np.testing.assert_array_equal(seen, shown if array is None else array)


def test_how_many_frames_are_stacked_is_a_choice():
    sim = GymSimulator(Shows(Box(0, 255, (8, 8), np.uint8), [PICTURE[:8, :8, 0]]), stack=2)
    assert sim.layout == Layout((8, 8), "uint8", 2)


@pytest.mark.parametrize(
    "actions",
    [Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2)],
)
def test_other_actions_are_refused(actions):
    with pytest.raises(InputError) as caught:
        GymSimulator(Shows(Discrete(2), [0], actions=actions))
    assert str(caught.value) == (f"need discrete actions, gymnasium.spaces.Discrete, got {actions}")


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (spaces.Text(5), "got Text(1, 5, "),
        (spaces.Sequence(Discrete(2)), "got Sequence(Discrete(2)"),
        (spaces.Graph(Box(0, 1, (1,)), None), "got Graph("),
        (spaces.Dict(image=Box(0, 1, (2,)), mission=spaces.Text(3)), "got Dict('image': Box("),
        (spaces.Tuple([spaces.Tuple([spaces.Text(3)])]), "got Tuple(Tuple(Text("),
    ],
)
def test_other_observations_are_refused(space, named):
    with pytest.raises(InputError) as caught:
        GymSimulator(Shows(space, [None]))
    assert str(caught.value).startswith("need observations in Box, Discrete, MultiBinary")
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym:CartPol-v1", "unknown environment 'gym:CartPol-v1'; did you mean CartPole"),
        ("gym:CartPole-v7", "unknown environment 'gym:CartPole-v7'; did you mean CartPole"),
        ("gym:no/Such-v0", "if a module of yours registers it, need gym:module:id"),
        ("gym:no_module:X-v0", "making gym:no_module:X-v0 raised ModuleNotFoundError"),
        ("gym:Cart Pole", "making gym:Cart Pole raised Error: Malformed environment ID"),
        ("gym:Pendulum-v1", "need discrete actions, gymnasium.spaces.Discrete, got Box"),
        ("gym:CartPole-v1:size=3", "raised TypeError: .*argument 'size'"),
        ("simulators.gym_worlds:vector", "need one environment, .* vector of 3"),
        ("simulators.gym_worlds:nothing", "need a gymnasium.Env, .* returned ndarray"),
    ],
)
def test_what_cannot_be_made(name, message):
    with pytest.raises(InputError, match=message) as caught:
        Pool(parse(name)[1], [0], 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("old_style", "in step 1 of episode 1: need step to return .* got 4 values"),
        ("plain_reset", r"in its reset: need reset to return \(observation, info\)"),
        ("wrong_throw", "in its reset raised ValueError: observation 7 is not one of 1 … 6"),
    ],
)
def test_what_is_no_environment_of_gymnasium(target, message):
    def play():
        with Pool(parse(f"simulators.gym_worlds:{target}")[1], [0], 0) as pool:
            pool.reset()
            pool.step(np.array([0]))

    with pytest.raises(InputError, match=f"environment 0 {message}"):
        play()


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gymnasium", None)
    with pytest.raises(InputError, match=r"is missing: pip install 'winkel\[gym\]'"):
        Pool(parse("gym:CartPole-v1")[1], [0], 0)
