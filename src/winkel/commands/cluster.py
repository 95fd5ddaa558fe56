"""`winkel sweep` with --plan-only or --cluster: write a manifest, run it on Ray or SLURM."""

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from winkel.cluster.ray import Resources, connect, run_on_ray
from winkel.cluster.shards import MANIFEST, SHARDS, Manifest, hold_lock, lock_folder
from winkel.cluster.slurm import write_script
from winkel.commands.terminal import say
from winkel.commands.train import Display
from winkel.errors import InputError
from winkel.files import write_text
from winkel.runs.recorder import Status
from winkel.runs.sweep import remaining_groups


def write_manifest(manifest: Manifest, out: Path, resume: bool) -> None:
    """Write the manifest into the results folder, and print what it holds."""
    path, text = out / MANIFEST, manifest.to_json()
    is_new = not path.exists() or path.read_text() != text
    if is_new and path.exists() and not resume:
        raise InputError(
            f"{path} is of another sweep; replace it with --resume, or choose another --out"
        )
    sweep, options, mnist_dir = manifest.sweep, manifest.options, manifest.mnist_dir
    folder = None if mnist_dir is None else Path(mnist_dir)
    _, ended = remaining_groups(sweep, out, options, folder, resume, write=False)
    if is_new:
        with lock_folder(out):
            write_text(path, text)
    sizes = [len(shard.runs) for shard in manifest.shards]
    lanes = sorted({shard.lanes for shard in manifest.shards})
    say(
        f"{manifest.num_runs} runs in {len(sizes)} shards of {min(sizes)} to {max(sizes)}, "
        f"in {' or '.join(map(str, lanes))} lanes"
    )
    say(f"{ended['finished']} finished before, {ended['failed']} failed before")
    say(f"manifest: {path}")


def write_job_array(manifest: Manifest, out: Path, script: Path, cpus: float, gpus: float) -> None:
    """Write the job array for SLURM, and print how to submit it."""
    write_script(script, manifest, out / MANIFEST, sys.executable, cpus, gpus)
    say(f"script: {script}; read it, then: sbatch {script}")


def run_with_ray(
    plan: Callable[[float], Manifest],
    out: Path,
    resume: bool,
    address: str | None,
    gpus: float | None,
    resources: Resources,
) -> None:
    """Run all shards on a Ray cluster with a display.

    Args:
        plan: returns the manifest for a number of GPUs of a shard.
        out: the results folder.
        resume: whether the folder may have runs.
        address: of the cluster; None to start one on this machine.
        gpus: of a shard; None for 1 where the cluster has any, else 0.
        resources: the other resources of a shard.
    """
    if gpus is not None:
        resources = dataclasses.replace(resources, gpus=gpus)
    with connect(address) as ray:
        if gpus is None and ray.cluster_resources().get("GPU"):
            resources = dataclasses.replace(resources, gpus=1.0)
        _check_fits(ray, resources)
        jax.config.update("jax_platforms", "cpu")  # GPUs are for the workers
        manifest = plan(resources.gpus)
        write_manifest(manifest, out, resume)
        begin = time.perf_counter()
        with (
            hold_lock(out / SHARDS / "driver.lock", "winkel sweep --cluster ray"),
            Display(f"{manifest.num_runs} runs") as display,
        ):

            def show(ended: set[int], by_shard: dict[int, list[Status]]) -> None:
                done = float(sum(len(manifest.shards[number].runs) for number in ended))
                for number in by_shard.keys() - ended:
                    done += sum(status.progress for status in by_shard[number])
                statuses = [status for found in by_shard.values() for status in found]
                statuses.sort(key=lambda status: status.state != "running")
                title = f"{len(ended)}/{len(manifest.shards)} shards"
                display.show(title, min(done / manifest.num_runs, 1.0), statuses)

            counts = run_on_ray(ray, manifest, out, resources, show, display.say)
    say(
        f"finished {counts[0]}, failed {counts[1]}, found finished {counts[2]}; "
        f"{time.perf_counter() - begin:,.0f} s"
    )
    say(f"runs: {out}")


def _check_fits(ray: Any, resources: Resources) -> None:
    """Raise if no node has the resources of a shard: Ray would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    sizes = [(node.get("CPU", 0), node.get("GPU", 0)) for node in nodes]
    if not any(cpus >= resources.cpus and gpus >= resources.gpus for cpus, gpus in sizes):
        cpus, gpus = max(sizes)
        raise InputError(
            f"need a node with {resources.cpus:g} CPUs and {resources.gpus:g} GPUs for a shard; "
            f"the largest has {cpus:g} and {gpus:g}"
        )
