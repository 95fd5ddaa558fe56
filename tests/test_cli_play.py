"""`winkel play`, and `winkel inspect` of runs in simulators, as one types them."""

import numpy as np
import pytest
from PIL import Image

import winkel
from play.made_runs import OPTIONS, TINY, made_run, room_task
from play.rooms import LENGTH, PLAIN, ROOM
from terminal_helpers import refused
from winkel import cli
from winkel.envs.outside import SimulatorTask
from winkel.play import film
from winkel.play.episodes import load_one, observe_after, open_environment, play
from winkel.simulators.visits import VISITS, Visits

pytestmark = pytest.mark.usefixtures("small_torso", "wide")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder of two seeds in the room, beside one of deep sea."""
    root = tmp_path_factory.mktemp("runs")
    made_run(root / "rooms", ROOM, seed=0)
    made_run(root / "rooms", ROOM, seed=7)
    made_run(root / "deep_sea", "deep_sea:size=5", "pe_dqn")
    return root


@pytest.fixture(scope="module")
def cart(tmp_path_factory):
    """Trained, if only for its first twenty steps."""
    root = tmp_path_factory.mktemp("cart")
    fields = {**TINY, "burn_in": 1000, "z_min": 0.0, "z_max": 10.0}
    winkel.train("gym:CartPole-v1", "c51", steps=20, workers=0, out=root, options=OPTIONS, **fields)
    return root / "gym/c51/CartPole-v1/seed-0"


def frames(path):
    with Image.open(path) as film:
        return film.n_frames, film.size


def test_a_film_is_written_and_its_episodes_are_told(runs, tmp_path, capsys):
    out = tmp_path / "new" / "film.gif"
    arguments = ["play", runs / "rooms", "--seed", 7, "--episodes", 2, "--world-seed", 4]
    cli.main([*map(str, arguments), "--env", ROOM, "--out", str(out), "--fps", "20"])
    printed = capsys.readouterr().out
    with open_environment(room_task(), 4) as env:
        played = play(load_one(runs / "rooms", 7), env, episodes=2)
    for episode, moment in ((1, LENGTH), (2, 2 * LENGTH + 1)):
        total = played["return"][moment]
        assert f"episode {episode}: return {total:.4g}, length {LENGTH}\n" in printed
    assert f"wrote {out}" in printed
    count, size = frames(out)
    assert size[0] == film.WIDTH
    assert count == 2 * (LENGTH + 1)


def test_a_film_lies_beside_its_run_by_default(runs, capsys):
    cli.main(["play", str(runs / "rooms"), "--env", ROOM, "--every", "2", "--steps", "5"])
    folder = load_one(runs / "rooms").folder
    assert folder.name == "seed-0"
    assert frames(folder / "play.gif")[0] == 4
    assert "length 5, cut there" in capsys.readouterr().out


@pytest.mark.parametrize("policy", ["greedy", "exploring"])
def test_deep_sea_can_be_played(runs, tmp_path, policy):
    out = tmp_path / "film.gif"
    arguments = ["play", runs / "deep_sea", "--policy", policy, "--fps", 5, "--out", out]
    cli.main([str(argument) for argument in arguments])
    assert frames(out)[0] == 6


def test_gymnasium_can_be_played_and_inspected(cart, tmp_path, capsys):
    cli.main(["play", str(cart), "--steps", "3", "--out", str(tmp_path / "cart.gif")])
    assert frames(tmp_path / "cart.gif")[0] == 4
    cli.main(["inspect", str(cart), "--at", "2", "--out", str(tmp_path), "--formats", "png"])
    arrays = np.load(tmp_path / "inspect.npz")
    assert arrays["observation"].shape == (1, 4)
    assert "action 1: value" in capsys.readouterr().out
    assert {path.suffix for path in tmp_path.iterdir()} == {".gif", ".npz", ".png"}
    assert not (cart / VISITS).exists()


def test_beliefs_have_the_names_of_actions(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(SimulatorTask, "action_names", ("east", "north"))
    out = ["--out", str(tmp_path), "--formats", "png"]
    cli.main(["inspect", str(runs / "rooms"), "--env", ROOM, *out])
    assert np.load(tmp_path / "inspect.npz")["actions"].tolist() == ["east", "north"]
    assert "north: value" in capsys.readouterr().out


@pytest.mark.parametrize(("at", "steps"), [("start", 0), ("4", 4)])
def test_the_newest_frame_stands_beside_the_distributions(runs, tmp_path, at, steps):
    out = ["--out", str(tmp_path), "--formats", "png"]
    cli.main(["inspect", str(runs / "rooms"), "--env", ROOM, "--seed", "7", "--at", at, *out])
    trained = load_one(runs / "rooms", 7)
    with open_environment(room_task()) as env:
        stack = observe_after(trained, env, steps)
    arrays = np.load(tmp_path / "inspect.npz")
    np.testing.assert_array_equal(arrays["observation"], stack[-1])
    assert arrays["observation"].dtype == np.uint8
    np.testing.assert_allclose(arrays["value"], trained.estimates(stack).value, rtol=1e-6)
    assert (tmp_path / "inspect.png").stat().st_size > 10_000


def test_where_a_run_has_been_is_drawn(tmp_path, capsys):
    folder = made_run(tmp_path, PLAIN)
    count = Visits(100, 2**31 - 1)
    for before in range(0, 100, 2):
        count.add(np.array([[before, 3.0], [5.0, before]]), before, 0)
    np.savez(folder / VISITS, **count.arrays())
    cli.main(["inspect", str(folder), "--env", PLAIN, "--formats", "png"])
    assert f"wrote {folder / 'map.png'}" in capsys.readouterr().out
    assert np.load(folder / "map.npz")["visits"].sum() == 100
    assert np.load(folder / VISITS)["visits"].shape[0] == 10  # as it was


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--seed", 3], "need a seed from [0, 7], got 3"),
        (["--episodes", 0], "need --episodes >= 1, a whole number, got 0"),
        (["--every", 0], "need --every >= 1, a whole number, got 0"),
        (["--steps", 0], "need --steps >= 1, a whole number, got 0"),
        (["--fps", 0], "need --fps >= 1, a whole number, got 0"),
        (["--fps", 60], "need --fps <= 50, got 60"),
        (["--world-seed", -1], "got -1"),
        (["--world-seed", 2**32], f"got {2**32}"),
        (["--out", "film.avi"], "ends in .gif, got film.avi"),
        (["--out", "film"], "ends in .gif, got film"),
        (["--epsilon", 1], "unknown option --epsilon; did you mean --episodes"),
    ],
)
def test_what_cannot_be_played_is_one_line(runs, tmp_path, capsys, monkeypatch, options, shown):
    monkeypatch.chdir(tmp_path)
    assert shown in refused(["play", runs / "rooms", *options], capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_film_that_cannot_be_written_is_told_before_the_run_is_read(tmp_path, capsys):
    arguments = ["play", tmp_path / "absent", "--out", tmp_path / "film.avi"]
    assert "film.avi" in refused(arguments, capsys)


def test_where_there_is_no_checkpoint_nobody_plays(runs, tmp_path, capsys):
    assert f"no such folder: {tmp_path / 'no'}" in refused(["play", tmp_path / "no"], capsys)
    assert "no runs in" in refused(["play", tmp_path], capsys)
    folder = made_run(tmp_path, PLAIN)
    for file in (folder / "checkpoint").iterdir():
        file.unlink()
    assert "need a readable checkpoint" in refused(["play", folder], capsys)


@pytest.mark.parametrize("command", ["play", "inspect"])
def test_a_missing_library_is_named(cart, tmp_path, capsys, monkeypatch, command):
    (tmp_path / "gymnasium.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "a.gif" if command == "play" else tmp_path
    assert "winkel[gym]" in refused([command, cart, "--out", out], capsys)


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ("end", "got 'end'"),
        ("1,2", "got '1,2'"),
        ("１", "got '１'"),
        ("6", "fewer than 6 steps"),
    ],
)
def test_moments_that_do_not_come_are_one_line(runs, tmp_path, capsys, at, shown):
    arguments = ["inspect", runs / "rooms", "--env", ROOM, "--at", at, "--out", tmp_path]
    assert shown in refused(arguments, capsys)
    assert list(tmp_path.iterdir()) == []
