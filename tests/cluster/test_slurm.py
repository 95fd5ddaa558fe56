"""The job array of a manifest, run by bash with SLURM's variables and a stand-in for `scontrol`."""

import os
import re
import signal
import subprocess
import sys

import pytest

from cluster.shards import SMALL, records
from process_helpers import PATIENCE, finish, start, wait_for
from terminal_helpers import refused
from winkel import cli

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
def test_a_job_array_stopped_and_requeued_makes_the_records_of_a_plain_sweep(
    environment, tmp_path, capsys
):
    plain, out, script = tmp_path / "plain", tmp_path / "out", tmp_path / "jobs" / "sea.sbatch"
    cli.main([*SWEEP, "--out", str(plain)])
    cli.main([*SWEEP, "--out", str(out), "--cluster", "slurm", "--script", str(script)])
    assert "6 runs in 3 shards" in capsys.readouterr().out
    text = script.read_text()
    for line in ("--array=0-2", "--requeue", "--signal=B:USR1@120", "--cpus-per-task=1"):
        assert f"#SBATCH {line}\n" in text
    logs = re.search(r"--output=(.*)/slurm-%A_%a.log", text)[1]
    assert os.path.isdir(logs)

    code, errors = stop(job(environment, script, 1), out, (2, 3), signal.SIGTERM)
    assert (code, "winkel: stopped" in errors) == (75, True)
    assert not os.path.exists(environment["SCONTROL_CALLS"])
    code, errors = stop(job(environment, script, 2), out, (4, 5), signal.SIGUSR1)
    assert (code, "winkel: stopped" in errors) == (0, True)
    with open(environment["SCONTROL_CALLS"]) as calls:
        assert calls.read() == "requeue 1234\n"

    for number in range(3):
        assert "finished 2, failed 0, found ended 0" in finish(job(environment, script, number))
    assert len(records(plain)) == 24
    assert records(out) == records(plain)


def test_the_script_is_of_whole_gpus_and_names_the_interpreter(tmp_path, capsys):
    out, script = tmp_path / "out with a space", tmp_path / "a.sbatch"
    arguments = [*SWEEP, "--out", str(out), "--cluster", "slurm", "--script", str(script)]
    message = refused([*arguments, "--gpus-per-shard", "0.5"], capsys)
    assert "--gpus-per-shard to be a whole number for SLURM, got 0.5" in message
    cli.main([*arguments, "--gpus-per-shard", "1", "--resume"])
    text = script.read_text()
    assert "#SBATCH --gpus-per-task=1\n" in text
    assert sys.executable in text
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert f"manifest='{out}/manifest.json'" in text
