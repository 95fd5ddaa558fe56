"""MyWayHome is what is known of it: where episodes start, what they pay, when they end."""

from pathlib import Path

import numpy as np
import pytest

from winkel.errors import InputError
from winkel.simulators.vizdoom import EPISODE_LENGTH, STARTS, MyWayHome, downsample, read_floor_plan

TURN = 360 / 65536


@pytest.fixture
def make():
    made = []

    def one(*args, **kwargs):
        made.append(MyWayHome(*args, **kwargs))
        return made[-1]

    yield one
    for simulator in made:
        simulator.close()


def spawns(simulator, count):
    """x, y and the angle at the start of episodes."""
    found = []
    for episode in range(count):
        simulator.reset(0 if episode == 0 else None)
        found.append(simulator.position())
    return np.array(found)


def test_dense_starts_at_all_spots_in_all_directions(make):
    found = spawns(make("dense"), 1_000)
    spots = read_floor_plan("dense")["starts"]
    distances = np.abs(found[:, None, :2] - spots).max(axis=-1)  # [spawns, spots]
    assert (distances.min(axis=1) < 1e-3).all()
    counts = np.bincount(distances.argmin(axis=1), minlength=17)
    assert ((counts - 1_000 / 17) ** 2 / (1_000 / 17)).sum() < 39.3  # χ², 16 degrees, 0.1 %
    octants, _ = np.histogram(found[:, 2], bins=8, range=(0, 360))
    assert octants.sum() == 1_000
    assert ((octants - 125) ** 2 / 125).sum() < 24.3  # χ², 7 degrees, 0.1 %


@pytest.mark.parametrize(
    ("variant", "place", "low", "high"),
    [
        ("sparse", (240.0, -176.0), 0, 655),
        ("very-sparse", (543.986, -672.089), 32112, 33423),
    ],
)
def test_sparse_variants_start_in_one_place_looking_one_way(make, variant, place, low, high):
    found = spawns(make(variant), 1_000)
    np.testing.assert_allclose(found[:, :2], np.tile(place, (1_000, 1)), atol=1e-3)
    turns = found[:, 2] / TURN
    assert turns.min() >= low - 1e-3
    assert turns.max() <= high + 1e-3
    quarters, _ = np.histogram(turns, bins=4, range=(low - 0.5, high + 0.5))
    assert ((quarters - 250) ** 2 / 250).sum() < 16.3  # χ², 3 degrees, 0.1 %
    assert quarters.sum() == 1_000


@pytest.mark.parametrize("timeout", ["termination", "truncation"])
def test_the_vest_pays_one_step_before_the_episode_ends(make, walk, timeout):
    simulator = make("sparse", timeout=timeout)
    simulator.reset(1)
    moves = walk(simulator)
    assert 280 <= len(moves) <= 305  # of 2,100
    *before, reached, last = moves
    np.testing.assert_allclose([move.reward for move in before], -0.0001)
    assert all(move[2:5] == (1.0, False, (0.0,)) for move in before)
    assert reached.reward == pytest.approx(0.9999)
    assert reached[2:5] == (1.0, False, (1.0,))
    assert np.hypot(reached.probes[0] - 1040, reached.probes[1] + 352) < 40
    assert last.reward == pytest.approx(-0.0001)
    assert last[2:5] == (0.0, True, (0.0,))
    np.testing.assert_array_equal(last.obs, reached.obs)
    assert simulator.reset(None).shape == (42, 42)
    np.testing.assert_allclose(simulator.position()[:2], (240, -176))


def test_the_time_is_out_after_2100_steps_and_truncation_changes_the_end_alone(make):
    ends, truncates = make("dense"), make("dense", timeout="truncation")
    actions = np.random.default_rng(0).integers(2, size=EPISODE_LENGTH)  # turns only
    ends.reset(3)
    truncates.reset(3)
    for step, action in enumerate(actions.tolist(), start=1):
        ended, truncated = ends.step(action), truncates.step(action)
        assert ended.reward == truncated.reward == pytest.approx(-0.0001)
        assert ended.boundary == truncated.boundary == (step == 2_100)
        assert ended.probes == truncated.probes
        if step < 2_100:
            np.testing.assert_array_equal(ended.obs, truncated.obs)
            assert ended.discount == truncated.discount == 1.0
            last = ended.obs
    assert (ended.discount, truncated.discount) == (0.0, 1.0)
    np.testing.assert_array_equal(ended.obs, last)
    assert (truncated.obs != last).any()
    np.testing.assert_array_equal(ends.reset(None), truncates.reset(None))
    assert ends.step(0).probes == truncates.step(0).probes


def test_a_vest_found_with_the_last_step_is_no_truncation(make, walk, monkeypatch):
    simulator = make("sparse", timeout="truncation")
    simulator.reset(1)
    length = len(walk(simulator)) - 1
    monkeypatch.setattr("winkel.simulators.vizdoom.EPISODE_LENGTH", length)
    simulator.reset(1)
    *_, last = walk(simulator)
    assert last.reward == pytest.approx(0.9999)
    assert last[2:5] == (0.0, True, (1.0,))


def trajectory(simulator, seed, episodes=2, steps=60):
    actions = np.random.default_rng(7).integers(5, size=(episodes, steps))
    seen = []
    for episode in range(episodes):
        seen.append(simulator.reset(seed if episode == 0 else None).ravel())
        for action in actions[episode].tolist():
            moved = simulator.step(action)
            seen += [moved.obs.ravel(), moved.probes]
    return np.concatenate(seen)


@pytest.mark.parametrize("variant", STARTS)
def test_a_seed_decides_all_episodes(make, variant):
    simulator, other = make(variant), make(variant)
    first = trajectory(simulator, 5)
    np.testing.assert_array_equal(trajectory(other, 5), first)
    assert (trajectory(other, 6) != first).any()
    np.testing.assert_array_equal(trajectory(other, 5), first)
    assert (trajectory(other, None) != first).any()


def test_buttons_do_what_they_are_called(make):
    simulator = make("sparse")
    changes = []
    for action in range(5):
        simulator.reset(0)
        before = np.array(simulator.position())
        for _ in range(5):
            moved = simulator.step(action)
        change = np.array(moved.probes) - before
        changes.append((*change[:2], (change[2] + 180) % 360 - 180))
    left, right, forward, move_left, move_right = np.array(changes)
    assert left[2] > 5 > -5 > right[2]
    np.testing.assert_allclose([left[:2], right[:2]], 0.0)
    np.testing.assert_allclose([forward[2], move_left[2], move_right[2]], 0.0, atol=1e-9)
    assert forward[0] > 5 > abs(forward[1])  # the player looks to the east
    assert move_left[1] > 5 > abs(move_left[0])
    assert move_right[1] < -5 < -abs(move_right[0])


def test_the_game_is_the_one_of_the_package(make, tmp_path, monkeypatch):
    import vizdoom

    monkeypatch.chdir(tmp_path)
    game = vizdoom.DoomGame()
    game.load_config(str(Path(vizdoom.scenarios_path, "my_way_home.cfg")))
    game.set_window_visible(False)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(vizdoom.ScreenFormat.CRCGCB)
    game.set_seed(11)
    game.init()
    simulator = make("dense")
    frame = simulator.reset(11)
    np.testing.assert_array_equal(frame, downsample(game.get_state().screen_buffer, "fast"))
    for action in np.random.default_rng(1).integers(5, size=200).tolist():
        moved = simulator.step(action)
        assert game.make_action([float(button == action) for button in range(5)]) == moved.reward
        np.testing.assert_array_equal(moved.obs, downsample(game.get_state().screen_buffer, "fast"))
    game.close()


def test_both_renderings_show_the_same_game_in_nearly_the_same_grays(make):
    fast, paper = make("dense", rendering="fast"), make("dense", rendering="paper")
    gaps = []
    actions = np.random.default_rng(2).integers(5, size=(5, 12))
    for episode, row in enumerate(actions.tolist()):
        seed = 2 if episode == 0 else None
        fast.reset(seed)
        paper.reset(seed)
        for action in row:
            one, other = fast.step(action), paper.step(action)
            assert one.probes == other.probes
            gaps.append(np.abs(one.obs.astype(int) - other.obs))
    assert 0.1 < np.mean(gaps) < 2.0
    assert np.std(other.obs) > 5  # there is something to see


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "hard"}, "got 'hard'"),
        ({"variant": "dense", "rendering": "HD"}, "paper, fast, got 'HD'"),
        ({"variant": "dense", "timeout": "none"}, "termination, truncation, got 'none'"),
        ({"variant": "dense", "stack": 0}, "stack >= 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        MyWayHome(**options)


def test_what_a_simulator_cannot_do_is_refused(make):
    simulator = make("sparse")
    with pytest.raises(InputError, match="reset\\(\\) before step"):
        simulator.step(0)
    for seed in (-1, 2**32):
        with pytest.raises(InputError, match=f"need a seed [<>]= .* got {seed}"):
            simulator.reset(seed)
    simulator.reset(2**32 - 1)
    for action in (-1, 5):
        with pytest.raises(InputError, match=f"action from 0 to 4, got {action}"):
            simulator.step(action)
    simulator.step(4)
    simulator.close()
    with pytest.raises(InputError, match="reset\\(\\) before step"):
        simulator.step(0)
    simulator.close()


def test_an_episode_that_is_over_takes_no_steps(make, walk):
    simulator = make("sparse")
    simulator.reset(1)
    assert walk(simulator)[-1].boundary
    with pytest.raises(InputError, match="no episode is running"):
        simulator.step(0)
