"""`winkel sweep` beyond this process: plans, Ray, SLURM."""

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from winkel.cluster import manifest as manifests
from winkel.cluster.manifest import MANIFEST, Manifest, planned
from winkel.cluster.on_ray import Ended, Resources, connected, run_on_ray
from winkel.cluster.shard import sweeping
from winkel.cluster.slurm import write_script
from winkel.commands.terminal import say
from winkel.commands.train import Display
from winkel.errors import InputError
from winkel.runs.session import Options, Status
from winkel.runs.sweep import Sweep, grouped


class Wanted(NamedTuple):
    """A sweep to be cut into shards, as the command line has it."""

    sweep: Sweep
    options: Options
    out: Path
    resume: bool
    lanes: int | None
    shard_runs: int | None
    most: int | None
    deterministic: bool
    mnist_dir: Path | None


def plan(wanted: Wanted) -> Manifest:
    """Write the manifest into the results folder, unless another sweep works there."""
    manifest = _planned(wanted)
    with sweeping(wanted.out, manifest):
        _write(manifest, wanted)
    return manifest


def _planned(wanted: Wanted) -> Manifest:
    return planned(
        wanted.sweep,
        wanted.options,
        wanted.lanes,
        wanted.shard_runs,
        wanted.deterministic,
        wanted.mnist_dir,
        wanted.most,
    )


def _write(manifest: Manifest, wanted: Wanted) -> None:
    path = wanted.out / MANIFEST
    if path.exists() and not wanted.resume and manifests.read(path).id != manifest.id:
        raise InputError(
            f"{path} is of another sweep; replace it with --resume, or choose another --out"
        )
    _, ended = grouped(
        wanted.sweep, wanted.out, wanted.options, wanted.mnist_dir, wanted.resume, write=False
    )
    manifest.write(path)
    sizes = [len(shard.runs) for shard in manifest.shards]
    lanes = sorted({shard.lanes for shard in manifest.shards})
    say(
        f"{manifest.num_runs} runs in {len(sizes)} shards of {min(sizes)} to {max(sizes)}, "
        f"in {' or '.join(map(str, lanes))} lanes"
    )
    say(f"{ended['finished']} finished before, {ended['failed']} failed before")
    say(f"manifest: {path}")


def submit_by_slurm(manifest: Manifest, out: Path, script: Path, cpus: float, gpus: float) -> None:
    """Write the job array, and say how to submit it."""
    write_script(script, manifest, out / MANIFEST, sys.executable, cpus, gpus)
    say(f"script: {script}; read it, then: sbatch {script}")


def run_with_ray(
    wanted: Callable[[float], Wanted],
    address: str | None,
    gpus: float | None,
    resources: Resources,
) -> None:
    """Run all shards on a cluster, and show how they stand."""
    if gpus is not None:
        resources = dataclasses.replace(resources, gpus=gpus)
    with connected(address) as ray:
        if gpus is None and ray.cluster_resources().get("GPU"):
            resources = dataclasses.replace(resources, gpus=1.0)
        _check_room(ray, resources)
        jax.config.update("jax_platforms", "cpu")  # GPUs are for workers
        chosen = wanted(resources.gpus)
        manifest = _planned(chosen)
        with sweeping(chosen.out, manifest):
            _write(manifest, chosen)
            begin = time.perf_counter()
            with _Board(manifest) as board:
                show, tell = board.update, board.display.say
                ended = run_on_ray(ray, manifest, chosen.out, resources, show, tell)
    counts = [sum(column) for column in zip(*(shard[:3] for shard in ended.values()), strict=True)]
    say(
        f"finished {counts[0]}, failed {counts[1]}, found finished {counts[2]}; "
        f"{time.perf_counter() - begin:,.0f} s"
    )
    say(f"runs: {chosen.out}")


def _check_room(ray: Any, resources: Resources) -> None:
    """Raise where no node has what a shard takes: it would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(
        node.get("CPU", 0) >= resources.cpus and node.get("GPU", 0) >= resources.gpus
        for node in nodes
    ):
        most = max((node.get("CPU", 0), node.get("GPU", 0)) for node in nodes)
        raise InputError(
            f"need a node with {resources.cpus:g} CPUs and {resources.gpus:g} GPUs for a shard; "
            f"the largest has {most[0]:g} and {most[1]:g}"
        )


class _Board:
    """One bar over all shards, with the runs that are under way below."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.display = Display(f"{manifest.num_runs} runs")
        self.updates: dict[int, list[Status]] = {}

    def __enter__(self) -> "_Board":
        self.display.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.display.__exit__(*exception)

    def update(self, ended: dict[int, Ended], told: dict[int, list[Status]]) -> None:
        """Show how far the sweep is, by runs."""
        self.updates |= {number: statuses for number, statuses in told.items() if statuses}
        done = float(sum(len(self.manifest.shards[number].runs) for number in ended))
        done += sum(status.progress for statuses in told.values() for status in statuses)
        seen = [status for statuses in self.updates.values() for status in statuses]
        seen.sort(key=lambda status: status.state != "running")
        title = f"{len(ended)}/{len(self.manifest.shards)} shards"
        self.display.show(title, min(done / self.manifest.num_runs, 1.0), seen)
