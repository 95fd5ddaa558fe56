"""Shards on a real Ray cluster, from which workers and nodes are taken away."""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from cluster.shards import SMALL, records
from process_helpers import PATIENCE, start, wait_for
from terminal_helpers import last_line, refused
from winkel import cli
from winkel.cluster import SHARDS, connect, run_on_ray
from winkel.commands.sweep import SweepCommand, read_progress, run_shard
from winkel.errors import InputError
from winkel.files import WRITERS
from winkel.runs.sweep import take_shard

pytestmark = pytest.mark.cluster
SWEEP = [
    *("sweep", "deep-sea", "--sizes", "4", "5", "--agents", "dqn", "--seeds", "8", "--lanes", "2"),
    *("--episodes", "2000", "--checkpoint-seconds", "0", *SMALL),
]


@pytest.fixture(scope="module", autouse=True)
def _environment():
    """Of Ray's processes too, which step back for nobody."""
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # or on a busy machine they get next to no time
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield


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


def tasks(out):
    """The function that a worker runs, and the folders of the runs of each shard."""
    command = SweepCommand(
        kind="deep-sea", sizes=(4, 5), agents=("dqn",), seeds=8, lanes=2, episodes=2000,
        checkpoint_seconds=0.0, out=out, resume=True, allow_failures=True,
        fields={"hidden": (8,), "batch_size": 4, "burn_in": 8, "capacity": 32},
    )  # fmt: skip
    _, groups = command.groups()
    shards = {
        number: [
            run.folder(out) for group in take_shard(groups, number, 8, 2) for run in group.runs
        ]
        for number in range(1, 9)
    }
    assert [len(folders) for folders in shards.values()] == [2] * 8
    return partial(run_shard, command, 8), shards


def finished_runs(out):
    rows = [json.loads(line) for line in (out / "sweeps.jsonl").read_text().splitlines()]
    return sum(row["runs"]["finished"] for row in rows)


def process_entries(pid):
    """What the system tells of a process, beginning with its state and its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["gone", ""]


def worker_of(out, folders):
    """Process that writes the runs of a shard; None where nobody does."""
    run = str(folders[0].relative_to(out))
    for path in (out / WRITERS).glob("*.json"):
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            entry = json.loads(path.read_bytes())
            if run in entry["runs"]:
                try:
                    FileLock(path.with_suffix(".lock")).acquire(timeout=0).lock.release()
                except Timeout:
                    return int(re.search(r"process (\d+)", entry["writer"])[1])
    return None


@pytest.fixture
def in_the_middle():
    """Finds a node's worker in the middle of a shard, and has it stand still there."""
    stopped = []

    def is_under_way(out, number, folders, worker):
        return (
            worker_of(out, folders) == worker
            and any(status.updates for status in read_progress(out, number))
            and not any((run / "config.json").exists() for run in folders)
        )

    def find(out, shards, node):
        """Number and worker of a shard that has made updates, and of which no run has ended."""
        raylet = node.all_processes["raylet"][0].process.pid
        for number, folders in shards.items():
            worker = worker_of(out, folders)
            if worker is None or process_entries(worker)[1] != str(raylet):
                continue
            if is_under_way(out, number, folders, worker):
                stopped.append(worker)
                os.kill(worker, signal.SIGSTOP)
                wait_for(lambda pid=worker: process_entries(pid)[0] == "T")
                if is_under_way(out, number, folders, worker):
                    return number, worker
                os.kill(worker, signal.SIGCONT)
        return None

    yield find
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_a_killed_worker_and_a_lost_node_change_no_bit(two_nodes, in_the_middle, plain, tmp_path):
    """Both nodes are in the middle of a shard when a worker is killed, and one when it is lost."""
    cluster, second = two_nodes
    task, shards = tasks(tmp_path)
    held, happened = {}, []

    def both_are_held():
        for node in {cluster.head_node, second} - held.keys():
            if found := in_the_middle(tmp_path, shards, node):
                held[node] = found
        return len(held) == 2

    def disturb(runs_ended, waiting):
        ended = 8 - len(waiting)
        if not happened:
            wait_for(both_are_held)
            number, worker = held[cluster.head_node]
            os.kill(worker, signal.SIGKILL)
            os.kill(held[second][1], signal.SIGCONT)
            happened.append(("killed", number, ended))
            del shards[number]
        elif len(happened) == 1 and ended:
            number, worker = wait_for(lambda: in_the_middle(tmp_path, shards, second))
            cluster.remove_node(second, allow_graceful=False)
            os.kill(worker, signal.SIGKILL)
            happened.append(("lost", number, ended))

    def living():
        return len([node for node in ray.nodes() if node["Alive"]])

    with connect(cluster.address) as ray:
        assert living() == 2
        counts = run_on_ray(ray, task, 8, tmp_path, show=disturb)
        wait_for(lambda: living() == 1, poll=0.1)  # Ray gives a silent node some 15 s
    assert [what for what, *_ in happened] == ["killed", "lost"]
    assert 0 < happened[1][2] < 8
    assert counts.total() == 16
    assert finished_runs(tmp_path) == 16
    assert len(plain) == 16 * 4
    assert records(tmp_path) == plain


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_leave_checkpoints_and_resume_goes_on_to_the_same_records(plain, tmp_path, number):
    def sweep(*options):
        arguments = [*SWEEP, "--out", tmp_path, "--cluster", "ray", *options]
        return start([sys.executable, "-m", "winkel", *arguments], start_new_session=True)

    process = sweep()
    wait_for(lambda: list(tmp_path.glob("*/*/*/seed-*/config.json")), process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert "interrupted; go on with --resume" in errors
    assert "Traceback" not in errors
    done = records(tmp_path)
    assert 0 < len([name for name in done if name.endswith("config.json")]) < 16
    assert '"interrupted"' in (tmp_path / "sweeps.jsonl").read_text()  # Ray interrupted the tasks
    output, errors = sweep("--resume").communicate(timeout=PATIENCE)
    found = int(re.search(r"ended before (\d+);", output)[1])
    assert f"finished {16 - found}, failed 0" in output, errors
    assert records(tmp_path) == plain
    assert "Traceback" not in errors


def test_a_folder_that_is_not_shared_is_named_with_its_node(tmp_path):
    task, _ = tasks(tmp_path)

    def lose_the_folder(*_):
        shutil.rmtree(tmp_path / SHARDS, ignore_errors=True)

    with connect(None) as ray:
        message = rf"{tmp_path} on {os.uname().nodename} lacks the driver's file"
        with pytest.raises(InputError, match=message) as error:
            run_on_ray(ray, task, 8, tmp_path, show=lose_the_folder)
        assert "\n" not in str(error.value)


def test_what_no_node_has_is_refused_at_once(tmp_path, capsys):
    arguments = [*SWEEP, "--out", tmp_path, "--cluster", "ray", "--cpus-per-shard", "9999"]
    assert "need a node with 9999 CPUs and 0 GPUs for a shard" in refused(arguments, capsys)


def test_failed_runs_are_counted_and_exit_with_1(tmp_path, capsys):
    arguments = [*SWEEP, "--out", tmp_path, "--cluster", "ray", "--learning-rate", "1e38"]
    line = last_line(arguments, 1, capsys)
    assert line.startswith("winkel: 16 of 16 runs failed; the first: dqn in deep_sea:size=4, seed ")
    assert last_line([*arguments, "--resume"], 1, capsys) == line


def test_a_killed_worker_without_a_retry_is_one_line_and_resume_goes_on(plain, tmp_path):
    task, shards = tasks(tmp_path)
    killed = []

    def kill(*progress):
        workers = filter(None, (worker_of(tmp_path, runs) for runs in shards.values()))
        if not killed and (worker := next(workers, None)):
            killed.append(worker)
            os.kill(worker, signal.SIGKILL)

    with connect(None) as ray:
        with pytest.raises(InputError, match=r"1 of 8 shards did not end; shard \d: ") as error:
            run_on_ray(ray, task, 8, tmp_path, retries=0, show=kill)
        assert "\n" not in str(error.value)
        run_on_ray(ray, task, 8, tmp_path)
    assert records(tmp_path) == plain
