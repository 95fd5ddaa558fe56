"""What one does with runs in Python: evaluate them, act with them, look at them."""

import numpy as np
import pytest

import winkel
from play.made_runs import made_run
from play.rooms import LENGTH, PLAIN
from runs.tiny import ENV, learn
from terminal_helpers import refused
from winkel import cli
from winkel.errors import InputError
from winkel.play.episodes import load_one, open_environment, play


@pytest.fixture(scope="module")
def sea(tmp_path_factory):
    return learn(tmp_path_factory.mktemp("runs"), seeds=2)


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    return made_run(tmp_path_factory.mktemp("runs"), PLAIN, "c51", z_min=0.0, z_max=1.0)


def test_greedy_episodes_of_a_compiled_environment(sea):
    returns = sea.evaluate(episodes=7)
    assert returns.shape == (2, 7)
    for run, found in zip(sea.runs, returns, strict=True):
        with open_environment(run.task) as env:
            played = play(run, env)
        np.testing.assert_allclose(found, played["return"][-1], rtol=1e-6)


def test_the_seed_decides_the_episodes_of_a_noisy_environment():
    run = learn(env="catch/0").runs[0]
    returns = run.evaluate(20, seed=np.int64(3))
    np.testing.assert_array_equal(run.evaluate(20, seed=3), returns)
    assert not np.array_equal(run.evaluate(20, seed=4), returns)


def test_greedy_episodes_of_a_simulator(room):
    run = load_one(room, env=PLAIN)
    returns = run.evaluate(5)
    assert returns.shape == (5,)
    with open_environment(run.task, 9) as env:
        played = play(run, env, episodes=40)
    possible = played["return"][played["action"] < 0]
    assert set(returns) <= set(possible)
    assert returns.max() <= LENGTH


def test_a_simulator_that_a_folder_names_is_evaluated_only_if_the_user_names_it(room, capsys):
    with pytest.raises(InputError, match="which winkel starts only if you name it"):
        winkel.load(room).evaluate(1)
    assert "add --env play.rooms:make_plain" in refused(["evaluate", room], capsys)
    cli.main(["evaluate", str(room), "--env", PLAIN, "--episodes", "2"])
    assert "seed 0: mean return " in capsys.readouterr().out


def test_the_command_prints_a_line_for_each_run(sea, capsys):
    folder = sea.runs[0].folder.parent
    cli.main(["evaluate", str(folder), "--episodes", "4"])
    printed = capsys.readouterr().out.splitlines()
    assert [line[:20] for line in printed] == ["seed 0: mean return ", "seed 1: mean return "]
    assert all(line.endswith(", 4 episodes") and "(95 % interval " in line for line in printed)
    cli.main(["evaluate", str(folder / "seed-1"), "--episodes", "1"])
    assert "interval" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"episodes": 0}, "need episodes >= 1, a whole number, got 0"),
        ({"seed": -1}, "need seed >= 0, a whole number, got -1"),
    ],
)
def test_wrong_numbers_are_refused(sea, wanted, message):
    with pytest.raises(InputError, match=message):
        sea.evaluate(**wanted)


def test_a_batch_of_observations_gives_an_array_of_actions(sea):
    policy = sea.policy()
    grids = np.eye(25).reshape(25, 5, 5)
    actions = policy(grids)
    assert actions.dtype.kind == "i"
    assert actions.tolist() == [policy(grid) for grid in grids] == policy(np.arange(25)).tolist()
    assert type(policy(grids[3])) is int
    assert policy(np.zeros((0, 5, 5))).shape == (0,)
    assert sea.runs[0].values(grids).shape == (25, 2)
    for wrong in (np.zeros((2, 4, 5)), np.zeros((1, 2, 5, 5)), np.full(3, 26)):
        with pytest.raises(InputError, match="need an index"):
            policy(wrong)


def test_a_run_is_shown_in_one_line(sea, tmp_path):
    run, folder = sea.runs[1], sea.runs[1].folder
    mean = f"{run.episodes['return'].mean():.4g}"
    assert repr(run) == (
        f"<RunRecord: pe_dqn in {ENV}, seed 1, 20 episodes, mean return {mean} of the last 50, "
        f"{folder}>"
    )
    shown = repr(winkel.load(folder.parent))
    assert shown.startswith(f"<Training: pe_dqn in {ENV}, seeds 0, 1, 40 episodes, mean return ")
    assert shown.endswith(f", {folder.parent}>")
    assert repr(learn(episodes=1)).endswith(" of the last 50, in memory>")


@pytest.mark.parametrize(
    ("seeds", "made"),
    [(np.int64(2), [0, 1]), (np.array(2), [0, 1]), (np.arange(1, 3), [1, 2]), ([np.uint8(4)], [4])],
)
def test_seeds_may_be_numbers_of_numpy(seeds, made):
    runs = learn(episodes=1, seeds=seeds).runs
    assert [run.config["seed"] for run in runs] == made
    assert all(type(run.config["seed"]) is int for run in runs)
