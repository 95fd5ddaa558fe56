"""Sweeps: grouping by shape, padding, resuming, counting."""

import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import winkel
from winkel.envs.registry import make, make_padded
from winkel.errors import InputError
from winkel.runs.results import read_results
from winkel.runs.spec import Options, configure, run_fingerprint
from winkel.runs.sweep import (
    bsuite_envs,
    deep_sea_envs,
    group_runs,
    remaining_groups,
    run_sweep,
)
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes
from winkel.training.steps import Horizon, Plan

TINY = {
    "hidden": (8,), "num_atoms": 5, "num_members": 2, "batch_size": 4, "burn_in": 8,
    "capacity": 32,
}  # fmt: skip
OPTIONS = Options(chunk_steps=20, checkpoint_seconds=0.0, snapshots=2)


def sea(**others):
    settings = {
        "envs": deep_sea_envs([4]), "agents": ("qr_dqn", "dqn"), "seeds": (0, 1, 2, 3),
        "episodes": 8, "fields": TINY,
    }  # fmt: skip
    return settings | others


def sweep(what, out, resume=False, **others):
    groups, ended = remaining_groups(group_runs(**what, options=OPTIONS), out, resume)
    return run_sweep(what, groups, out, lanes=2, before=ended.total(), **others)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    return out, sweep(sea(), out)


def contents(out):
    files = sorted(out.glob("*/*/*/seed-*/episodes.npz"))
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def test_runs_of_one_shape_share_a_program():
    what = sea(envs=deep_sea_envs([3, 4]))
    groups, _ = remaining_groups(group_runs(**what, options=OPTIONS), Path("nowhere"), False)
    assert [len(group.runs) for group in groups] == [4, 4, 4, 4]
    bsuite = dict(
        envs=bsuite_envs(["catch", "catch_noise", "deep_sea", "deep_sea_stochastic"]),
        agents=("dqn",), seeds=(0,), fields=TINY,
    )  # fmt: skip
    groups, _ = remaining_groups(group_runs(**bsuite, options=OPTIONS), Path("nowhere"), False)
    assert sorted(len(group.runs) for group in groups) == [40, 42]
    sizes = [run.task.setting["size"] for run in groups[-1].runs]
    assert sizes == sorted(sizes, reverse=True)


def test_every_run_ends_once_and_is_found_again(whole):
    out, outcome = whole
    assert list(outcome["runs"].values()) == [8, 0, 0]
    results = read_results(out)
    assert len(results.records) == 8
    assert not results.problems
    assert list(sweep(sea(), out, resume=True)["runs"].values()) == [0, 0, 8]


def test_a_sweep_equals_single_runs(whole):
    out, _ = whole
    alone = winkel.train(
        "deep_sea:size=4", "dqn", seeds=2, lanes=2, episodes=8, options=OPTIONS,
        **{k: v for k, v in TINY.items() if k not in ("num_atoms", "num_members")},
    )  # fmt: skip
    for seed, run in enumerate(alone.runs):
        kept = winkel.load(out / "deep_sea" / "dqn" / "size=4" / f"seed-{seed}")
        for column, values in run.episodes.items():
            np.testing.assert_array_equal(kept.runs[0].episodes[column], values)


def test_more_seeds_are_added_and_nothing_is_repeated(whole, tmp_path):
    out, _ = whole
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    before = contents(copy)
    more = sweep(sea(seeds=tuple(range(6))), copy, resume=True)
    assert list(more["runs"].values()) == [4, 0, 8]
    after = contents(copy)
    assert len(after) == 12
    assert all(after[name] == content for name, content in before.items())


def test_interrupted_anywhere_it_goes_on_to_the_same_records(whole, tmp_path):
    out, _ = whole
    for stop in range(1, 7, 2):
        folder = tmp_path / str(stop)
        calls = []

        def interrupt(group, statuses, calls=calls, stop=stop):
            calls.append(group)
            if len(calls) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sweep(sea(), folder, progress=interrupt)
        unfinished = 8 - len(contents(folder))
        outcome = sweep(sea(), folder, resume=True)
        assert outcome["runs"]["finished"] == unfinished
        assert contents(folder) == contents(out)


def test_a_failed_run_is_counted_and_stops_nothing(tmp_path):
    bad = sea(agents=("dqn",), fields=TINY | {"learning_rate": 1e38})
    said = []
    outcome = sweep(bad, tmp_path, notice=said.append)
    assert list(outcome["runs"].values()) == [0, 4, 0]
    assert len(said) == 4
    with pytest.raises(InputError, match=r"no finished runs.*failed"):
        read_results(tmp_path)


def test_what_is_there_is_not_touched_without_resume(whole):
    out, _ = whole
    with pytest.raises(InputError, match="--resume"):
        remaining_groups(group_runs(**sea(), options=OPTIONS), out, False)


def test_the_log_tells_what_was_run(whole):
    out, _ = whole
    row = json.loads((out / "sweeps.jsonl").read_text().splitlines()[-1])
    assert row["runs"] == {"finished": 8, "failed": 0, "before": 0}
    assert row["envs"] == ["deep_sea:size=4"]


@pytest.mark.parametrize(
    "env", ["deep_sea/3", "memory_size/5", "umbrella_length/4", "umbrella_distract/7", "catch/0"]
)
def test_a_padded_setting_knows_its_true_inputs(env):
    alone, padded = make(env), make_padded(env)
    assert padded.inputs == math.prod(alone.env.observation.shape)
    assert math.prod(padded.env.observation.shape) >= padded.inputs
    assert padded.setting == alone.setting


def test_first_layers_have_the_scale_of_the_true_fan_in():
    task = make_padded("deep_sea/0")
    agent, hyper = configure("dqn", {"hidden": (64,)}, task)
    plans = [
        Plan(task.params, hyper, Horizon(episodes=1), 0, fan_in=fan_in) for fan_in in (100, 2_500)
    ]
    lanes = Lanes(agent, CompiledWorld(task.env), plans, 2)
    lanes._fill()
    weights = np.asarray(lanes.row.states.learner.params.layers[0].weight)
    np.testing.assert_allclose(weights[0].std(), math.sqrt(2 / 100), rtol=0.02)
    np.testing.assert_allclose(weights[1].std(), math.sqrt(2 / 2_500), rtol=0.02)


def test_unknown_experiments_are_named():
    with pytest.raises(InputError, match="did you mean"):
        bsuite_envs(["catchh"])
    with pytest.raises(InputError, match="size >= 2"):
        deep_sea_envs([1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"agents": ("dqn", "dqn")}, "different agents"),
        ({"envs": deep_sea_envs([4, 4])}, "different environments"),
        ({"seeds": (0, 0)}, "different seeds"),
        ({"seeds": (2**31,)}, "seed <= 2147483647"),
        ({"until": 9}, "until <= 8"),
        ({"until": -3}, "until >= 1"),
        ({"episodes": 3_000_000_000}, "episodes <= 2147483646"),
    ],
)
def test_impossible_sweeps_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        remaining_groups(group_runs(**sea(**wrong), options=OPTIONS), Path("nowhere"), False)


def test_failed_runs_stay_failed(tmp_path):
    bad = sea(agents=("dqn",), fields=TINY | {"learning_rate": 1e38})
    sweep(bad, tmp_path)
    groups, ended = remaining_groups(group_runs(**bad, options=OPTIONS), tmp_path, True)
    assert not groups
    assert ended == {"failed": 4}


def test_a_padded_run_can_be_inspected(tmp_path, capsys):
    from winkel.cli import main

    what = dict(envs=("deep_sea/0",), agents=("dqn",), seeds=(0,), episodes=4, fields=TINY)
    sweep(what, tmp_path)
    folder = str(tmp_path / "deep_sea" / "dqn" / "0" / "seed-0")
    main(["inspect", folder, "--at", "1,1", "--formats", "png"])
    assert "action 1: value" in capsys.readouterr().out
    with np.load(tmp_path / "deep_sea/dqn/0/seed-0/inspect.npz") as arrays:
        dark = arrays["observation"] == 0
        assert dark[1, 1]
        assert dark.sum() == 1
    with pytest.raises(SystemExit):
        main(["inspect", folder, "--at", "1,10"])
    assert "within 10 x 10" in capsys.readouterr().err


def change_config(folder, *, sign=False, **entries):
    """Change a config; `sign` gives it the fingerprint of its new settings."""
    config = json.loads((folder / "config.json").read_text()) | entries
    if sign:
        config["fingerprint"] = run_fingerprint(config)
    (folder / "config.json").write_text(json.dumps(config))


def test_problems_are_told_and_hide_nothing_else(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole[0], copy)
    runs = sorted(copy.glob("*/*/*/seed-*"))
    change_config(runs[0], versions=[1])
    change_config(runs[1], seed=9)
    change_config(runs[2], agent="\udcff")
    (runs[4] / "config.json").write_text("[" * 100_000)
    np.savez(runs[5] / "episodes.npz", **{"return": np.zeros(1), "length": np.ones(1)})
    folder = os.fsdecode(bytes(copy / "deep_sea") + b"/\xff/size=3/seed-0")
    shutil.copytree(runs[6], folder)
    (copy / "sweeps.jsonl").write_text("no JSON\n{}\n")
    results = read_results(copy)
    assert len(results.records) == 3
    told = "\n".join(results.problems)
    for words in (
        "need versions in the config", "was changed", "need UTF-8", "is not JSON",
        "episodes that the run has made", r"\udcff/size=3/seed-0: belongs in",
        "sweeps.jsonl", "some agents have fewer",
    ):  # fmt: skip
        assert words in told
    told.encode()


def test_other_settings_under_one_name_are_told(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole[0], copy)
    folder = next(iter(sorted(copy.glob("*/*/*/seed-0"))))
    change_config(folder, hyper={"gamma": 0.5}, sign=True)
    assert any("runs differ: " in problem for problem in read_results(copy).problems)
