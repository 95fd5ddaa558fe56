"""200 SIGKILLs at random moments, from the first import to the last write: nothing is lost.

Each command is started with `--resume`, killed after a random time, and started again, until it has
been killed as often as told; a command that ends before its time is compared and begun anew.
"""

import os
import random
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

from process_helpers import PATIENCE, finish, start
from search.processes import TRIALS, search_command
from winkel.errors import InputError
from winkel.runs.record import load_run
from winkel.search.study import is_counted, load_study

pytestmark = pytest.mark.long

SMALL = [*("--hidden", "8", "--batch-size", "8", "--burn-in", "8", "--capacity", "64")]
TRAIN = [
    *("train", "deep_sea:size=4", "--agent", "dqn", "--seeds", "2", "--episodes", "400", *SMALL),
    *("--chunk-steps", "20", "--checkpoint-seconds", "0", "--evaluate-every", "50"),
]
SWEEP = [
    *("sweep", "deep-sea", "--sizes", "3", "4", "--agents", "dqn", "--seeds", "3", *SMALL),
    *("--episodes", "100", "--checkpoint-seconds", "0", "--lanes", "2"),
]
SIMULATOR = [
    *("train", "gym:CartPole-v1", "--agent", "dqn", "--steps", "2000", "--num-envs", "2", *SMALL),
    *("--chunk-steps", "20", "--checkpoint-seconds", "0"),
]
RECORDS = ("config.json", "episodes.npz", "evaluations.npz", "metrics.jsonl", "snapshots.npz")


def records(out):
    """The bytes of all records of complete runs."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for config in out.glob("*/*/*/seed-*/config.json")
        for path in sorted(config.parent.iterdir())
        if path.name in RECORDS
    }


def kill_often(command, root, kills, longest, check, seed):
    """Kill a command as often as told, after at most `longest` seconds.

    `check` sees the folder after each kill and each end.
    """
    rng, number, made = random.Random(seed), 0, 0
    mark = f"WINKEL_TEST={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    environment = os.environ | {name: value, "JAX_COMPILATION_CACHE_DIR": str(root / "cache")}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    while made < kills:
        out = root / str(number)
        began = time.monotonic()
        process = start(command(out), environment)
        try:
            _, errors = process.communicate(timeout=rng.uniform(0.0, longest))
            assert process.returncode == 0, errors
            check(out, ended=True)
            number += 1
            longest = min(longest, time.monotonic() - began)  # so that most are killed
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate(timeout=PATIENCE)
            made += 1
            check(out, ended=False)
        wait_for_orphans(mark)
    finish(start(command(out), environment))
    check(out, ended=True)


def wait_for_orphans(mark):
    """Workers of a killed command end by themselves."""
    deadline = time.monotonic() + 30.0
    while left := [pid for pid in os.listdir("/proc") if pid.isdecimal() and has_mark(pid, mark)]:
        assert time.monotonic() < deadline, f"processes {left} outlive their command"
        time.sleep(0.05)


def has_mark(pid, mark):
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("options", "kills", "longest"),
    [pytest.param(TRAIN, 80, 9.0, id="train"), pytest.param(SWEEP, 60, 12.0, id="sweep")],
)
def test_killed_at_random_moments_the_records_are_byte_identical(tmp_path, options, kills, longest):
    def command(out):
        return [sys.executable, "-m", "winkel", *options, "--out", out, "--resume"]

    finish(start(command(tmp_path / "whole")))
    whole = records(tmp_path / "whole")
    assert whole
    kept = {}

    def check(out, ended):
        found = records(out)
        lost = [name for name, content in kept.get(out, {}).items() if found[name] != content]
        assert lost == []
        assert all(whole[name] == content for name, content in found.items())
        assert not ended or found.keys() == whole.keys()
        kept[out] = found

    kill_often(command, tmp_path, kills, longest, check, seed=1)


def test_killed_at_random_moments_a_simulator_run_keeps_its_episodes(tmp_path):
    """A resumed run begins new episodes; those of its last checkpoint stay."""
    kept = {}

    def command(out):
        return [sys.executable, "-m", "winkel", *SIMULATOR, "--out", out, "--resume"]

    def check(out, ended):
        folder = out / "gym/dqn/CartPole-v1/seed-0"
        try:
            run = load_run(folder, unfinished=True)
        except InputError:  # nothing was saved before
            assert out not in kept
            return
        before, now = kept.get(out, np.zeros(0)), run.episodes["return"]
        np.testing.assert_array_equal(now[: len(before)], before)
        assert not ended or run.config["status"] == "finished"
        kept[out] = now

    kill_often(command, tmp_path, 30, 12.0, check, seed=2)


def test_killed_at_random_moments_a_search_makes_each_trial_once(tmp_path):
    kept = {}

    def check(out, ended):
        try:
            trials = load_study(out).trials()
        except InputError:  # nothing was saved before
            assert out not in kept
            return
        complete = {t.number: t.values for t in trials if t.state.is_finished() and is_counted(t)}
        assert kept.get(out, {}).items() <= complete.items()
        if ended:
            rates = [t.params["learning_rate"] for t in trials if is_counted(t)]
            assert len(complete) == len(rates) == len(set(rates)) == TRIALS
        kept[out] = complete

    def command(out):
        try:
            resume = ["--resume"] if load_study(out) else []
        except InputError:  # it was killed before it had made one
            resume = []
        return search_command(out, tmp_path, *resume)

    kill_often(command, tmp_path, 30, 12.0, check, seed=3)
