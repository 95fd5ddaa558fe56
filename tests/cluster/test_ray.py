"""Shards on a real Ray cluster, from which workers and nodes are taken away."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from cluster.shards import records
from winkel import cli
from winkel.cluster import locks
from winkel.cluster.manifest import read
from winkel.cluster.on_ray import NotSharedError, Resources, connected, run_on_ray
from winkel.cluster.progress import lock_path

pytestmark = pytest.mark.cluster
PATIENCE = 300.0
SWEEP = [
    *("sweep", "deep-sea", "--sizes", "4", "5", "--agents", "dqn", "--seeds", "8", "--lanes", "2"),
    *("--episodes", "2000", "--hidden", "8", "--batch-size", "4", "--burn-in", "8"),
    *("--capacity", "32", "--checkpoint-seconds", "0"),
]


@pytest.fixture(scope="module", autouse=True)
def _programs_are_compiled_once(tmp_path_factory):
    """All processes, those of Ray too, read them from a folder."""
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("programs")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    yield
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain")
    cli.main([*SWEEP, "--out", str(out)])
    return records(out)


@pytest.fixture
def two_nodes():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster, second
    cluster.shutdown()


def planned(out):
    cli.main([*SWEEP, "--out", str(out), "--plan-only"])
    return read(out / "manifest.json")


def finished_runs(out):
    rows = [json.loads(line) for line in (out / "sweeps.jsonl").read_text().splitlines()]
    return sum(row["runs"]["finished"] for row in rows)


def test_a_killed_worker_and_a_lost_node_change_no_bit(two_nodes, plain, tmp_path):
    cluster, second = two_nodes
    manifest = planned(tmp_path)
    assert len(manifest.shards) == 8
    happened = []

    def disturb(ended, told):
        holders = {k: locks.read(lock_path(tmp_path, manifest.shards[k])) for k in told}
        begun = [k for k in told if told[k] and told[k][0].updates and holders[k]]
        if not happened and begun:
            os.kill(holders[begun[0]].pid, signal.SIGKILL)
            happened.append(("killed", begun[0], holders[begun[0]].pid))
        elif len(happened) == 1 and ended and begun:
            cluster.remove_node(second, allow_graceful=False)
            happened.append(("removed", tuple(begun), len(ended)))

    with connected(cluster.address) as ray:
        assert len([node for node in ray.nodes() if node["Alive"]]) == 2
        ended = run_on_ray(ray, manifest, tmp_path, Resources(cpus=1.0), disturb)
        assert len([node for node in ray.nodes() if node["Alive"]]) == 1
    assert [what[0] for what in happened] == ["killed", "removed"]
    assert happened[1][2] < 8
    assert sum(shard.finished for shard in ended.values()) == 16
    assert finished_runs(tmp_path) == 16
    assert len(plain) == 16 * 4
    assert records(tmp_path) == plain
    assert not list((tmp_path / "shards").glob("*.lock"))


def test_ctrl_c_leaves_checkpoints_and_resume_goes_on_to_the_same_records(plain, tmp_path):
    def start(*options):
        arguments = [*SWEEP, "--out", str(tmp_path), "--cluster", "ray", *options]
        return subprocess.Popen(
            [sys.executable, "-m", "winkel", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    process, deadline = start(), time.monotonic() + PATIENCE
    while not list(tmp_path.glob("*/*/*/seed-*/config.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert "interrupted; go on with --resume" in errors
    assert "Traceback" not in errors
    done = records(tmp_path)
    assert 0 < len([name for name in done if name.endswith("config.json")]) < 16
    assert not list((tmp_path / "shards").glob("*.lock"))
    assert not list((tmp_path / "shards").glob("token-*"))
    output, errors = start("--resume").communicate(timeout=PATIENCE)
    found = int(re.search(r"found finished (\d+);", output)[1])
    assert f"finished {16 - found}, failed 0" in output, errors
    assert records(tmp_path) == plain
    assert "Traceback" not in errors


def test_a_folder_that_is_not_shared_is_told_by_node_and_name(tmp_path):
    manifest = planned(tmp_path)

    def elsewhere(ended, told):
        for token in (tmp_path / "shards").glob("token-*"):
            token.unlink()

    with connected(None) as ray:
        message = rf"{tmp_path} on {os.uname().nodename} is not the folder"
        with pytest.raises(NotSharedError, match=message) as told:
            run_on_ray(ray, manifest, tmp_path, Resources(), elsewhere)
        assert "\n" not in str(told.value)
        assert not list(tmp_path.glob("*/*/*/seed-*"))


def test_what_no_node_has_is_refused_at_once(tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main([*SWEEP, "--out", str(tmp_path), "--cluster", "ray", "--gpus-per-shard", "64"])
    assert "need a node with 1 CPUs and 64 GPUs for a shard" in capsys.readouterr().err
