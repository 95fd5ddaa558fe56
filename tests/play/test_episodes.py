"""Playing: the agent's own actions in the run's own environment."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from play.made_runs import made_run, room_task
from play.rooms import LENGTH, PLAIN, ROOM, STACK, NamedRoom, Room
from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.play.episodes import (
    CUT,
    ENDED,
    RUNNING,
    load_one,
    newest_frame,
    observe_after,
    open_environment,
    play,
    to_arrays,
)
from winkel.simulators import Pool
from winkel.simulators.vizdoom import MyWayHome
from winkel.training.steps import start_clock
from winkel.types import Dense, Image, OneHot

pytestmark = pytest.mark.usefixtures("small_torso")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def room(root):
    return load_one(made_run(root, ROOM, seed=3), env=ROOM)


@pytest.fixture(scope="module")
def deep_sea(root):
    return load_one(made_run(root, "deep_sea:size=5"))


def played(run, task=None, *, world_seed=0, **how):
    """Episodes of a run in its own task or in another one."""
    if task is not None:
        run = dataclasses.replace(run, spec=dataclasses.replace(run.spec, task=task))
    with open_environment(run.task, world_seed) as env:
        return play(run, env, **how)


def by_hand(trained, seed, episodes):
    """Stacks of frames that a greedy agent acts on, its actions, and the last frame of each."""
    simulator = Room()
    for episode in range(episodes):
        frame = simulator.reset(seed if episode == 0 else None).copy()
        frames, moved = [frame] * STACK, None
        while moved is None or not moved.boundary:
            stack = np.stack(frames[-STACK:])
            action = trained.policy()(stack)
            yield stack, action, None
            moved = simulator.step(action)
            frames.append(moved.obs.copy())
        yield np.stack(frames[-STACK:]), -1, moved


def test_a_greedy_agent_sees_stacks_and_takes_the_best_action(room):
    trained = room
    found = played(trained, world_seed=5, episodes=3)
    expected = list(by_hand(trained, 5, 3))
    assert found["action"].tolist() == [action for _, action, _ in expected]
    for moment, (stack, action, _) in enumerate(expected):
        np.testing.assert_array_equal(found["pictures"][moment], stack[-1])
        if action >= 0:
            estimates = trained.estimates(stack)
            np.testing.assert_allclose(found["value"][moment], estimates.value, rtol=1e-6)
            np.testing.assert_allclose(found["bonus"][moment], estimates.bonus, rtol=1e-6)
    assert found["step"].tolist() == 3 * list(range(LENGTH + 1))
    assert found["episode"].tolist() == np.repeat([1, 2, 3], LENGTH + 1).tolist()
    assert found["shown"].tolist() == list(range(3 * (LENGTH + 1)))


def test_actions_are_named_where_the_maker_of_a_world_has_names(room):
    task = room_task()
    assert "actions" not in played(room, task)

    named = dataclasses.replace(task, maker=NamedRoom())
    assert played(room, named)["actions"].tolist() == ["east", "north"]
    doom = dataclasses.replace(task, maker=MyWayHome("dense"))
    assert doom.action_names == ("turn left", "turn right", "forward", "left", "right")


def test_returns_are_sums_of_the_rewards_so_far(room):
    found = played(room, episodes=2)
    for episode in (1, 2):
        own = found["episode"] == episode
        paid = np.cumsum(found["action"][own] == 0)
        np.testing.assert_array_equal(found["return"][own][1:], paid[:-1])
        assert found["return"][own][0] == 0
        assert found["state"][own].tolist() == [RUNNING] * LENGTH + [ENDED]
        assert np.isnan(found["value"][own][-1]).all()
        assert np.isfinite(found["value"][own][:-1]).all()


def test_every_third_moment_is_shown_and_the_last(room):
    found = played(room, room_task("play.rooms:make:length=7"), every=3, episodes=2)
    assert found["step"][found["shown"]].tolist() == [0, 3, 6, 7] * 2
    assert len(found["pictures"]) == 8
    assert found["pictures"][1].min() == 30  # the time is in the picture
    assert len(found["value"]) == 16


def test_a_long_episode_is_cut_and_the_next_begins_anew(room):
    found = played(room, max_steps=2, episodes=2)
    assert found["step"].tolist() == [0, 1, 2] * 2
    assert found["state"].tolist() == [RUNNING, RUNNING, CUT] * 2
    assert found["pictures"][3].min() == 0  # time 0


def test_the_seed_decides_the_episodes(room):
    one, same, other = (played(room, world_seed=seed, episodes=3)["pictures"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_deep_sea_is_played_in_python(deep_sea):
    trained = deep_sea
    task = make("deep_sea:size=5")
    found = played(trained, episodes=2)
    right, column, rewards = np.asarray(task.params.right), 0, []
    for step, action in enumerate(found["action"][:5]):
        assert np.argwhere(found["pictures"][step] == 0).tolist() == [[step, column]]
        assert action == np.argmax(trained.estimates(step * 5 + column).value)
        goes = action == right[step, column]
        rewards.append((goes and column == 4 and step == 4) - 0.01 / 5 * goes)
        column = min(column + 1, 4) if goes else max(column - 1, 0)
    assert found["return"][5] == pytest.approx(sum(rewards), abs=1e-6)
    assert (found["pictures"][5] == 255).all()
    assert found["step"].tolist() == [0, 1, 2, 3, 4, 5] * 2


def test_exploring_goes_by_the_clock_that_the_run_ended_with(root):
    """ε falls from 1 to 0 over the whole run: at its end there is none, before it everything."""
    fields = {"epsilon": 1.0, "epsilon_final": 0.0, "epsilon_decay": 1.0}
    trained = load_one(made_run(root, PLAIN, "qr_dqn", **fields), env=PLAIN)
    clock = trained.clock
    assert (int(clock.env_steps), float(clock.progress)) == (100, 1.0)
    greedy, end, start = (
        played(trained, clock=clock, episodes=4)["action"] for clock in (None, clock, start_clock())
    )
    np.testing.assert_array_equal(greedy, end)
    assert not np.array_equal(greedy, start)
    assert np.bincount(start[start >= 0], minlength=2).min() >= 4  # of 24, both are frequent
    other = played(trained, clock=start_clock(), episodes=4, seed=1)["action"]
    assert not np.array_equal(other, start)


def test_the_agent_is_told_when_episodes_begin(root, monkeypatch):
    trained = load_one(made_run(root, PLAIN, "qr_dqn", seed=1), env=PLAIN)
    firsts, original = [], type(trained.agent).act

    def act(self, learner, actor, obs, first, clock, hyper, key):
        firsts.append(bool(first))
        return original(self, learner, actor, obs, first, clock, hyper, key)

    monkeypatch.setattr(type(trained.agent), "act", act)
    with jax.disable_jit():
        played(trained, clock=start_clock(), episodes=2)
    assert firsts == [True, *[False] * (LENGTH - 1)] * 2


def test_actions_that_a_packed_setting_lacks_are_not_played(root):
    fields = {"epsilon": 1.0, "epsilon_final": 1.0}
    trained = load_one(made_run(root, PLAIN, "qr_dqn", seed=2, **fields), env=PLAIN)
    assert set(played(trained, clock=start_clock())["action"]) == {-1, 0, 1}
    packed = dataclasses.replace(room_task(PLAIN), pack="rooms", inputs=2, available=1)
    for clock in (None, start_clock()):
        found = played(trained, packed, clock=clock)
        assert set(found["action"]) == {-1, 0}
        assert found["value"].shape == (LENGTH + 1, 1)
        assert found["numbers"].shape == (LENGTH + 1, 2)


def test_the_greedy_observation_after_some_steps(room):
    trained = room
    expected = [stack for stack, _, _ in by_hand(trained, 0, 1)]
    for steps in (0, 1, LENGTH - 1):
        with open_environment(room_task()) as env:
            np.testing.assert_array_equal(observe_after(trained, env, steps), expected[steps])
    with (
        open_environment(room_task()) as env,
        pytest.raises(InputError, match="fewer than 6 steps"),
    ):
        observe_after(trained, env, LENGTH)


def test_a_run_is_found_by_its_seed(root):
    folders = [made_run(root / "many", PLAIN, seed=seed) for seed in (1, 4)]
    for path in (root / "many", folders[0].parent):
        assert load_one(path).folder == folders[0]
        assert load_one(path, 4).folder == folders[1]
        with pytest.raises(InputError, match=r"need a seed from \[1, 4\], got 2"):
            load_one(path, 2)
    assert load_one(folders[1], 4).folder == folders[1]


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_have_32_bits(seed):
    with pytest.raises(InputError, match=f"got {seed}"), open_environment(make("catch/0"), seed):
        pass


def test_a_simulator_that_dies_is_told(monkeypatch):
    steps = Pool.step
    lost = np.array([True])
    monkeypatch.setattr(
        Pool, "step", lambda pool, actions: steps(pool, actions)._replace(lost=lost)
    )
    with open_environment(room_task(PLAIN)) as (reset, step):
        reset()
        with pytest.raises(InputError, match="died"):
            step(0)


def test_worlds_of_jax_begin_differently_each_time():
    """umbrella's weather is drawn, in every episode anew, and the same with the same seed."""
    task = make("umbrella_length/0")

    def course(seed):
        with open_environment(task, seed) as (reset, _step):
            return [reset().tolist() for _ in range(8)]

    assert course(0) == course(0)
    assert course(0) != course(1)
    assert len({str(obs) for obs in course(0)}) > 1


def task_of(observation, **fields):
    """A task of which only what is shown matters."""
    known = {"env": SimpleNamespace(observation=observation), "pack": None, "setting": {}}
    return SimpleNamespace(**known | fields)


@pytest.mark.parametrize(
    ("observation", "obs", "name", "shape"),
    [
        (Image((4, 5), 2), np.zeros((2, 4, 5), np.uint8), "pictures", (4, 5)),
        (Image((4, 5, 3), 2), np.zeros((2, 4, 5, 3), np.uint8), "pictures", (4, 5, 3)),
        (Image((4, 5, 1), 2), np.zeros((2, 4, 5, 1), np.uint8), "pictures", (4, 5)),
        (Dense((1, 6)), np.zeros((1, 6), np.float32), "numbers", (6,)),
        (Dense((28, 28)), np.eye(28, dtype=np.float32), "pictures", (28, 28)),
        (Dense((50,)), np.arange(50, dtype=np.float32), "pictures", (7, 8)),
        (OneHot((10,)), np.array(3), "pictures", (1, 10)),
        (OneHot((40,)), np.array(3), "pictures", (6, 7)),
    ],
)
def test_any_observation_can_be_shown(observation, obs, name, shape):
    arrays = to_arrays(task_of(observation), [newest_frame(observation, obs)] * 2)
    assert arrays[name].shape == (2, *shape)


def test_padding_is_not_shown():
    small = task_of(OneHot((6, 6)), setting={"size": 4})
    grid = to_arrays(small, [np.array(13)])["pictures"]  # row 2, column 1
    assert np.argwhere(grid[0] == 0).tolist() == [[2, 1]]
    assert grid.shape == (1, 4, 4)
    packed = task_of(Dense((30,)), pack="some", inputs=4)
    numbers = to_arrays(packed, [np.arange(30, dtype=np.float32)])["numbers"]
    assert numbers.tolist() == [[0, 1, 2, 3]]
