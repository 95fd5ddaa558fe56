"""Write a manifest as a job array of SLURM: a script to read and edit."""

import shlex
from pathlib import Path

from winkel.cluster.shards import SHARDS, Manifest
from winkel.errors import InputError

STOPPED = 75
"""Exit status (EX_TEMPFAIL) of a shard that was stopped by a signal and can continue."""
WARNING = 120
"""Seconds between SLURM's signal and the time limit, enough for a chunk and checkpoints."""

_SCRIPT = """\
#!/bin/bash
# {runs} runs in {shards} shards, planned by `winkel sweep`; submit with: sbatch {script}
# Lines that begin with #SBATCH are SLURM's options: edit them for your cluster.
#SBATCH --job-name=winkel
#SBATCH --array=0-{last}
#SBATCH --time=24:00:00
#SBATCH --cpus-per-task={cpus}
{gpus}\
# After preemption or the loss of a node SLURM starts the shard again, from its checkpoints.
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={logs}
# {warning} s before the time limit this script (B:) is warned with USR1.
#SBATCH --signal=B:USR1@{warning}

manifest={manifest}
winkel=({python} -m winkel)

"${{winkel[@]}}" shard "$manifest" "$SLURM_ARRAY_TASK_ID" &
shard=$!

# On either signal the shard writes checkpoints and ends with status {stopped}. Only after USR1 does
# this script requeue the job: after TERM, SLURM itself knows whether it was preempted or cancelled.
warned=no
trap 'warned=yes; kill -USR1 "$shard" 2>/dev/null' USR1
trap 'kill -TERM "$shard" 2>/dev/null' TERM

# A signal interrupts `wait`, so wait until the shard has ended.
wait "$shard"; status=$?
while kill -0 "$shard" 2>/dev/null; do wait "$shard"; status=$?; done

if [ "$status" -ne 0 ] && [ "$warned" = yes ]; then
  scontrol requeue "$SLURM_JOB_ID" && exit 0
fi
# 0: all runs have ended; {stopped}: stopped, can continue; 2: the log's last line says why.
exit "$status"
"""


def write_script(
    script: Path, manifest: Manifest, path: Path, python: str, cpus: float, gpus: float
) -> None:
    """Write the job array for the manifest at `path`; shards write their logs beside it."""
    for name, count in (("--cpus-per-shard", cpus), ("--gpus-per-shard", gpus)):
        if count != int(count):
            raise InputError(f"need {name} to be a whole number for SLURM, got {count:g}")
    out = path.absolute().parent
    text = _SCRIPT.format(
        runs=manifest.num_runs,
        shards=len(manifest.shards),
        last=len(manifest.shards) - 1,
        script=shlex.quote(script.name),
        cpus=max(int(cpus), 1),
        gpus=f"#SBATCH --gpus-per-task={int(gpus)}\n#SBATCH --ntasks=1\n" if gpus else "",
        logs=str(out / SHARDS / "slurm-%A_%a.log"),
        warning=WARNING,
        manifest=shlex.quote(str(path.absolute())),
        python=shlex.quote(python),
        stopped=STOPPED,
    )
    try:
        (out / SHARDS).mkdir(parents=True, exist_ok=True)  # SLURM does not create it
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text)
        script.chmod(0o755)
    except OSError as error:
        raise InputError(f"cannot write {script}: {error.strerror}") from error
