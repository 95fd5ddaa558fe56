"""The layout of exported files; tests/parity/test_bsuite_scores.py has bsuite read them."""

import numpy as np
import pytest

from winkel.analysis.scores import export_bsuite
from winkel.errors import InputError
from winkel.runs.record import RunRecord, save_run
from winkel.runs.spec import run_folder


def save(root, env, agent="a", seed=0, num=3, folder=None):
    run = RunRecord(
        config={"env": env, "agent": agent, "seed": seed},
        episodes={
            "return": np.array([0.99, -0.001, 1 / 3])[:num],
            "length": np.full(num, 10, np.int32),
            "bad": np.array([0, 1, 1])[:num],
            "treasure": np.array([1, 0, 0])[:num],
        },
    )
    save_run(folder or run_folder(root, env, agent, seed), run)


def test_a_file_has_bsuites_columns_and_integers_stay_integers(tmp_path):
    save(tmp_path / "runs", "deep_sea/7")
    (path,), _ = export_bsuite(tmp_path / "runs", tmp_path / "out")
    assert path == tmp_path / "out" / "a" / "seed-0" / "bsuite_id_-_deep_sea-7.csv"
    columns = [
        "steps", "episode", "total_return", "episode_len", "episode_return",
        "total_bad_episodes", "denoised_return",
    ]  # fmt: skip
    lines = path.read_text().split("\n")
    assert lines[0] == ",".join(columns)
    assert lines[1] == "10,1,0.99,10,0.99,0,1.0"
    assert lines[2] == "20,2,0.989,10,-0.001,1,1.0"
    assert float(lines[3].split(",")[4]) == 1 / 3
    assert lines[4:] == [""]


def test_agents_and_seeds_have_folders_and_other_runs_are_reported(tmp_path):
    for agent, seed in (("a", 0), ("a", 1), ("b", 0)):
        save(tmp_path / "runs", "deep_sea/0", agent, seed)
    save(tmp_path / "runs", "deep_sea:size=100")
    save(tmp_path / "runs", "deep_sea/1", num=0)
    written, skipped = export_bsuite(tmp_path / "runs", tmp_path / "out")
    found = sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert sorted(written) == found
    assert [str(path.parent.relative_to(tmp_path / "out")) for path in found] == [
        "a/seed-0", "a/seed-1", "b/seed-0",
    ]  # fmt: skip
    assert [path.parent.name for path in skipped] == ["1", "size=100"]


def test_nothing_is_written_over(tmp_path):
    save(tmp_path / "runs", "deep_sea/0")
    save(tmp_path / "runs", "deep_sea/1")
    (first, second), _ = export_bsuite(tmp_path / "runs", tmp_path / "out")
    first.unlink()
    second.write_text("mine")
    with pytest.raises(InputError, match=r"deep_sea-1\.csv exists"):
        export_bsuite(tmp_path / "runs", tmp_path / "out")
    assert second.read_text() == "mine"
    assert not first.exists()


def test_two_runs_of_one_id_are_refused(tmp_path):
    save(tmp_path, "deep_sea/0")
    save(tmp_path, "deep_sea/0", folder=tmp_path / "deep_sea" / "copy" / "0" / "seed-0")
    with pytest.raises(InputError, match=r"one run of deep_sea/0 by a with seed 0, .*copy"):
        export_bsuite(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_runs_of_another_experiment_than_they_claim_are_refused(tmp_path):
    save(tmp_path, "catch/0")
    with pytest.raises(InputError, match="episodes of catch lack wrong"):
        export_bsuite(tmp_path, tmp_path / "out")
