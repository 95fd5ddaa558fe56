"""Playing: the agent's own actions in the run's own world, and where environments have been."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import winkel
from experiments.play_worlds import (
    LENGTH,
    OPTIONS,
    PLAIN,
    ROOM,
    SIDE,
    STACK,
    TINY,
    Room,
    made_run,
    room_task,
)
from winkel.envs.host import HostEnv
from winkel.envs.registry import Packing, make
from winkel.errors import InputError
from winkel.experiments import looks, visits
from winkel.experiments.play import CUT, ENDED, RUNNING, clock_of, load_one, play, seen_after
from winkel.experiments.visits import MOST_CELLS, TENTHS, Visits, map_arrays
from winkel.experiments.worlds import Compiled, Simulated, world_of
from winkel.runs.planned import Planned
from winkel.runs.recording import Recorder
from winkel.simulators import Pool
from winkel.simulators.vizdoom import DoomMaker
from winkel.training.steps import Horizon, start_clock
from winkel.types import Dense, Image, OneHot

pytestmark = pytest.mark.usefixtures("small_torso")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def room(root):
    return load_one(made_run(root, ROOM, seed=3))


@pytest.fixture(scope="module")
def sea(root):
    return load_one(made_run(root, "deep_sea:size=5"))


def played(trained, task, *, world_seed=0, **how):
    with world_of(task, world_seed) as world:
        return play(trained, task, world, **how)


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
    trained, _ = room
    found = played(trained, room_task(), world_seed=5, episodes=3)
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
    assert "actions" not in played(room[0], task)

    class Named:
        action_names = ("east", "north")

        def __call__(self):
            return task.maker()

    named = dataclasses.replace(task, maker=Named())
    assert played(room[0], named)["actions"].tolist() == ["east", "north"]
    doom = dataclasses.replace(task, maker=DoomMaker("dense"))
    assert doom.action_names == ("turn left", "turn right", "forward", "left", "right")


def test_returns_are_sums_of_the_rewards_so_far(room):
    found = played(room[0], room_task(), episodes=2)
    for episode in (1, 2):
        own = found["episode"] == episode
        paid = np.cumsum(found["action"][own] == 0)
        np.testing.assert_array_equal(found["return"][own][1:], paid[:-1])
        assert found["return"][own][0] == 0
        assert found["state"][own].tolist() == [RUNNING] * LENGTH + [ENDED]
        assert np.isnan(found["value"][own][-1]).all()
        assert np.isfinite(found["value"][own][:-1]).all()


def test_every_third_moment_is_shown_and_the_last(room):
    found = played(room[0], room_task("experiments.play_worlds:make:length=7"), every=3, episodes=2)
    assert found["step"][found["shown"]].tolist() == [0, 3, 6, 7] * 2
    assert len(found["pictures"]) == 8
    assert found["pictures"][1].min() == 30  # the time is in the picture
    assert len(found["value"]) == 16


def test_a_long_episode_is_cut_and_the_next_begins_anew(room):
    found = played(room[0], room_task(), most_steps=2, episodes=2)
    assert found["step"].tolist() == [0, 1, 2] * 2
    assert found["state"].tolist() == [RUNNING, RUNNING, CUT] * 2
    assert found["pictures"][3].min() == 0  # time 0


def test_the_seed_decides_the_episodes(room):
    one, same, other = (
        played(room[0], room_task(), world_seed=seed, episodes=3)["pictures"] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_deep_sea_is_played_in_python(sea):
    trained, _ = sea
    task = make("deep_sea:size=5")
    found = played(trained, task, episodes=2)
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
    assert found["cells"]


def test_exploring_goes_by_the_clock_that_the_run_ended_with(root):
    """ε falls from 1 to 0 over the whole run: at its end there is none, before it everything."""
    fields = {"epsilon": 1.0, "epsilon_final": 0.0, "epsilon_decay": 1.0}
    trained, folder = load_one(made_run(root, PLAIN, "qr_dqn", **fields))
    clock = clock_of(folder)
    assert (int(clock.env_steps), float(clock.progress)) == (100, 1.0)
    task = room_task(PLAIN)
    greedy, end, start = (
        played(trained, task, clock=clock, episodes=4)["action"]
        for clock in (None, clock, start_clock())
    )
    np.testing.assert_array_equal(greedy, end)
    assert not np.array_equal(greedy, start)
    assert np.bincount(start[start >= 0], minlength=2).min() >= 4  # of 24, both are frequent
    other = played(trained, task, clock=start_clock(), episodes=4, seed=1)["action"]
    assert not np.array_equal(other, start)


def test_an_agent_that_changes_its_mind_by_episode_is_told_when_they_begin(root, monkeypatch):
    trained, _ = load_one(made_run(root, PLAIN, "qr_dqn", seed=1))
    firsts = []
    original = type(trained.agent).act

    def act(self, learner, actor, obs, first, clock, hyper, key):
        firsts.append(bool(first))
        return original(self, learner, actor, obs, first, clock, hyper, key)

    monkeypatch.setattr(type(trained.agent), "act", act)
    monkeypatch.setattr("winkel.experiments.play._act", _act_at_once)
    played(trained, room_task(PLAIN), clock=start_clock(), episodes=2)
    assert firsts == [True, *[False] * (LENGTH - 1)] * 2


def _act_at_once(agent, learner, actor, obs, first, clock, hyper, key, available):
    decision, actor = agent.act(learner, actor, obs, first, clock, hyper, key)
    return decision.action, actor


def test_actions_that_a_packed_setting_lacks_are_not_played(root):
    trained, _ = load_one(made_run(root, PLAIN, "qr_dqn", seed=2, epsilon=1.0, epsilon_final=1.0))
    assert set(played(trained, room_task(PLAIN), clock=start_clock())["action"]) == {-1, 0, 1}
    packing = Packing(pack="rooms", inputs=2, actions=1, facts=())
    trained = dataclasses.replace(trained, packing=packing)
    for clock in (None, start_clock()):
        found = played(trained, room_task(PLAIN), clock=clock)
        assert set(found["action"]) == {-1, 0}
        assert found["value"].shape == (LENGTH + 1, 1)
        assert found["numbers"].shape == (LENGTH + 1, 2)


def test_the_greedy_observation_after_some_steps(room):
    trained, _ = room
    expected = [stack for stack, _, _ in by_hand(trained, 0, 1)]
    for steps in (0, 1, LENGTH - 1):
        with world_of(room_task()) as world:
            np.testing.assert_array_equal(seen_after(trained, world, steps), expected[steps])
    with world_of(room_task()) as world, pytest.raises(InputError, match="fewer than 6 steps"):
        seen_after(trained, world, LENGTH)


def test_a_run_is_found_by_its_seed(room, root):
    _, folder = room
    again = made_run(root / "many", PLAIN, seed=1), made_run(root / "many", PLAIN, seed=4)
    for path in (root / "many", again[0].parent):
        assert load_one(path)[1] == again[0]
        trained, found = load_one(path, 4)
        assert (found, trained.config["seed"]) == (again[1], 4)
        with pytest.raises(InputError, match=r"need a seed from \[1, 4\], got 2"):
            load_one(path, 2)
    assert load_one(folder, 3)[1] == folder


@pytest.mark.parametrize("name", ["episodes", "every", "most_steps"])
def test_nothing_is_played_zero_times(room, name):
    with pytest.raises(InputError, match=f"{name}.* >= 1.*got 0"):
        played(room[0], room_task(), **{name: 0})


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_have_32_bits(seed):
    with pytest.raises(InputError, match=f"got {seed}"), world_of(make("catch/0"), seed):
        pass


def test_a_simulator_that_dies_is_told():
    class Dying(Pool):
        def step(self, actions):
            return super().step(actions)._replace(lost=np.array([True]))

    world = Simulated(Dying(room_task(PLAIN).maker, [0], 0), Dense((3,)))
    world.reset()
    with pytest.raises(InputError, match="died"):
        world.step(0)


def test_a_simulator_that_has_changed_is_refused():
    changed = dataclasses.replace(room_task(), env=HostEnv(Image((SIDE, 9), STACK), 2))
    told = pytest.raises(InputError, match=r"\[12, 9\] and 2 actions, got \[12, 12\] and 2")
    with told, world_of(changed):
        pass


def test_worlds_of_jax_begin_differently_each_time():
    """umbrella's weather is drawn, in every episode anew, and the same with the same seed."""
    task = make("umbrella_length/0")

    def course(seed):
        world = Compiled(task, seed)
        return [world.reset().tolist() for _ in range(8)]

    assert course(0) == course(0)
    assert course(0) != course(1)
    assert len({str(obs) for obs in course(0)}) > 1


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
def test_anything_can_be_looked_at(observation, obs, name, shape):
    look = looks.Look(observation)
    look.add(obs)
    look.add(obs)
    arrays = look.arrays()
    assert arrays[name].shape == (2, *shape)
    assert ("cells" in arrays) == (name == "pictures" and not isinstance(observation, Image))
    assert looks.newest(observation, obs).ndim == 2


def test_what_pads_observations_is_not_shown():
    sea = looks.Look(OneHot((6, 6)), side=4)
    sea.add(np.array(13))  # row 2, column 1
    assert np.argwhere(sea.arrays()["pictures"][0] == 0).tolist() == [[2, 1]]
    assert sea.arrays()["pictures"].shape == (1, 4, 4)
    padded = looks.Look(Dense((30,)), inputs=4)
    padded.add(np.arange(30, dtype=np.float32))
    assert padded.arrays()["numbers"].tolist() == [[0, 1, 2, 3]]


finite = st.floats(-1e6, 1e6, allow_subnormal=False, width=32)
moves = st.lists(st.tuples(finite, finite), min_size=1, max_size=8).map(np.array)


@given(st.lists(moves, min_size=1, max_size=20), st.integers(0, 20))
def test_visits_are_a_histogram_of_the_places_in_cells_that_grow(places, broken_at):
    """Whatever comes in whatever order; a run that goes on counts as one that was never broken."""
    count = Visits(end=Horizon(steps=len(places)))
    for before, there in enumerate(places):
        if before == broken_at and before:
            count = Visits.of(count.arrays(), count.end)
        count.add(there, before, 0)
    arrays = count.arrays()
    cell, (left, right, bottom, top) = float(arrays["cell"]), arrays["extent"]
    assert cell == 2.0 ** np.log2(cell).round()
    assert max(arrays["visits"].shape[1:]) <= MOST_CELLS
    assert (right - left, top - bottom) == tuple(np.array(arrays["visits"].shape[:0:-1]) * cell)
    expected = np.zeros_like(arrays["visits"])
    for before, there in enumerate(places):
        for x, y in there:
            assert left <= x < right
            assert bottom <= y < top
            tenth = int(TENTHS * before / len(places))
            expected[tenth, int(y // cell - bottom / cell), int(x // cell - left / cell)] += 1
    np.testing.assert_array_equal(arrays["visits"], expected)


def test_cells_are_no_larger_than_they_must_be(rng):
    count = Visits(end=Horizon(steps=1000))
    for before in range(1000):
        count.add(rng.uniform(0, 10 + 0.3 * before, (2, 2)), before, 0)
    rows, columns = count.arrays()["visits"].shape[1:]
    assert max(rows, columns) > MOST_CELLS / 2


def test_what_comes_after_the_end_and_what_is_no_number_does_not_count():
    count = Visits(end=Horizon(steps=4, episodes=3))
    for before in range(8):
        count.add(np.array([[1.0, 2.0], [np.nan, 2.0]]), before, 0)
    assert count.arrays()["visits"].sum() == 4
    count = Visits(end=Horizon(episodes=2))
    for before in range(8):
        count.add(np.array([[1.0, 2.0]]), before, 1)
    assert count.arrays()["visits"].sum(axis=(1, 2)).tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_a_run_that_was_interrupted_leaves_all_its_places(tmp_path):
    """100 steps in two rooms, interrupted after 40 or so, resumed; then the same at one go."""
    settings = {"steps": 100, "num_envs": 2, "workers": 0, "options": OPTIONS, "seeds": [0, 1]}
    settings |= {"epsilon": 1.0, "epsilon_final": 1.0}
    fields = {**TINY, "burn_in": 1000, "z_min": 0.0, "z_max": 6.0}

    def interrupt(statuses):
        if statuses[0].env_steps >= 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        winkel.train(PLAIN, "c51", out=tmp_path, progress=interrupt, **settings, **fields)
    folder = next(tmp_path.glob("*/*/*/seed-1"))
    part = np.load(folder / visits.VISITS)["visits"]
    assert part.sum(axis=(1, 2)).tolist() == [10, 10, 10, 10, 0, 0, 0, 0, 0, 0]
    winkel.train(PLAIN, "c51", out=tmp_path, resume=True, **settings, **fields)
    for seed in (0, 1):
        arrays = np.load(tmp_path / f"{folder.relative_to(tmp_path).parent}/seed-{seed}/visits.npz")
        assert arrays["visits"].sum(axis=(1, 2)).tolist() == [10] * TENTHS
        left, right, bottom, top = arrays["extent"]
        # Places are 10 apart along x from -50, and 20 along y from 0; rooms start within 4 × 4.
        assert -50 <= left + arrays["cell"] <= -30 + arrays["cell"]
        assert right <= 61
        assert bottom == 0
        assert top <= 221
    ours = np.load(folder / visits.VISITS)["visits"]
    others = np.load(folder.with_name("seed-0") / visits.VISITS)["visits"]
    assert ours.shape != others.shape or not np.array_equal(ours, others)


def test_runs_without_a_place_or_a_folder_are_not_watched(tmp_path):
    def planned(task, folder):
        return Planned(task, None, Horizon(steps=1), None, Recorder(config={}, folder=folder))

    nowhere = dataclasses.replace(room_task(), probes=("x", "angle"))
    for run in (
        planned(nowhere, tmp_path),
        planned(room_task(), None),
        planned(make("catch/0"), tmp_path),
    ):
        with visits.watching([run], print) as watch:
            assert watch is None


def visits_of(folder):
    count = Visits(end=Horizon(steps=100), cell=16.0)
    for before in range(0, 60, 10):
        count.add(np.array([[240.0, -176.0], [300.0, -150.0]]), before, 0)
    folder.mkdir(exist_ok=True)
    np.savez(folder / visits.VISITS, **count.arrays())


CONFIG = {
    "horizon": {"steps": 2_000_000, "episodes": None}, "until": None, "status": "finished"
}  # fmt: skip


def test_a_map_of_vizdoom_has_walls_starts_and_the_goal(tmp_path, monkeypatch):
    assert map_arrays(tmp_path, CONFIG, DoomMaker("dense")) is None
    visits_of(tmp_path)
    for variant, starts in (("dense", 17), ("sparse", 1), ("very-sparse", 1)):
        name, arrays = map_arrays(tmp_path, CONFIG, DoomMaker(variant))
        assert name == "map"
        assert arrays["starts"].shape == (starts, 2)
        assert arrays["segments"].shape[1:] == (2, 2)
    assert arrays["titles"].tolist() == ["0–400 k steps", "400–800 k steps", "800–1200 k steps"]
    assert arrays["visits"].sum(axis=(1, 2)).tolist() == [4, 4, 4]

    def missing(maker):
        raise InputError("need vizdoom")

    monkeypatch.setattr(DoomMaker, "floor_plan", missing)
    assert map_arrays(tmp_path, CONFIG, DoomMaker("dense"))[0] == "places"


def test_panels_are_named_by_steps_or_by_shares(tmp_path):
    visits_of(tmp_path)
    for horizon, until, first in (
        ({"steps": 100, "episodes": None}, None, "0–20 steps"),
        ({"steps": 10_000_000, "episodes": None}, None, "0–2 M steps"),
        ({"steps": None, "episodes": 50}, None, "0–20 % of training"),
        ({"steps": 10_000_000, "episodes": None}, 5, "0–20 % of training"),
    ):
        config = {"horizon": horizon, "until": until, "status": "finished"}
        _, arrays = map_arrays(tmp_path, config, None)
        assert arrays["titles"][0] == first


@pytest.mark.parametrize("status", [{}, {"status": "failed"}])
def test_the_last_panel_of_a_run_that_did_not_end_has_a_beginning_only(tmp_path, status):
    visits_of(tmp_path)  # three panels
    config = {"horizon": {"steps": 25, "episodes": None}, "until": None, **status}
    _, arrays = map_arrays(tmp_path, config, None)
    assert arrays["titles"].tolist() == ["0–5 steps", "5–10 steps", "from 10 steps on"]
    config["until"] = 5
    _, arrays = map_arrays(tmp_path, config, None)
    assert arrays["titles"][-1] == "from 40 % of training on"


def test_damaged_visits_are_told_and_begun_anew(tmp_path):
    folder = made_run(tmp_path, PLAIN)
    (folder / visits.VISITS).write_bytes(b"PK")
    told = []
    found = visits._begun(folder, Horizon(steps=1), 0.0, told.append)
    assert found.counts.sum() == 0
    assert "visits.npz" in told[0]
