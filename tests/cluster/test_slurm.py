"""The example of a job array, run by bash with SLURM's variables and a stand-in for `scontrol`."""

import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

from cluster.shards import SMALL, records
from process_helpers import PATIENCE, finish, start, wait_for
from winkel import cli

SCRIPT = Path(__file__).parents[2] / "examples/sweep.sbatch"
SWEEP = [
    *("sweep", "deep-sea", "--sizes", "4", "--agents", "dqn", "--seeds", "6", "--lanes", "2"),
    *("--episodes", "2000", "--checkpoint-seconds", "0", *SMALL),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """`scontrol` writes its arguments to a file."""
    tools = tmp_path_factory.mktemp("tools")
    (tools / "scontrol").write_text(f'#!/bin/bash\necho "$@" >> {tools}/calls\n')
    (tools / "scontrol").chmod(0o755)
    return os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "1234",
        "SCONTROL_CALLS": str(tools / "calls"),
    }


def job(environment, script, number):
    return start(["bash", script], environment | {"SLURM_ARRAY_TASK_ID": str(number)})


def stop(process, out, seeds, which):
    """Send a signal to the script once the shard has made a checkpoint; how it ended."""
    folders = [out / f"deep_sea/dqn/size=4/seed-{seed}/checkpoint" for seed in seeds]
    wait_for(lambda: all(any(f.glob("*.ckpt")) for f in folders), process)
    process.send_signal(which)
    _, errors = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in errors
    for seed in seeds:
        assert not (out / f"deep_sea/dqn/size=4/seed-{seed}/config.json").exists()
    return process.returncode, errors


@pytest.mark.long
def test_a_job_array_stopped_and_requeued_makes_the_records_of_a_plain_sweep(environment, tmp_path):
    plain, out, script = tmp_path / "plain", tmp_path / "out", tmp_path / "sea.sbatch"
    cli.main([*SWEEP, "--out", str(plain)])
    command = shlex.join([sys.executable, "-m", "winkel", *SWEEP, "--out", str(out)])
    text, changes = re.subn(r"(?m)^command=.*$", f"command=({command})", SCRIPT.read_text())
    text, more = re.subn(r"(?m)^shards=12$", "shards=3", text)
    assert changes == more == 1
    script.write_text(text)

    code, errors = stop(job(environment, script, 2), out, (2, 3), signal.SIGTERM)
    assert (code, "go on with --resume" in errors) == (130, True)
    assert not os.path.exists(environment["SCONTROL_CALLS"])
    code, errors = stop(job(environment, script, 3), out, (4, 5), signal.SIGUSR1)
    assert (code, "go on with --resume" in errors) == (0, True)
    with open(environment["SCONTROL_CALLS"]) as calls:
        assert calls.read() == "requeue 1234\n"

    for number in (1, 2, 3):
        assert "finished 2, failed 0, ended before 0" in finish(job(environment, script, number))
    assert len(records(plain)) == 24
    assert records(out) == records(plain)
