"""A sweep in shards: its manifest, a script for SLURM, and the runs of one shard.

The number of lanes decides how a program rounds. A shard fixes its number of lanes to that of a
plain sweep's whole group, so shards write the same bytes as a plain sweep.
"""

import dataclasses
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from winkel.errors import InputError, require_integer
from winkel.extensions import permitted
from winkel.files import ensure_folder, hold_runs, read_json, write_text
from winkel.runs.recorder import Status
from winkel.runs.spec import Options, RunSpec, fingerprint, run_folder
from winkel.runs.sweep import Item, Sweep, choose_lanes, group_runs, remaining_groups, run_sweep
from winkel.version import __version__

MANIFEST = "manifest.json"
SHARDS = "shards"
"""Folder beside the runs, with the progress of shards."""
PROGRESS_SECONDS = 1.0
"""Time between two writes of a shard's progress."""
STOPPED = 75
"""Exit status (EX_TEMPFAIL) of a shard that was stopped by a signal and can continue."""
WARNING = 120
"""Seconds between SLURM's signal and the time limit, enough for a chunk and checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Runs of one shape that run together, in so many lanes; `id` is a hash of both."""

    id: str
    group: str
    """Name of the program, for display."""
    lanes: int
    runs: tuple[Item, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A sweep in shards: each of its runs is in one. Folders are the same on all machines."""

    sweep: Sweep
    options: Options
    shards: tuple[Shard, ...]
    deterministic: bool = False

    @property
    def id(self) -> str:
        """Hash of the content."""
        return fingerprint(dataclasses.asdict(self))

    @property
    def num_runs(self) -> int:
        """Number of runs in all shards."""
        return sum(len(shard.runs) for shard in self.shards)

    def shard(self, number: int) -> Shard:
        """Return a shard; raise if there is none with this number."""
        if not 0 <= number < len(self.shards):
            raise InputError(f"need a shard from 0 to {len(self.shards) - 1}, got {number}")
        return self.shards[number]

    def to_json(self) -> str:
        """Return the text of the manifest's file."""
        head = {"winkel": __version__, "id": self.id}
        return json.dumps(head | dataclasses.asdict(self), indent=1) + "\n"


def plan_manifest(
    sweep: Sweep,
    options: Options,
    lanes: int | None,
    shard_runs: int | None,
    deterministic: bool = False,
    max_lanes: int | None = None,
) -> Manifest:
    """Split a sweep into shards of at most `shard_runs` runs, by default one run for each lane.

    A shard of fewer runs than lanes would waste lanes, so `shard_runs` also limits the lanes.
    Without `lanes`, a shard has at most `max_lanes`, or as many as a plain sweep on this machine.
    """
    if shard_runs is not None:
        require_integer("shard_runs", shard_runs, at_least=1)
        if lanes is not None and shard_runs < lanes:
            raise InputError(
                f"need --shard-runs >= --lanes, or lanes stay idle, got {shard_runs} and {lanes}"
            )
    shards = []
    for group in group_runs(sweep, options):
        count = choose_lanes(group, max_lanes if lanes is None else lanes)
        if lanes is None and shard_runs is not None:
            count = min(count, -(-shard_runs // options.devices) * options.devices)
        size = shard_runs or count
        for first in range(0, len(group.runs), size):
            runs = group.runs[first : first + size]
            items = tuple((run.task.id, run.label, run.seed) for run in runs)
            name = _shard_id(runs, count)
            shards.append(Shard(id=name, group=group.name, lanes=count, runs=items))
    return Manifest(sweep=sweep, options=options, shards=tuple(shards), deterministic=deterministic)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; raise unless this version of winkel wrote it and nobody changed it."""
    data = read_json(path)
    if not isinstance(data, dict) or not {"winkel", "id"} <= data.keys():
        raise InputError(f"{path} is no manifest; `winkel sweep … --manifest-only` writes one")
    version, written_id = data.pop("winkel"), data.pop("id")
    if version != __version__:
        raise InputError(
            f"{path} was written by winkel {version}, this is {__version__}; "
            "use that version, or plan again"
        )
    if fingerprint(data) != written_id:
        raise InputError(f"{path} was changed after it was written; plan again")
    data = _tuples(data)
    try:
        made = {"sweep": Sweep(**data["sweep"]), "options": Options(**data["options"])}
        shards = tuple(Shard(**shard) for shard in data["shards"])
        return Manifest(**data | made | {"shards": shards})
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no manifest: {error!r}; plan again") from error


def run_shard(
    manifest: Manifest,
    number: int,
    out: Path,
    progress: Callable[[list[Status]], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    wait: float = 1.0,
) -> dict[str, Any]:
    """Run what is left of a shard: skip ended runs, continue begun ones from their checkpoints.

    Wait so many seconds for another process that writes one of them. Return what `run_sweep` does.
    """
    shard, sweep = manifest.shard(number), manifest.sweep
    folders = [run_folder(out, *run) for run in shard.runs]
    with hold_runs(out, folders, f"winkel shard {number}", wait):
        found = group_runs(sweep, manifest.options, shard.runs)
        if len(found) != 1 or _shard_id(found[0].runs, shard.lanes) != shard.id:
            raise InputError(
                f"shard {number} has other runs here than where it was planned; "
                "use the same winkel on all machines, or plan again"
            )
        groups, ended = remaining_groups(found, out, resume=True)
        groups = [group._replace(total=max(group.total, shard.lanes)) for group in groups]
        written = -PROGRESS_SECONDS

        def show(_: int, statuses: list[Status]) -> None:
            nonlocal written
            ended = all(status.state != "running" for status in statuses)
            if ended or time.monotonic() - written >= PROGRESS_SECONDS:
                written = time.monotonic()
                write_text(out / SHARDS / f"{shard.id}.json", json.dumps(statuses) + "\n")
            progress(statuses)

        envs, agents, seeds = (tuple(dict.fromkeys(x)) for x in zip(*shard.runs, strict=True))
        part = dataclasses.replace(sweep, envs=envs, agents=agents, seeds=seeds)
        return run_sweep(part, groups, out, shard.lanes, ended.total(), show, notice)


def write_script(script: Path, manifest: Manifest, path: Path, cpus: float, gpus: float) -> None:
    """Write a job array of SLURM, to read and edit; logs are written beside the manifest."""
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
        code="".join(f"--code {shlex.quote(name)} " for name in permitted()),
    )
    ensure_folder(out / SHARDS)  # SLURM does not create it
    write_text(script, text)
    script.chmod(0o755)


def read_progress(out: Path, shard: Shard) -> list[Status]:
    """Read the last written status of a shard's runs; empty before the first."""
    try:
        rows = json.loads((out / SHARDS / f"{shard.id}.json").read_bytes())
    except FileNotFoundError:
        return []
    return [Status(*row) for row in rows]


def _shard_id(runs: Sequence[RunSpec], lanes: int) -> str:
    """Hash runs, in any order, and their number of lanes."""
    prints = sorted(run.config["fingerprint"] for run in runs)
    return fingerprint({"runs": prints, "lanes": lanes})


def _tuples(value: Any) -> Any:
    """Turn JSON's lists into tuples."""
    if isinstance(value, dict):
        return {name: _tuples(entry) for name, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
