import json
from pathlib import Path

import numpy as np
import pytest

from winkel.errors import InputError
from winkel.runs import record as runs
from winkel.runs.record import RunRecord, find_runs, load_run, save_run
from winkel.runs.spec import run_fingerprint, run_folder


def a_run(**config):
    return RunRecord(
        config={"env": "catch/0", "agent": "bdqn", "seed": 0, "lr": 1e-3, **config},
        episodes={
            "return": np.array([1.0, -1.0]),
            "length": np.array([9, 9]),
            "wrong": np.array([False, True]),
        },
    )


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [
        ("catch_noise/3", "runs/catch_noise/bdqn/3/seed-12"),
        ("deep_sea:size=100", "runs/deep_sea/bdqn/size=100/seed-12"),
        ("deep_sea:size=8,cost=0.1", "runs/deep_sea/bdqn/size=8,cost=0.1/seed-12"),
        ("gym:ns:CartPole-v1", "runs/gym/bdqn/ns:CartPole-v1/seed-12"),
    ],
)
def test_where_a_run_belongs(env_id, expected):
    assert run_folder(Path("runs"), env_id, "bdqn", 12) == Path(expected)


@pytest.mark.parametrize(
    ("env_id", "agent", "shown"),
    [
        ("catch", "bdqn", "got 'catch'"),
        ("/3", "bdqn", "got '/3'"),
        ("catch/..", "bdqn", r"setting .* got '\.\.'"),
        ("catch/0", "", "agent .* got ''"),
        ("catch/0", "../out", r"agent .* got '\.\./out'"),
    ],
)
def test_ids_and_names_that_make_no_folder_are_refused(env_id, agent, shown):
    with pytest.raises(InputError, match=shown):
        run_folder(Path("runs"), env_id, agent, 0)


def test_a_run_survives_the_disk(tmp_path):
    folder = tmp_path / "a" / "b"
    save_run(folder, a_run())
    loaded = load_run(folder)
    written = {"rows": {"episodes": 2}, "fingerprint": run_fingerprint(a_run().config)}
    assert loaded.config == a_run().config | written
    assert list(loaded.episodes) == list(a_run().episodes)
    for name, array in a_run().episodes.items():
        np.testing.assert_array_equal(loaded.episodes[name], array)
        assert loaded.episodes[name].dtype == array.dtype
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "episodes.npz"]


@pytest.mark.parametrize("broken", ["save_arrays", "write_text"])
def test_a_folder_with_a_config_is_complete(tmp_path, monkeypatch, broken):
    """Also when a save dies on the way over an older run."""

    def die(*_):
        raise KeyboardInterrupt

    folder = run_folder(tmp_path, "catch/0", "bdqn", 0)
    save_run(folder, a_run())
    monkeypatch.setattr(runs, broken, die)
    with pytest.raises(KeyboardInterrupt):
        save_run(folder, a_run(lr=1.0))
    with pytest.raises(InputError, match="no complete run"):
        load_run(folder)
    with pytest.raises(InputError, match="no runs"):
        find_runs(tmp_path)


def test_complete_runs_are_found_in_order(tmp_path):
    folders = [
        run_folder(tmp_path, env_id, agent, seed)
        for env_id in ("catch/0", "catch/1", "deep_sea:size=100")
        for agent in ("a", "b")
        for seed in (0, 1)
    ]
    for folder in reversed(folders):
        save_run(folder, a_run())
    (tmp_path / "catch" / "a" / "2" / "seed-0").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    assert find_runs(tmp_path) == sorted(folders)


def test_roots_without_runs_are_named(tmp_path):
    with pytest.raises(InputError, match=r"no such folder: .*nowhere"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(InputError, match=f"no runs in {tmp_path}"):
        find_runs(tmp_path)
    with pytest.raises(InputError, match="no complete run"):
        load_run(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("", "not JSON"),
        ("{'env'", "not JSON"),
        ("\udcff", "not JSON"),
        ("[1, 2]", r"need a table .* got \[1, 2\]"),
        ("[" * 100_000, "not JSON"),
        ('{"env": "catch/0", "seed": 0}', "need agent .* as str, got None"),
        ('{"env": "", "agent": "", "fingerprint": "", "seed": true}', "need seed .* got True"),
    ],
)
def test_unusable_configs_are_named_in_one_line(tmp_path, content, shown):
    save_run(tmp_path, a_run())
    (tmp_path / "config.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=shown) as error:
        load_run(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("entries", "shown"),
    [
        ({"agent": "a/b"}, "agent .* got 'a/b'"),
        ({"agent": "\udcff"}, "need UTF-8 in the config"),
        ({"setting": "x"}, "need setting .* as dict, got 'x'"),
        ({"setting": {"reward_scale": "x"}}, "need the setting .* of catch/0 .* 'x'"),
        ({"hyper": []}, r"need hyper .* as dict, got \[\]"),
        ({"env": "cat/0"}, "unknown environment 'cat/0'; did you mean catch"),
    ],
)
def test_a_config_with_a_right_fingerprint_is_checked_all_the_same(tmp_path, entries, shown):
    save_run(tmp_path, a_run())
    config = json.loads((tmp_path / "config.json").read_text()) | entries
    config["fingerprint"] = run_fingerprint(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=shown):
        load_run(tmp_path)


@pytest.mark.parametrize("entry", [{"seed": 1}, {"lr": 2e-3}, {"agent": "pe_dqn"}, {"more": 0}])
def test_edited_settings_are_not_believed(tmp_path, entry):
    save_run(tmp_path, a_run())
    config = json.loads((tmp_path / "config.json").read_text()) | entry
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="was changed: it has the fingerprint"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("episodes", "shown"),
    [
        ({"return": np.zeros(2)}, r"need return and length.* got return \[2\]"),
        ({"return": np.zeros(2), "length": np.zeros(3)}, r"return \[2\] .*, length \[3\]"),
        ({"return": np.zeros((2, 1)), "length": np.zeros((2, 1))}, r"return \[2, 1\]"),
        ({"return": np.zeros(2), "length": np.array(["a", "b"])}, r"length \[2\] of <U1"),
    ],
)
def test_unusable_episodes_are_named_at_both_ends(tmp_path, episodes, shown):
    with pytest.raises(InputError, match=shown):
        save_run(tmp_path, RunRecord(a_run().config, episodes))
    assert list(tmp_path.iterdir()) == []
    save_run(tmp_path, a_run())
    np.savez(tmp_path / "episodes.npz", **episodes)
    with pytest.raises(InputError, match=shown):
        load_run(tmp_path)


def test_a_table_that_was_cut_is_not_believed(tmp_path):
    evaluations = {"evaluation": np.arange(3), "returns": np.zeros((3, 2))}
    record = RunRecord(a_run().config, a_run().episodes, tables={"evaluations": evaluations})
    save_run(tmp_path, record)
    np.savez(tmp_path / "evaluations.npz", **{k: v[:2] for k, v in evaluations.items()})
    with pytest.raises(InputError, match=r"need the 3 evaluations .* got 2"):
        _ = load_run(tmp_path).evaluations
    np.savez(tmp_path / "episodes.npz", **{k: v[:1] for k, v in a_run().episodes.items()})
    with pytest.raises(InputError, match=r"need the 2 episodes that the run has made .* got 1"):
        load_run(tmp_path)


def test_incomplete_configs_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match=r"need seed .* as int, got None"):
        save_run(tmp_path, RunRecord(config={"env": "catch/0", "agent": "a"}, episodes={}))
    assert list(tmp_path.iterdir()) == []


def test_damaged_episodes_are_named(tmp_path):
    save_run(tmp_path, a_run())
    (tmp_path / "episodes.npz").write_bytes(b"PK\x03\x04 truncated")
    with pytest.raises(InputError, match=r"episodes\.npz is not a readable"):
        load_run(tmp_path)
