"""Manifests and shards: each run once, in any order, with the bytes of a plain sweep."""

import dataclasses
import json
import os
import signal
from collections import Counter

import pytest

from cluster.shards import OPTIONS, records, sea
from winkel.cluster.shards import (
    _environment,
    plan_manifest,
    read_manifest,
    read_progress,
    run_shard,
)
from winkel.commands.shard import stop_at_signals
from winkel.errors import InputError
from winkel.files import hold_runs
from winkel.runs.sweep import group_runs, remaining_groups, run_sweep

LANES = 2


@pytest.fixture(scope="module")
def manifest():
    return plan_manifest(sea(), OPTIONS, lanes=LANES, shard_runs=None)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain")
    groups, _ = remaining_groups(group_runs(sea(), OPTIONS), out, False)
    run_sweep(sea(), groups, out, lanes=LANES)
    return records(out)


def test_every_run_is_in_one_shard_of_one_program(manifest):
    runs = Counter(run for shard in manifest.shards for run in shard.runs)
    assert runs == Counter(sea().items())
    assert [len(shard.runs) for shard in manifest.shards] == [2, 2, 1, 2, 2, 1]
    assert {shard.lanes for shard in manifest.shards} == {LANES}
    assert all(len({env for env, *_ in shard.runs}) == 1 for shard in manifest.shards)
    with pytest.raises(InputError, match="from 0 to 5, got 6"):
        manifest.shard(6)


def test_a_shard_may_have_more_runs_than_lanes_but_no_idle_lanes():
    assert [len(s.runs) for s in plan_manifest(sea(), OPTIONS, 2, 4).shards] == [4, 1, 4, 1]
    fewer = plan_manifest(sea(), OPTIONS, lanes=None, shard_runs=3).shards
    assert [(len(s.runs), s.lanes) for s in fewer] == [(3, 3), (2, 3)] * 2
    with pytest.raises(InputError, match=r"shard-runs >= --lanes.* got 1 and 2"):
        plan_manifest(sea(), OPTIONS, lanes=2, shard_runs=1)
    with pytest.raises(InputError, match="shard_runs >= 1"):
        plan_manifest(sea(), OPTIONS, lanes=2, shard_runs=0)


def test_ids_are_stable_and_differ_with_runs_and_lanes(manifest):
    assert plan_manifest(sea(), OPTIONS, lanes=2, shard_runs=None).id == manifest.id
    more = plan_manifest(sea(seeds=(0, 1, 2, 3, 4, 5)), OPTIONS, lanes=2, shard_runs=None)
    assert more.shards[0] == manifest.shards[0]
    assert more.id != manifest.id
    others = [
        plan_manifest(sea(episodes=13), OPTIONS, lanes=2, shard_runs=None),
        plan_manifest(sea(), OPTIONS, lanes=1, shard_runs=2),
    ]
    assert len({m.shards[0].id for m in (manifest, *others)}) == 3


def test_a_written_manifest_reads_back_equal(manifest, tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text(manifest.to_json())
    assert read_manifest(path) == manifest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"winkel": "0.0.1"}, "was written by winkel 0.0.1, this is .*; use that version"),
        ({"shards": [{"id": 1}]}, "was changed"),
        ("{", "is not JSON"),
        ("[]", "is no manifest"),
        ("{}", "is no manifest"),
        (None, "cannot read .*: No such file"),
    ],
)
def test_other_files_are_refused(manifest, tmp_path, text, message):
    path = tmp_path / "manifest.json"
    if isinstance(text, dict):
        text = json.dumps(json.loads(manifest.to_json()) | text)
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_manifest(path)


@pytest.mark.parametrize("shard_runs", [None, 3])
def test_shards_in_any_order_write_the_records_of_a_plain_sweep(plain, tmp_path, shard_runs):
    manifest = plan_manifest(sea(), OPTIONS, lanes=LANES, shard_runs=shard_runs)
    outcomes = [run_shard(manifest, k, tmp_path) for k in reversed(range(len(manifest.shards)))]
    assert sum(outcome["runs"]["finished"] for outcome in outcomes) == 10
    assert {cost["lanes"] for outcome in outcomes for cost in outcome["groups"]} == {LANES}
    assert len(plain) == 40
    assert records(tmp_path) == plain


def test_a_shard_that_has_ended_is_not_run_again(manifest, tmp_path):
    assert read_progress(tmp_path, manifest.shards[0]) == []
    first = run_shard(manifest, 0, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/*/seed-*/*")}
    again = run_shard(manifest, 0, tmp_path)
    assert [list(row["runs"].values()) for row in (first, again)] == [[2, 0, 0], [0, 0, 2]]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    statuses = read_progress(tmp_path, manifest.shards[0])
    assert [status.state for status in statuses] == ["finished"] * 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_stops_after_the_chunk_with_checkpoints(manifest, plain, tmp_path, number):
    chunks = []

    def warn(statuses):
        chunks.append(statuses)
        os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt), stop_at_signals():
        run_shard(manifest, 0, tmp_path, progress=warn)
    assert len(chunks) == 1
    assert signal.getsignal(number) == signal.SIG_DFL
    begun = sorted(tmp_path.glob("*/*/*/seed-*/checkpoint"))
    assert len(begun) == 2
    assert not [folder for folder in begun if (folder.parent / "config.json").exists()]
    run_shard(manifest, 0, tmp_path)
    made = records(tmp_path)
    assert len(made) == 8
    assert made == {name: plain[name] for name in made}
    rows = [json.loads(line) for line in (tmp_path / "sweeps.jsonl").read_text().splitlines()]
    assert [row["status"] for row in rows] == ["interrupted", "ended"]
    assert rows[1]["seeds"] == [0, 1]


def test_only_the_first_signal_counts():
    def send_both():
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # would end the process

    with pytest.raises(KeyboardInterrupt), stop_at_signals():
        send_both()


def test_a_shard_does_not_run_twice_at_once(manifest, tmp_path):
    def second(statuses):
        run_shard(manifest, 0, tmp_path, wait=0.0)

    name = rf"winkel shard 0 on {os.uname().nodename}, process {os.getpid()}, since 2"
    with pytest.raises(InputError, match=f"is being written by {name}"):
        run_shard(manifest, 0, tmp_path, progress=second)


def test_a_sweep_and_shards_refuse_each_other(manifest, tmp_path):
    runs = manifest.sweep.folders(tmp_path)
    with (
        hold_runs(tmp_path, runs, "winkel sweep"),
        pytest.raises(InputError, match="is being written by winkel sweep on"),
    ):
        run_shard(manifest, 0, tmp_path, wait=0.0)
    assert not list(tmp_path.glob("*/*/*/seed-*"))


def test_other_runs_than_planned_are_refused(manifest, tmp_path):
    shard = dataclasses.replace(manifest.shards[0], id="0123456789abcdef")
    foreign = dataclasses.replace(manifest, shards=(shard,))
    with pytest.raises(InputError, match="other runs here than where it was planned"):
        run_shard(foreign, 0, tmp_path)
    assert not list(tmp_path.glob("*/*/*/seed-*"))


def test_workers_of_ray_read_mnist_from_the_folder_of_the_driver(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WINKEL_MNIST", "mine")
    assert _environment(gpus=0.0)["WINKEL_MNIST"] == str(tmp_path / "mine")
