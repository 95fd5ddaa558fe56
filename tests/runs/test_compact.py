"""Compact records: no loss, no damage unseen, no mixture; runs that end once they are solved."""

import json
import shutil

import numpy as np
import pytest

import winkel
from report.synthetic import deep_sea, save
from runs.tiny import TINY, files
from winkel.cli import main
from winkel.errors import InputError
from winkel.figures.common import regret_of
from winkel.files import load_arrays, save_arrays
from winkel.runs.compact import find_compact, read_compact, write_compact
from winkel.runs.record import find_runs, load_run
from winkel.runs.results import read_results
from winkel.runs.spec import Options

SOLVED = Options(solved_streak=10, evaluate_every=5, chunk_steps=50)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of an agent that finds the treasure at once, and keeps it."""
    root = tmp_path_factory.mktemp("runs")
    settings = {"episodes": 300, "out": root, "epsilon": 1.0, "epsilon_decay": 0.25, **TINY}
    del settings["num_atoms"]
    winkel.train("deep_sea:size=3", "dqn", seeds=2, options=SOLVED, **settings)
    return root


def trailing(treasure):
    """How many of the last episodes in a row have the treasure."""
    return int(np.argmin(np.append(treasure[::-1], False)))


def test_records_are_kept_without_loss_in_fewer_bytes(runs, tmp_path):
    assert list(write_compact(runs, tmp_path).values()) == [2]
    (path,) = find_compact(tmp_path)
    assert path.relative_to(tmp_path).as_posix() == "deep_sea/dqn/size=3.npz"
    for folder, record in zip(find_runs(runs), read_compact(path), strict=True):
        original = load_run(folder)
        assert record.config == original.config
        for name in ("episodes", "evaluations", "snapshots"):
            ours, theirs = getattr(record, name), getattr(original, name)
            assert ours.keys() == theirs.keys()
            for column in ours:
                assert ours[column].dtype == theirs[column].dtype
                np.testing.assert_array_equal(ours[column], theirs[column])
    before = files(tmp_path)
    assert write_compact(runs, tmp_path) == {}
    assert files(tmp_path) == before


def test_export_writes_them(runs, tmp_path, capsys):
    main(["export", "compact", str(runs), str(tmp_path)])
    assert f"added 2 runs to 1 files in {tmp_path}" in capsys.readouterr().out.replace("\n", "")


def test_figures_see_the_same_results(runs, tmp_path):
    write_compact(runs, tmp_path)
    ours, theirs = read_results(tmp_path), read_results(runs)
    assert ours.problems == theirs.problems
    for one, other in zip(ours.records, theirs.records, strict=True):
        np.testing.assert_equal(one.episodes, other.episodes)
        np.testing.assert_equal(one.evaluations, other.evaluations)


def test_a_solved_run_ends_early_and_the_rest_counts_as_rewarded(runs):
    results = read_results(runs)
    for folder, filled in zip(find_runs(runs), results.records, strict=True):
        record = load_run(folder)
        treasure = record.episodes["treasure"].astype(bool)
        ended = record.config["solved"]
        assert ended == len(treasure) < 300
        assert treasure[-10:].all()
        # ε decays for a quarter of the horizon, 75 episodes. The streak is counted at the ends of
        # chunks of 50 steps, 16 or 17 episodes: at the one before, it was too short.
        assert ended >= 85
        assert min(trailing(treasure[75 : ended - count]) for count in (16, 17)) < 10
        assert len(filled.episodes["return"]) == 300
        assert regret_of(filled) == (~treasure).sum()
        assert (np.diff(filled.episodes["env_steps"]) == 3).all()
        assert filled.evaluations["evaluation"].tolist()[-1] == 60
        assert filled.evaluations["episodes"].tolist()[-1] == 300
        assert filled.evaluations["env_steps"].tolist()[-1] == 900
        assert (np.diff(filled.evaluations["evaluation"]) > 0).all()
    assert any("2 of 2 runs ended early" in line for line in results.problems)


def test_a_run_that_loses_the_treasure_goes_on(tmp_path):
    """An agent that always explores finds the treasure too rarely in a row."""
    options = Options(solved_streak=10, chunk_steps=50)
    settings = {"epsilon": 1.0, "epsilon_final": 1.0, **TINY}
    del settings["num_atoms"]
    made = winkel.train("deep_sea:size=3", "dqn", episodes=60, options=options, **settings)
    (run,) = made.runs
    assert "solved" not in run.config
    assert len(run.episodes["return"]) == 60


def test_the_rule_is_part_of_a_run(tmp_path):
    with pytest.raises(InputError, match="need episodes of deep sea for a solved_streak"):
        winkel.train("catch/0", "dqn", episodes=5, options=SOLVED)
    with pytest.raises(InputError, match="solved_streak"):
        Options(solved_streak=0)


@pytest.mark.parametrize("change", ["cut", "number", "config", "other"])
def test_damage_is_one_line(runs, tmp_path, change):
    write_compact(runs, tmp_path)
    (path,) = find_compact(tmp_path)
    deep_sea(tmp_path, "bdqn", 4, [3, 4])
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif change == "other":
        save_arrays(path, {"x": np.ones(3)})
    else:
        arrays = load_arrays(path)
        if change == "number":
            arrays["episodes/return"] = arrays["episodes/return"] + 1
        else:
            configs = json.loads(arrays["configs"].tobytes())
            configs[0]["hyper"]["learning_rate"] = 1.0
            arrays["configs"] = np.frombuffer(json.dumps(configs).encode(), np.uint8)
        save_arrays(path, arrays)
    results = read_results(tmp_path)
    assert {record.config["agent"] for record in results.records} == {"bdqn"}
    (problem,) = [line for line in results.problems if "size=3.npz" in line]
    words = {"cut": "not a readable", "other": "no file of compact records"}
    assert words.get(change, "was changed after it was written") in problem


def test_a_group_is_of_one_version_and_one_setting(tmp_path):
    runs, out = tmp_path / "runs", tmp_path / "out"
    episodes = {"return": np.ones(3), "length": np.full(3, 4)}
    save(runs, "catch/0", "dqn", 0, episodes)
    write_compact(runs, out)
    before = files(out)
    for changed, words in (
        (
            {"versions": {"winkel": "2"}},
            "only in their seeds; one of them was made by winkel 2, this is 1",
        ),
        (
            {"hyper": {"gamma": 0.5}},
            "only in their seeds; one of them is of another run: hyper is",
        ),
    ):
        shutil.rmtree(runs)
        save(runs, "catch/0", "dqn", 1, episodes, **changed)
        save(runs, "catch/1", "dqn", 1, episodes)
        with pytest.raises(InputError, match=words):
            write_compact(runs, out)
        assert files(out) == before


def test_many_runs_stay_small(tmp_path):
    """Ten seeds of 10,000 episodes, each rewarded by chance, take little more than their bits."""
    rng = np.random.default_rng(0)
    for seed in range(10):
        bad = rng.random(10_000) < 0.3
        rows = {
            "return": np.where(bad, 0.0, 0.99), "length": np.full(10_000, 30), "bad": bad,
            "treasure": ~bad, "env_steps": np.arange(1, 10_001) * 30,
            "visited": np.minimum(np.arange(10_000), 930),
        }  # fmt: skip
        save(tmp_path / "runs", "deep_sea:size=30", "bdqn", seed, rows)
    (path,) = write_compact(tmp_path / "runs", tmp_path / "out")
    assert path.stat().st_size < 120_000
