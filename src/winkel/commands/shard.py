"""`winkel shard`, and `winkel sweep` in shards: write a manifest, run it on Ray."""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import tyro

from winkel.cluster.ray import connect, run_on_ray
from winkel.cluster.shards import (
    MANIFEST,
    SHARDS,
    Manifest,
    hold_lock,
    lock_folder,
    read_manifest,
    run_shard,
)
from winkel.cluster.slurm import STOPPED
from winkel.commands.terminal import say
from winkel.commands.train import Display
from winkel.errors import InputError
from winkel.files import write_text
from winkel.runs.recorder import Status
from winkel.runs.sweep import remaining_groups
from winkel.training.programs import make_deterministic


@dataclass(frozen=True, kw_only=True)
class ShardCommand:
    """Run one shard of a sweep into the folder of its manifest; run it again to continue it.

    On SIGTERM, SIGUSR1 or Ctrl-C, write checkpoints and exit with status 75.
    """

    manifest: tyro.conf.Positional[Path]
    """Manifest that `winkel sweep … --plan-only` has written."""
    number: tyro.conf.Positional[int]
    """Number of the shard, from 0."""

    def run(self) -> None:
        """Run what is left of the shard."""
        manifest = read_manifest(self.manifest)
        shard = manifest.shard(self.number)
        if manifest.deterministic:
            make_deterministic()
        say(f"shard {self.number}: {len(shard.runs)} runs, {shard.group}, {shard.lanes} lanes")
        try:
            with stop_at_signals(), Display(f"shard {self.number}") as display:
                outcome = run_shard(
                    manifest, self.number, self.manifest.parent, display.update, display.say
                )
        except KeyboardInterrupt:
            print("winkel: stopped; run the shard again to continue", file=sys.stderr)  # noqa: T201
            raise SystemExit(STOPPED) from None
        runs = outcome["runs"]
        say(
            f"finished {runs['finished']}, failed {runs['failed']}, found ended {runs['before']}; "
            f"{outcome['seconds']:,.0f} s"
        )


@contextlib.contextmanager
def stop_at_signals() -> Iterator[None]:
    """Make the first SIGTERM or SIGUSR1 act like Ctrl-C, which stops after a chunk of steps.

    A shell starts background jobs with SIGINT ignored; here it is handled again.
    """

    def stop(*_: Any) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGUSR1)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def run_with_ray(
    plan: Callable[[float], Manifest],
    out: Path,
    resume: bool,
    address: str | None,
    cpus: float,
    gpus: float | None,
    retries: int,
) -> None:
    """Run all shards on a Ray cluster with a display.

    Args:
        plan: returns the manifest for a number of GPUs of a shard.
        out: the results folder.
        resume: whether the folder may have runs.
        address: of the cluster; None to start one on this machine.
        cpus: of a shard.
        gpus: of a shard; None for 1 where the cluster has any, else 0.
        retries: how often Ray tries a shard again whose worker or node is lost.
    """
    if min(cpus, gpus or 0, retries) < 0:
        raise InputError(
            "need CPUs, GPUs and retries of a shard >= 0, "
            f"got {cpus:g}, {gpus or 0:g} and {retries}"
        )
    if gpus is not None and gpus > 1 and gpus != int(gpus):
        raise InputError(f"need a part of one GPU or whole ones, got {gpus:g}")
    with connect(address) as ray:
        if gpus is None:
            gpus = 1.0 if ray.cluster_resources().get("GPU") else 0.0
        _check_fits(ray, cpus, gpus)
        jax.config.update("jax_platforms", "cpu")  # GPUs are for the workers
        manifest = plan(gpus)
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

            counts = run_on_ray(ray, manifest, out, cpus, gpus, retries, show, display.say)
    say(
        f"finished {counts[0]}, failed {counts[1]}, found finished {counts[2]}; "
        f"{time.perf_counter() - begin:,.0f} s"
    )
    say(f"runs: {out}")


def _check_fits(ray: Any, cpus: float, gpus: float) -> None:
    """Raise if no node has the resources of a shard: Ray would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    sizes = [(node.get("CPU", 0), node.get("GPU", 0)) for node in nodes]
    if not any(most_cpus >= cpus and most_gpus >= gpus for most_cpus, most_gpus in sizes):
        raise InputError(
            f"need a node with {cpus:g} CPUs and {gpus:g} GPUs for a shard; "
            "the largest has {:g} and {:g}".format(*max(sizes))
        )
