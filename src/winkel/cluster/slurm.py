"""Write a manifest as a job array of SLURM: a script to read and edit."""

import shlex
import sys
from importlib import resources
from pathlib import Path

import jinja2

from winkel.cluster.shards import SHARDS, Manifest
from winkel.errors import InputError

STOPPED = 75
"""Exit status (EX_TEMPFAIL) of a shard that was stopped by a signal and can continue."""
WARNING = 120
"""Seconds between SLURM's signal and the time limit, enough for a chunk and checkpoints."""


def write_script(script: Path, manifest: Manifest, path: Path, cpus: float, gpus: float) -> None:
    """Write the job array for the manifest at `path`; shards write their logs beside it."""
    for name, count in (("--cpus-per-shard", cpus), ("--gpus-per-shard", gpus)):
        if count != int(count):
            raise InputError(f"need {name} to be a whole number for SLURM, got {count:g}")
    out = path.absolute().parent
    template = (resources.files("winkel.cluster") / "array.sbatch").read_text("utf-8")
    text = jinja2.Template(template, trim_blocks=True, keep_trailing_newline=True).render(
        runs=manifest.num_runs,
        shards=len(manifest.shards),
        last=len(manifest.shards) - 1,
        script=shlex.quote(script.name),
        cpus=max(int(cpus), 1),
        gpus=int(gpus),
        logs=out / SHARDS / "slurm-%A_%a.log",
        warning=WARNING,
        manifest=shlex.quote(str(path.absolute())),
        python=shlex.quote(sys.executable),
        stopped=STOPPED,
    )
    try:
        (out / SHARDS).mkdir(parents=True, exist_ok=True)  # SLURM does not create it
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text)
        script.chmod(0o755)
    except OSError as error:
        raise InputError(f"cannot write {script}: {error.strerror}") from error
