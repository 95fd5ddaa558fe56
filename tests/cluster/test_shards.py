"""A sweep in shards: every run is in one, and together they write the records of the sweep."""

import itertools
import json
import os
import signal
from collections import Counter

import pytest

from cluster.shards import OPTIONS, SMALL, records, sea
from terminal_helpers import refused
from winkel import cli
from winkel.cluster import _environment
from winkel.commands.sweep import stop_at_signals
from winkel.files import hold_runs
from winkel.runs.sweep import group_runs, remaining_groups, run_sweep, split_groups, take_shard

SWEEP = [
    *("sweep", "deep-sea", "--sizes", "3", "4", "--agents", "dqn", "--seeds", "5", "--lanes", "2"),
    *("--episodes", "8", "--checkpoint-seconds", "0", *SMALL),
]


@pytest.fixture(scope="module")
def groups():
    return group_runs(**sea(), options=OPTIONS)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain")
    cli.main([*SWEEP, "--out", str(out)])
    return records(out)


def runs_of(groups):
    return [(run.task.id, run.label, run.seed) for group in groups for run in group.runs]


@pytest.mark.parametrize("count", [1, 2, 3, 6, 9])
def test_every_run_is_in_one_shard(groups, count):
    shards = [take_shard(groups, number, count, 2) for number in range(1, count + 1)]
    everything = itertools.product(*(sea()[name] for name in ("envs", "agents", "seeds")))
    assert Counter(run for shard in shards for run in runs_of(shard)) == Counter(everything)
    assert all(group.total == 5 for shard in shards for group in shard)  # decides the lanes
    assert sum(map(bool, shards)) == min(count, 6)


def test_parts_have_a_run_for_each_lane_and_the_longest_come_first(groups):
    parts = split_groups(groups, 2)
    assert [len(runs) for _, runs in parts] == [2, 2, 2, 2, 1, 1]
    assert [index for index, _ in parts] == [1, 1, 0, 0, 1, 0]  # size 4 has more steps than 3
    assert [len(runs) for _, runs in split_groups(groups, 8)] == [5, 5]


def test_shards_have_about_as_many_steps(groups):
    steps = [
        sum(run.max_steps for group in take_shard(groups, number, 3, 1) for run in group.runs)
        for number in (1, 2, 3)
    ]
    assert max(steps) - min(steps) <= 12 * 4  # at most the longest part


def test_shards_in_any_order_write_the_records_of_a_plain_sweep(plain, tmp_path, capsys):
    for number in (3, 1, 2):
        cli.main([*SWEEP, "--out", str(tmp_path), "--shard", f"{number}/3"])
    assert len(plain) == 40
    assert records(tmp_path) == plain
    capsys.readouterr()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/*/seed-*/*")}
    cli.main([*SWEEP, "--out", str(tmp_path), "--shard", "1/3", "--resume"])
    assert "3 finished before" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_more_shards_than_work_are_no_error(tmp_path, capsys):
    cli.main([*SWEEP, "--out", str(tmp_path), "--shard", "9/9"])
    assert "0 runs in 0 programs" in capsys.readouterr().out


@pytest.mark.parametrize("shard", ["0/3", "4/3", "3", "1/0", "-1/3", "a/b", "1/3/3"])
def test_other_shards_are_refused(tmp_path, capsys, shard):
    message = refused([*SWEEP, "--out", tmp_path / "out", f"--shard={shard}"], capsys)
    assert f"need a shard such as 3/12, from 1/12 to 12/12, got '{shard}'" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_stops_after_the_chunk_with_checkpoints(tmp_path, number):
    groups, _ = remaining_groups(group_runs(**sea(), options=OPTIONS), tmp_path, False)
    chunks = []

    def warn(*progress):
        chunks.append(progress)
        os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt), stop_at_signals():
        run_sweep(sea(), groups, tmp_path, 2, progress=warn)
    assert len(chunks) == 1
    assert signal.getsignal(number) == signal.SIG_DFL
    begun = sorted(tmp_path.glob("*/*/*/seed-*/checkpoint"))
    assert len(begun) == 2
    assert not [folder for folder in begun if (folder.parent / "config.json").exists()]
    rows = [json.loads(line) for line in (tmp_path / "sweeps.jsonl").read_text().splitlines()]
    assert [row["status"] for row in rows] == ["interrupted"]


def test_only_the_first_signal_counts():
    def send_both():
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # would end the process

    with pytest.raises(KeyboardInterrupt), stop_at_signals():
        send_both()


def test_a_folder_in_use_names_who_uses_it(tmp_path, capsys):
    run = tmp_path / "deep_sea/dqn/size=4/seed-1"
    with hold_runs(tmp_path, [run], "winkel train"):
        message = refused([*SWEEP, "--out", tmp_path, "--shard", "1/1"], capsys)
        writer = f"winkel train on {os.uname().nodename}, process {os.getpid()}"
        assert f"{run} is being written by {writer}" in message
    assert not list(tmp_path.glob("*/*/*/seed-*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--address", "here:1"), "need --address with --cluster ray"),
        (("--gpus-per-shard", "1"), "need --gpus-per-shard with --cluster"),
        (("--cluster", "ray", "--dry-run"), "need --cluster ray without --dry-run"),
        (("--cluster", "ray", "--shard", "1/2"), "need --cluster ray without --dry-run"),
        (("--cluster", "ray", "--cpus-per-shard", "-1"), "CPUs of a shard >= 0, got -1"),
        (("--cluster", "ray", "--gpus-per-shard", "2"), "one GPU for a shard or a part of one"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, capsys, options, words):
    assert words in refused([*SWEEP, "--out", tmp_path / "out", *options], capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9: "),
        ("nowhere.invalid:6379", "no Ray cluster answers at nowhere.invalid:6379: "),
        ("ray://here:10001", "need --address HOST:PORT of a Ray cluster, or auto"),
        ("here", "need --address HOST:PORT of a Ray cluster, or auto, got 'here'"),
    ],
)
def test_an_address_that_nobody_answers_at_is_one_line(tmp_path, capsys, address, words):
    arguments = [*SWEEP, "--out", tmp_path / "out", "--cluster", "ray", "--address", address]
    assert words in refused(arguments, capsys)
    assert not (tmp_path / "out").exists()


def test_workers_of_ray_read_mnist_from_the_folder_of_the_driver(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WINKEL_MNIST", "mine")
    assert _environment(gpus=0.0)["WINKEL_MNIST"] == str(tmp_path / "mine")
