"""Processes that are killed: the next one goes on as if nothing had happened."""

import os
import random
import re
import signal
import time

import pytest

from process_helpers import PATIENCE, finish, start_winkel, wait_for
from winkel.cli import main

# Chunks of 16 steps after 8 end in the middle of episodes of 5; there is a checkpoint after each.
LENGTH, CHUNK, BURN_IN = 5, 16, 8
RECORDS = ("config.json", "episodes.npz", "evaluations.npz", "metrics.jsonl", "snapshots.npz")
RUN = "deep_sea/qr_dqn/size=5/seed-0"
CHECKPOINT = re.compile(r"(\d{12})\.ckpt")
TEMPORARY = re.compile(r"\.\d{12}\.ckpt\..+")
TRAIN = [
    *("train", "deep_sea:size=5", "--agent", "qr_dqn", "--hidden", "16", "--num-atoms", "5"),
    *("--batch-size", "8", "--burn-in", str(BURN_IN), "--capacity", "64"),
    *("--chunk-steps", str(CHUNK), "--checkpoint-seconds", "0", "--evaluate-every", "20"),
]


def winkel(out, chunks, *options, before=""):
    """A process that trains for so many chunks."""
    return start_winkel(training(out, chunks, *options), before=before)


def training(out, chunks, *options):
    episodes = (BURN_IN + CHUNK * chunks) // LENGTH
    return [*TRAIN, "--episodes", str(episodes), "--out", str(out), *options]


def newest(folder):
    """Number of the newest checkpoint, 0 before the first."""
    names = os.listdir(folder) if folder.is_dir() else []
    return max((int(m[1]) for m in map(CHECKPOINT.fullmatch, names) if m), default=0)


def is_writing(folder):
    return any(TEMPORARY.fullmatch(name) for name in os.listdir(folder))


def kill_at_some_time(process, folder, rng):
    """After some more chunks, at any point of the next ones."""
    enough = newest(folder) + rng.randint(1, 8)
    wait_for(lambda: newest(folder) >= enough, process)
    time.sleep(rng.uniform(0.0, 0.02))
    process.kill()


def kill_in_the_middle_of_writing(process, folder, rng):
    """Stop it when a temporary file is there; if the file is still there then, kill."""
    enough = newest(folder) + rng.randint(1, 8)
    wait_for(lambda: newest(folder) >= enough, process)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        wait_for(lambda: is_writing(folder), process, poll=0.0)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if is_writing(folder):
            process.kill()
            return
        process.send_signal(signal.SIGCONT)
    pytest.fail("never met it writing")


def kill_and_resume(root, chunks, kills):
    """Kill as often as told, in both manners in turn; then let it finish. Both folders' records.

    Only what is killed needs a process.
    """
    rng = random.Random(0)
    main(training(root / "whole", chunks))
    folder = root / "killed" / RUN / "checkpoint"
    for number in range(kills):
        process = winkel(root / "killed", chunks, "--resume")
        kill = kill_in_the_middle_of_writing if number % 2 else kill_at_some_time
        kill(process, folder, rng)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL
        assert not (root / "killed" / RUN / "config.json").exists()
    main(training(root / "killed", chunks, "--resume"))
    assert not is_writing(folder)
    return records(root / "whole"), records(root / "killed")


def records(root):
    return {name: (root / RUN / name).read_bytes() for name in RECORDS}


def assert_same(whole, killed):
    assert [name for name in RECORDS if whole[name] != killed[name]] == []


def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(tmp_path):
    assert_same(*kill_and_resume(tmp_path, chunks=60, kills=2))


@pytest.mark.long
def test_twenty_kills(tmp_path):
    assert_same(*kill_and_resume(tmp_path, chunks=600, kills=20))


@pytest.mark.long
def test_ctrl_c_saves_the_run_and_exits_with_130(tmp_path):
    """Checkpoints are rare: the one that is there was written because of the interrupt."""
    finish(winkel(tmp_path / "whole", 120))
    rarely = ("--checkpoint-seconds", "1000", "--resume")
    process = winkel(tmp_path / "stopped", 120, *rarely)
    metrics = tmp_path / "stopped" / RUN / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 9, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert newest(tmp_path / "stopped" / RUN / "checkpoint") == 1
    finish(winkel(tmp_path / "stopped", 120, *rarely))
    assert_same(records(tmp_path / "whole"), records(tmp_path / "stopped"))


@pytest.mark.long
def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(tmp_path):
    finish(winkel(tmp_path / "whole", 6))
    checkpoints = tmp_path / "whole" / RUN / "checkpoint"
    limit = max(path.stat().st_size for path in checkpoints.iterdir()) - 1
    full = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    process = winkel(tmp_path / "full", 6, before=full)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    lines = [line for line in errors.splitlines() if line.startswith("winkel")]
    assert len(lines) == 1
    assert lines[0].startswith("winkel: error: cannot write")
    assert "Traceback" not in errors
    assert newest(tmp_path / "full" / RUN / "checkpoint") == 5
    finish(winkel(tmp_path / "full", 6, "--resume"))
    assert_same(records(tmp_path / "whole"), records(tmp_path / "full"))


SWEEP = [
    *("sweep", "deep-sea", "--sizes", "4", "5", "--agents", "dqn", "--seeds", "4"),
    *("--episodes", "160", "--hidden", "8", "--batch-size", "8", "--burn-in", "8"),
    *("--checkpoint-seconds", "0", "--lanes", "2"),
]


def episodes(out):
    paths = sorted(out.glob("*/*/*/seed-*/episodes.npz"))
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


def wait_for_another_checkpoint(out, process):
    """Or for the end of a sweep that needs none any more."""

    def count():
        return len(list(out.glob("*/*/*/seed-*/checkpoint/*.ckpt")))

    begun = count()
    wait_for(lambda: count() > begun or process.poll() is not None, poll=0.02)


@pytest.mark.parametrize(
    ("how", "times"),
    [
        pytest.param(signal.SIGKILL, 2, id="killed", marks=pytest.mark.long),
        pytest.param(signal.SIGINT, 1, id="interrupted"),
    ],
)
def test_a_sweep_that_is_stopped_loses_and_repeats_nothing(tmp_path, how, times, capsys):
    main([*SWEEP, "--out", str(tmp_path / "whole")])
    wanted = episodes(tmp_path / "whole")
    assert len(wanted) == 8
    chance, out, options, kept = random.Random(how), tmp_path / "stopped", [], {}
    for _ in range(times):
        process = start_winkel([*SWEEP, "--out", out, *options])
        options = ["--resume"]
        wait_for_another_checkpoint(out, process)
        time.sleep(chance.uniform(0.0, 1.0))
        process.send_signal(how)
        process.communicate(timeout=PATIENCE)
        assert all(episodes(out).get(name) == content for name, content in kept.items())
        kept = episodes(out)
    capsys.readouterr()
    main([*SWEEP, "--out", str(out), *options])
    assert f"{len(kept)} finished before" in capsys.readouterr().out
    assert episodes(out) == wanted
