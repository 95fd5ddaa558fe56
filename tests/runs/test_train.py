"""Training from the outside: what it returns, what it leaves on disk, what it refuses."""

import contextlib
import json
import shutil

import numpy as np
import pandas as pd
import pytest

import winkel
from runs.tiny import (
    CHUNKS,
    ENV,
    EVALUATED,
    LENGTH,
    RARELY,
    SEED_0,
    TINY,
    files,
    learn,
    stop_after,
)
from winkel.errors import InputError
from winkel.runs.results import read_metrics
from winkel.runs.spec import Options


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder for runs, that of the run, and what `train` returned."""
    root = tmp_path_factory.mktemp("whole")
    training = learn(root)
    return root, root / SEED_0, training


# What comes back


@pytest.mark.parametrize("path", ["", SEED_0])
def test_a_run_comes_back_from_disk(whole, path):
    root, _, training = whole
    loaded = winkel.load(root / path)
    np.testing.assert_equal(loaded.episodes, training.episodes)
    np.testing.assert_equal(loaded.evaluations, training.evaluations)
    np.testing.assert_equal(loaded.of(0).snapshots, training.of(0).snapshots)
    assert loaded.of(0).config == training.of(0).config
    assert (loaded.of(0).agent, loaded.of(0).spec.hyper) == (
        training.of(0).agent,
        training.of(0).spec.hyper,
    )
    for cell in range(LENGTH * LENGTH + 1):
        np.testing.assert_equal(loaded.estimates(cell), training.estimates(cell))


def test_a_policy_takes_an_index_or_a_grid(whole):
    policy, training = whole[2].policy(), whole[2]
    for cell in range(LENGTH * LENGTH):
        grid = np.zeros((LENGTH, LENGTH))
        grid.flat[cell] = 1.0
        action = policy(grid)
        assert action == policy(cell) == policy(np.int32(cell))
        assert type(action) is int
        assert action == np.argmax(training.estimates(cell).value)
    nothing = np.zeros((LENGTH, LENGTH))
    np.testing.assert_equal(training.estimates(nothing), training.estimates(LENGTH * LENGTH))


@pytest.mark.parametrize(
    ("obs", "shown"),
    [
        (26, "got 26"),
        (-1, "got -1"),
        (0.5, r"shape \[\]"),
        (np.ones((5, 5)), r"at most a single one, got an array of shape \[5, 5\]"),
        (np.zeros((4, 4)), r"\[4, 4\]"),
    ],
)
def test_impossible_observations_are_refused(whole, obs, shown):
    with pytest.raises(InputError, match=shown):
        whole[2].estimates(obs)


def test_episodes_are_a_table_of_all_seeds(whole):
    training = learn(seeds=[1, 0], options=RARELY)
    table = pd.DataFrame(training.episodes)
    assert list(table.columns[:2]) == ["seed", "episode"]
    assert set(table.columns) == {
        *("seed", "episode", "return", "length", "env_steps", "visited", "bad", "treasure")
    }
    assert table["seed"].tolist() == [1] * 20 + [0] * 20
    assert table["episode"].tolist() == [*range(1, 21)] * 2
    steps = table.groupby("seed")["length"].cumsum()
    np.testing.assert_array_equal(steps, table["env_steps"])
    np.testing.assert_equal(training.of(0).episodes, whole[2].of(0).episodes)
    assert not np.array_equal(
        training.of(0).episodes["visited"], training.of(1).episodes["visited"]
    )
    np.testing.assert_equal(training.estimates(3), training.estimates(3, seed=1))
    with pytest.raises(InputError, match=r"need a seed from \[1, 0\], got 7"):
        training.of(7)


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch, whole):
    monkeypatch.chdir(tmp_path)
    training = learn()
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_equal(training.episodes, whole[2].episodes)
    with pytest.raises(InputError, match="need a folder"):
        learn(resume=True)


def test_progress_is_reported_after_every_chunk():
    reported = []
    training = learn(seeds=2, options=RARELY, progress=reported.append)
    assert len(reported) == 2 * CHUNKS
    first, second = reported[CHUNKS - 1]
    rows = training.of(0).episodes
    assert first.state == "finished"
    assert (first.seed, first.progress, first.num_episodes) == (0, 1.0, 20)
    assert first.recent_return == pytest.approx(rows["return"].mean())
    assert (second.seed, second.state, second.progress) == (1, "running", 0.0)
    shares = [statuses[0].progress for statuses in reported[:CHUNKS]]
    assert shares == sorted(shares)


# Records


def test_all_counters_say_what_is_recorded(tmp_path):
    """A run that ends in the middle of a chunk, by steps; the rest of the chunk does not count."""
    shown = []
    run = learn(tmp_path, episodes=None, steps=61, progress=shown.append).of(0)
    last = read_metrics(tmp_path / SEED_0 / "metrics.jsonl")[-1]
    status = shown[-1][0]
    assert len(run.episodes["return"]) == last["episodes"] == status.num_episodes == 61 // LENGTH
    assert last["env_steps"] == status.env_steps == 61
    assert last["updates"] == status.updates == 61 - TINY["burn_in"]


def test_metrics_are_a_line_for_each_chunk(whole):
    rows = read_metrics(whole[1] / "metrics.jsonl")
    updates = [*(16 * n for n in range(1, CHUNKS)), 20 * LENGTH - 8]  # as many as are recorded
    assert [row["updates"] for row in rows] == updates
    assert [row["episodes"] for row in rows] == [
        min((8 + 16 * n) // LENGTH, 20) for n in range(1, CHUNKS + 1)
    ]
    assert all({"loss", "beta", "clipped", "env_steps"} <= row.keys() for row in rows)


def test_evaluations_happen_at_the_first_end_of_a_chunk_after_their_time(whole):
    table = whole[2].evaluations
    ended = [min((8 + 16 * n) // LENGTH, 20) for n in range(1, CHUNKS + 1)]
    due = {count // 3: count for count in reversed(ended) if count // 3}
    assert dict(zip(table["evaluation"], table["episodes"], strict=True)) == due
    assert table["returns"].shape == (len(due), 2)
    assert (np.diff(table["evaluation"]) > 0).all()


def test_evaluations_count_steps_if_the_horizon_does():
    options = Options(chunk_steps=16, **EVALUATED | {"evaluate_every": 20})
    table = learn(episodes=None, steps=70, options=options).evaluations
    assert table["evaluation"].tolist() == [1, 2, 3]
    assert table["env_steps"].tolist() == [24, 40, 70]


def test_snapshots_go_from_the_first_chunk_to_the_end(whole):
    snapshots = whole[2].of(0).snapshots
    assert snapshots["episodes"].tolist() == [4, 11, 20]
    for name in ("visits", "value", "disagreement", "bonus"):
        assert snapshots[name].shape == (3, LENGTH * LENGTH, 2)
    assert snapshots["visits"].sum(axis=(1, 2)).tolist() == [24, 56, 8 + 16 * CHUNKS]
    for cell in range(LENGTH * LENGTH):
        estimates = whole[2].estimates(cell)
        for name in ("value", "disagreement", "bonus"):
            np.testing.assert_allclose(
                snapshots[name][-1, cell], getattr(estimates, name), rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize(("wanted", "episodes"), [(0, []), (1, [20]), (2, [4, 20])])
def test_the_number_of_snapshots_is_chosen(tmp_path, wanted, episodes):
    training = learn(tmp_path, options=Options(chunk_steps=16, snapshots=wanted))
    assert list(training.of(0).snapshots.get("episodes", ())) == episodes
    assert (tmp_path / SEED_0 / "snapshots.npz").exists() == bool(episodes)
    assert training.evaluations == {}
    assert not (tmp_path / SEED_0 / "evaluations.npz").exists()


def test_a_run_until_is_the_beginning_of_the_whole(tmp_path, whole):
    training = learn(tmp_path, until=9)
    np.testing.assert_equal(
        training.episodes, {name: rows[:9] for name, rows in whole[2].episodes.items()}
    )
    config = json.loads((tmp_path / SEED_0 / "config.json").read_text())
    assert (config["until"], config["horizon"], config["status"]) == (
        *(9, {"episodes": 20, "steps": None}, "finished"),
    )
    lines = (whole[1] / "metrics.jsonl").read_bytes().splitlines()
    ours = (tmp_path / SEED_0 / "metrics.jsonl").read_bytes().splitlines()
    assert ours[:-1] == lines[: len(ours) - 1]
    assert training.of(0).snapshots["episodes"].tolist() == [4, 8, 9]
    by_steps = learn(episodes=None, steps=30, until=19, options=RARELY)
    assert by_steps.episodes["env_steps"].tolist() == [5, 10, 15, 20, 25, 30]


def test_a_label_names_the_runs(tmp_path):
    training = learn(tmp_path, label="mine", options=RARELY)
    folder = tmp_path / "deep_sea/mine/size=5/seed-0"
    config = training.of(0).config
    assert training.of(0).folder == folder
    assert (config["agent"], config["algorithm"]) == ("mine", "pe_dqn")
    np.testing.assert_equal(winkel.load(folder).estimates(3), training.estimates(3))
    learn(tmp_path, options=RARELY)
    with pytest.raises(InputError, match="mine in deep_sea:size=5, pe_dqn in deep_sea:size=5"):
        winkel.load(tmp_path)


def test_a_config_holds_everything(whole):
    config = json.loads((whole[1] / "config.json").read_text())
    assert config["config"] | TINY == config["config"] | {"hidden": (16,)}
    assert config["hyper"]["z_min"] == -0.5
    assert (config["env"], config["seed"], config["setting"]["size"]) == (ENV, 0, 5)
    assert config["versions"]["winkel"] == winkel.__version__
    assert config["options"] == EVALUATED | {"chunk_steps": 16}


def test_mirrors_get_the_metrics_and_are_closed(tmp_path):
    made = []

    @contextlib.contextmanager
    def mirror(config, folder):
        calls = []
        made.append((config["seed"], folder, calls))
        yield lambda step, row: calls.append(step)
        calls.append("closed")

    learn(tmp_path, options=RARELY, mirrors=[mirror])
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, seeds=[1], options=RARELY, mirrors=[mirror], progress=stop_after(2))
    (seed, folder, done), (_, _, stopped) = made
    assert (seed, folder) == (0, tmp_path / SEED_0)
    steps = [row["env_steps"] for row in read_metrics(folder / "metrics.jsonl")]
    assert done == [*steps, "closed"]
    assert len(stopped) == 3
    assert stopped[-1] == "closed"


def test_a_failed_run_is_reported_and_kept(tmp_path):
    notices = []
    training = learn(tmp_path, learning_rate=1e38, notice=notices.append)
    (notice,) = notices
    assert "seed 0 stopped: the loss was nan at update 2" in notice
    config = training.of(0).config
    assert config["status"] == "failed"
    assert "update 2" in config["reason"]
    assert len(training.episodes["length"]) == 1  # of the burn-in
    before = files(tmp_path)
    again = learn(tmp_path, learning_rate=1e38, notice=notices.append, resume=True)
    assert again.of(0).config["status"] == "failed"
    assert files(tmp_path) == before


def test_finished_runs_are_not_trained_again(tmp_path, whole):
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    reported = []
    again = learn(tmp_path, resume=True, progress=reported.append)
    assert reported == []
    np.testing.assert_equal(again.episodes, whole[2].episodes)
    more = learn(tmp_path, seeds=2, resume=True)
    assert [run.config["seed"] for run in more.runs] == [0, 1]
    kept = {path: path.stat().st_mtime_ns for path in files(tmp_path) if path in before}
    assert kept == before


# Bad input


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"agent": "pe_dqm"}, ["'pe_dqm'", "did you mean pe_dqn"]),
        ({"agent": "zzz"}, ["'zzz'", "winkel list agents"]),
        ({"env": "deepsea:size=5"}, ["'deepsea:size=5'", "did you mean deep_sea"]),
        ({"env": "deep_sea:sise=5"}, ["'sise=5'", "size"]),
        ({"num_atom": 5}, ["'num_atom'", "did you mean num_atoms"]),
        ({"zzz": 5}, ["'zzz'", "num_atoms"]),
        ({"num_atoms": 5.5}, ["5.5", "a whole number for num_atoms"]),
        ({"num_atoms": True}, ["True", "num_atoms"]),
        ({"num_atoms": 1}, ["1", "num_atoms"]),
        ({"hidden": "wide"}, ["'wide'", "hidden"]),
        ({"hidden": (16, 0)}, ["0", "hidden"]),
        ({"propagate": 1}, ["1", "true or false for propagate"]),
        ({"backup": "both"}, ["'both'", "mixture, independent"]),
        ({"projections": ("quantile", "quantiles")}, ["'quantiles'", "projection"]),
        ({"gamma": 1.5}, ["1.5", "gamma in [0, 1]"]),
        ({"learning_rate": 0}, ["0", "learning_rate > 0"]),
        ({"learning_rate": float("nan")}, ["nan", "learning_rate"]),
        ({"beta": -1.0}, ["-1.0", "beta >= 0"]),
        ({"seeds": 0}, ["got 0", "seeds"]),
        ({"seeds": [1, 1]}, ["[1, 1]", "different seeds"]),
        ({"seeds": []}, ["[]", "at least one"]),
        ({"seeds": [3, -1]}, ["got -1", "seed"]),
        ({"seeds": [2**31]}, ["2147483648", "seed"]),
        ({"steps": 0}, ["got 0", "steps"]),
        ({"episodes": 2**31}, ["2147483648", "episodes"]),
        ({"until": 0}, ["got 0", "until"]),
        ({"until": 21}, ["got 21", "until", "20"]),
        ({"lanes": 0}, ["got 0", "lanes"]),
        ({"label": "a/b"}, ["'a/b'"]),
    ],
)
def test_bad_input_is_named(tmp_path, changed, shown):
    with pytest.raises(InputError) as error:
        learn(tmp_path / "runs", **changed)
    for part in shown:
        assert part in str(error.value)
    assert "\n" not in str(error.value)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"evaluate_every": 0}, "evaluate_every >= 1, a whole number, got 0"),
        ({"snapshots": -1}, "snapshots >= 0, a whole number, got -1"),
        ({"checkpoint_seconds": float("nan")}, "checkpoint_seconds >= 0, got nan"),
    ],
)
def test_bad_options_are_named(changed, shown):
    with pytest.raises(InputError, match=shown):
        Options(**changed)


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.mkdir(), "no runs in"),
        (lambda path: path.write_text("x"), "no such folder"),
    ],
)
def test_without_runs_there_is_nothing_to_load(tmp_path, make, shown):
    make(tmp_path / "runs")
    with pytest.raises(InputError, match=shown) as error:
        winkel.load(tmp_path / "runs")
    assert str(tmp_path / "runs") in str(error.value)
