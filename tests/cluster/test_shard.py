"""Shards: in any order, interrupted or not, the records of a plain sweep, bit by bit."""

import dataclasses
import json
import os
import signal

import pytest

from cluster.shards import OPTIONS, records, sea
from winkel.cluster import locks
from winkel.cluster.locks import Lock
from winkel.cluster.manifest import planned
from winkel.cluster.progress import lock_path, told
from winkel.cluster.shard import SWEEP_LOCK, Stopped, run_shard, stopping_at_signals, sweeping
from winkel.errors import InputError
from winkel.runs.sweep import grouped, run_sweep

LANES = 2


@pytest.fixture(scope="module")
def manifest():
    return planned(sea(), OPTIONS, lanes=LANES, shard_runs=None)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain")
    groups, ended = grouped(sea(), out, OPTIONS, None, False)
    run_sweep(groups, ended, out, OPTIONS, lanes=LANES)
    return records(out)


@pytest.mark.parametrize("shard_runs", [None, 3])
def test_shards_in_any_order_make_the_records_of_a_plain_sweep(plain, tmp_path, shard_runs):
    manifest = planned(sea(), OPTIONS, lanes=LANES, shard_runs=shard_runs)
    outcomes = [run_shard(manifest, k, tmp_path) for k in reversed(range(len(manifest.shards)))]
    assert sum(outcome.finished for outcome in outcomes) == 10
    assert {cost.spent.lanes for outcome in outcomes for cost in outcome.groups} == {LANES}
    assert len(plain) == 40
    assert records(tmp_path) == plain
    assert not list((tmp_path / "shards").glob("*.lock*"))


def test_a_shard_that_has_ended_is_not_run_again(manifest, tmp_path):
    first = run_shard(manifest, 0, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/*/seed-*/*")}
    again = run_shard(manifest, 0, tmp_path)
    assert (first[:3], again[:3]) == ((2, 0, 0), (0, 0, 2))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [status.state for status in told(tmp_path, manifest.shards[0])] == ["finished"] * 2


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_the_chunk_leaves_checkpoints_and_the_rest_is_the_same(
    manifest, plain, tmp_path, which
):
    chunks = []

    def warn(group, statuses):
        chunks.append(statuses)
        os.kill(os.getpid(), which)

    with pytest.raises(Stopped, match=which.name), stopping_at_signals():
        run_shard(manifest, 0, tmp_path, progress=warn)
    assert len(chunks) == 1
    assert signal.getsignal(which) == signal.SIG_DFL
    begun = sorted(tmp_path.glob("*/*/*/seed-*/checkpoint"))
    assert len(begun) == 2
    assert not records(tmp_path).keys() & {
        f"{f.parent.relative_to(tmp_path)}/config.json" for f in begun
    }
    run_shard(manifest, 0, tmp_path)
    made = records(tmp_path)
    assert len(made) == 8
    assert made == {name: plain[name] for name in made}
    rows = [json.loads(line) for line in (tmp_path / "sweeps.jsonl").read_text().splitlines()]
    assert [row["status"] for row in rows] == ["interrupted", "ended"]
    assert rows[1]["seeds"] == [0, 1]


def test_more_signals_do_not_disturb_what_the_first_one_began():
    checkpoints = []

    def interrupted():
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGTERM)
            checkpoints.append("written")
            raise

    with pytest.raises(Stopped, match="SIGUSR1"), stopping_at_signals():
        interrupted()
    assert checkpoints == ["written"]


def test_two_runners_of_one_shard_are_one_too_many(manifest, tmp_path):
    def second(group, statuses):
        run_shard(manifest, 0, tmp_path)

    with pytest.raises(InputError, match=r"is held by shard 0 on .*, process \d+, since 2"):
        run_shard(manifest, 0, tmp_path, progress=second)


def test_another_sweep_on_the_folder_is_refused_either_way(manifest, tmp_path):
    other = planned(sea(agents=("bdqn",)), OPTIONS, lanes=LANES, shard_runs=None)
    with sweeping(tmp_path), pytest.raises(InputError, match="another sweep: winkel sweep on"):
        run_shard(manifest, 0, tmp_path)
    with Lock(lock_path(tmp_path, other.shards[0]), "shard 0", other.id):
        for own in (None, manifest):
            with (
                pytest.raises(InputError, match="another sweep: shard 0 on"),
                sweeping(tmp_path, own),
            ):
                pass
        with pytest.raises(InputError, match="another sweep: shard 0 on"):
            run_shard(manifest, 1, tmp_path)
        with sweeping(tmp_path, other):
            assert locks.read(tmp_path / SWEEP_LOCK).manifest == other.id
    with sweeping(tmp_path, manifest):
        assert run_shard(manifest, 5, tmp_path).finished == 1


def test_runs_that_are_others_than_were_planned_are_refused(manifest, tmp_path):
    shard = manifest.shards[0]._replace(id="0123456789abcdef")
    foreign = dataclasses.replace(manifest, shards=(shard,))
    with pytest.raises(InputError, match="other runs here than where it was planned"):
        run_shard(foreign, 0, tmp_path)
    assert not list(tmp_path.glob("*/*/*/seed-*"))
