"""`winkel sweep`: all settings, agents and seeds of an experiment of the paper."""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import tyro
from rich.table import Table

from winkel.agents import VARIANTS
from winkel.cluster.shards import MANIFEST, Manifest, lock_folder, plan_manifest
from winkel.cluster.slurm import write_script
from winkel.commands.shard import run_with_ray, write_manifest
from winkel.commands.terminal import console, say
from winkel.commands.train import Display
from winkel.errors import InputError, require_integer
from winkel.runs.recorder import Status
from winkel.runs.spec import Options, check_fields
from winkel.runs.sweep import (
    Group,
    Sweep,
    bsuite_envs,
    choose_lanes,
    deep_sea_envs,
    measure_speed,
    remaining_groups,
    run_sweep,
    write_log,
)
from winkel.runs.train import MAX_LANES
from winkel.training.programs import make_deterministic, make_mesh

STATISTICS = tuple(name for name in VARIANTS if name.startswith("statistic_"))
BASELINES = ("pe_dqn", "bdqn", "ids", "dltv")
ABLATIONS = ("pe_dqn_qr_qr", "pe_dqn_c51_c51", "pe_dqn_ind")
PAPER: dict[str, dict[str, Any]] = {
    "bsuite": {"agents": BASELINES, "seeds": 1, "episodes": None},
    "deep-sea": {
        "agents": BASELINES + ABLATIONS,
        "seeds": 10,
        "sizes": tuple(range(10, 101, 10)),
        "episodes": 10_000,
    },
    "statistics": {"agents": STATISTICS, "seeds": 30, "sizes": (50,), "episodes": 10_000},
}
"""Section 5: what each experiment of the paper ran (sizes of deep sea read off its figure)."""
LANE_UNIT = 8
"""On an accelerator, lanes are compacted to a multiple of this number."""
CHUNK_ON_ACCELERATOR = 200
"""Steps between two reports to the host, during which the accelerator waits."""
CHUNKS_LOGGED = 5
"""On an accelerator, chunks of a run between two lines of its metrics."""
COSTS = {
    "runs": "runs",
    "lanes": "lanes",
    "updates": "updates",
    "seconds": "seconds",
    "updates_per_second": "updates/s",
    "programs": "compiled",
    "compiling": "s compiling",
    "device": "s on device",
    "saving": "s saving",
}
"""Titles of what a group of runs took."""

Choice = tyro.conf.DisallowNone[bool | None]
"""A pair of flags, --x and --no-x; None if neither is given."""


@dataclass(frozen=True, kw_only=True)
class SweepCommand:
    """Run an experiment of the paper. Any field of the agents is an option: --hidden 64."""

    kind: tyro.conf.Positional[Literal["bsuite", "deep-sea", "statistics"]]
    """bsuite: its settings; deep-sea: several sizes; statistics: the moments of section 6.1."""
    agents: tuple[str, ...] = ()
    """Names from `winkel list agents`; pe_dqn by default, all moments for statistics."""
    seeds: int | None = None
    """Number of seeds, from FIRST_SEED on; 1 by default."""
    first_seed: int = 0
    """The lowest seed."""
    experiments: tuple[str, ...] = ()
    """For bsuite: only these of its 23 experiments."""
    sizes: tuple[int, ...] = ()
    """For deep-sea and statistics: sizes of deep sea; 10 by default."""
    episodes: int | None = None
    """Horizon of every run; bsuite's own by default."""
    until: int | None = None
    """Stop every run after so many episodes; schedules still use the full horizon."""
    paper: bool = False
    """Use the paper's agents, sizes, seeds and episodes if they are not given."""
    out: Path = Path("runs")
    """Folder for the runs."""
    resume: bool = False
    """Continue: finished runs are not repeated, begun ones are continued."""
    dry_run: bool = False
    """Run nothing; print the numbers of runs, programs and updates, and an estimate of the time."""
    lanes: int | None = None
    """Runs side by side; by default 8 on a CPU, elsewhere 256 or as many as fit into memory."""
    pack: Choice = None
    """For bsuite: pad settings of different experiments to one shape, so that they share a
    program; by default on an accelerator."""
    compact_lanes: Choice = None
    """Continue in fewer lanes if enough are idle; by default on an accelerator, except with
    --deterministic."""
    freeze_bonus: Choice = None
    """Stop learning PE-DQN's bonus once β is 0, which changes only what `winkel inspect` shows of
    it; with PE-DQN's kernels. By default for bsuite on an accelerator, except with
    --deterministic."""
    deterministic: bool = False
    """Compute the same bits each time on a GPU, more slowly; a CPU always does."""
    evaluate_every: int | None = None
    """Episodes between greedy evaluations; none by default, 200 with --paper."""
    checkpoint_seconds: float = 300.0
    """Least time between checkpoints."""
    mnist_dir: Path | None = None
    """Folder with MNIST's IDX files."""
    devices: int | None = None
    """Number of local devices; all by default, those of a shard with --cluster."""
    plan_only: bool = False
    """Run nothing; write OUT/manifest.json, the shards of which `winkel shard` runs anywhere."""
    cluster: Literal["ray", "slurm"] | None = None
    """Run shards as tasks of Ray, or write a job array for SLURM."""
    address: str | None = None
    """HOST:PORT of a Ray cluster, or auto; one on this machine by default."""
    script: Path | None = None
    """File for SLURM's job array."""
    shard_runs: int | None = None
    """Most runs of a shard; as many as it has lanes by default. It also limits the lanes."""
    cpus_per_shard: float = 1.0
    """CPUs that a shard takes."""
    gpus_per_shard: float | None = None
    """GPUs that a shard takes, or a part of one; by default 1 if there are any, else 0."""
    retries: int = 10
    """How often Ray tries a shard again whose worker or node is lost."""
    fields: tyro.conf.Suppress[dict[str, Any]] = field(default_factory=dict)
    """Fields of the agent, by the names that were typed."""

    def run(self) -> None:
        """Run here or on a cluster, or plan it."""
        self._check_options()
        if self.cluster == "ray":
            run_with_ray(
                *(self._plan, self.out, self.resume, self.address),
                *(self.cpus_per_shard, self.gpus_per_shard, self.retries),
            )
        elif self.cluster == "slurm" or self.plan_only:
            gpus = self.gpus_per_shard
            if gpus is None:
                gpus = float(jax.default_backend() != "cpu")
            manifest = self._plan(gpus)
            write_manifest(manifest, self.out, self.resume)
            if self.script is not None:
                path = self.out / MANIFEST
                write_script(self.script, manifest, path, self.cpus_per_shard, gpus)
                say(f"script: {self.script}; read it, then: sbatch {self.script}")
        else:
            self._run_here()

    def _check_options(self) -> None:
        """Raise if options exclude each other."""
        here = self.cluster is None and not self.plan_only
        if (self.cluster == "slurm") != (self.script is not None):
            raise InputError("need --cluster slurm and --script FILE together, got one of them")
        for name, value, right in (
            ("--address", self.address, self.cluster == "ray"),
            ("--shard-runs", self.shard_runs, not here),
            ("--gpus-per-shard", self.gpus_per_shard, not here),
        ):
            if value is not None and not right:
                other = "--cluster ray" if name == "--address" else "--cluster or --plan-only"
                raise InputError(f"need {name} with {other}, got it without")
        if self.dry_run and not here:
            raise InputError("need --dry-run without --cluster and --plan-only, got both")
        if self.plan_only and self.cluster == "ray":
            raise InputError("need --plan-only without --cluster ray, got both")
        if self.lanes is not None:
            require_integer("lanes", self.lanes, at_least=1)

    def _run_here(self) -> None:
        if self.deterministic:
            make_deterministic()
        devices = jax.local_device_count() if self.devices is None else self.devices
        make_mesh(devices)  # raises if there are fewer
        sweep, options = self._choose(jax.default_backend() != "cpu", devices)
        if self.dry_run:
            groups, _ = self._remaining(sweep, options)
            _print_estimate(groups, self.lanes)
            return
        with lock_folder(self.out):
            groups, ended = self._remaining(sweep, options)
            if groups:
                with Display(f"{sum(len(group.runs) for group in groups)} runs") as display:
                    show, log = partial(_show, display, groups), partial(write_log, self.out, sweep)
                    outcome = run_sweep(groups, ended, self.out, self.lanes, show, display.say, log)
                _print_costs(outcome)
        say(f"runs: {self.out}")

    def _remaining(self, sweep: Sweep, options: Options) -> tuple[list[Group], Counter[str]]:
        groups, ended = remaining_groups(
            sweep, self.out, options, self.mnist_dir, self.resume, write=not self.dry_run
        )
        count = sum(len(group.runs) for group in groups) + ended.total()
        say(f"{count} runs in {len(groups)} programs")
        say(f"{ended['finished']} finished before, {ended['failed']} failed before")
        return groups, ended

    def _choose(self, accelerated: bool, devices: int) -> tuple[Sweep, Options]:
        """What to run and how, by whether there is an accelerator."""
        fast, bsuite = accelerated and not self.deterministic, self.kind == "bsuite"
        packed = accelerated and bsuite if self.pack is None else self.pack
        compacts = fast if self.compact_lanes is None else self.compact_lanes
        freezes = compacts and bsuite if self.freeze_bonus is None else self.freeze_bonus
        if packed and not bsuite:
            raise InputError(f"need --pack for bsuite, got it for {self.kind}")
        every = 200 if self.paper and self.evaluate_every is None else self.evaluate_every
        options = Options(
            evaluate_every=every,
            checkpoint_seconds=self.checkpoint_seconds,
            chunk_steps=CHUNK_ON_ACCELERATOR if accelerated else 100,
            log_every=CHUNKS_LOGGED if accelerated else 1,
            compact_lanes=LANE_UNIT if compacts else None,
            freeze_bonus=freezes,
            compile_in_background=accelerated,
            devices=devices,
        )
        return self._sweep(packed), options

    def _plan(self, gpus: float) -> Manifest:
        """Split the sweep into shards with so many GPUs each."""
        devices = max(int(gpus), 1) if self.devices is None else self.devices
        sweep, options = self._choose(gpus > 0, devices)
        return plan_manifest(
            sweep,
            options,
            lanes=self.lanes,
            shard_runs=self.shard_runs,
            deterministic=self.deterministic,
            mnist_dir=self.mnist_dir,
            max_lanes=MAX_LANES * devices if gpus and jax.default_backend() == "cpu" else None,
        )

    def _sweep(self, packed: bool) -> Sweep:
        preset = PAPER[self.kind] if self.paper else {}
        default_agents = STATISTICS if self.kind == "statistics" else ("pe_dqn",)
        agents = tuple(self.agents or preset.get("agents", default_agents))
        wanted = preset.get("seeds", 1) if self.seeds is None else self.seeds
        seeds = require_integer("seeds", wanted, at_least=1)
        first = require_integer("first_seed", self.first_seed, at_least=0)
        if self.episodes is not None:
            require_integer("episodes", self.episodes, at_least=1)
        if self.kind == "bsuite":
            if self.sizes:
                raise InputError("need --experiments for bsuite, got --sizes; deep-sea takes those")
            envs = bsuite_envs(self.experiments or None)
        else:
            if self.experiments:
                raise InputError(f"need --sizes for {self.kind}, got --experiments")
            envs = deep_sea_envs(self.sizes or preset.get("sizes", (10,)))
        return Sweep(
            envs=envs,
            agents=agents,
            seeds=tuple(range(first, first + seeds)),
            episodes=self.episodes or preset.get("episodes"),
            until=self.until,
            padded=self.kind == "bsuite",
            packed=packed,
            fields=check_fields(agents, self.fields),
        )


def _show(display: Display, groups: list[Group], number: int, statuses: list[Status]) -> None:
    """Show the share of all runs that is done, and the running runs of one group."""
    sizes = [len(group.runs) for group in groups]
    share = (sum(sizes[:number]) + sum(status.progress for status in statuses)) / sum(sizes)
    running = [status for status in statuses if status.state == "running"]
    title = f"{groups[number].name}: {len(statuses) - len(running)}/{len(statuses)}"
    display.show(title, share, running or statuses)


def _print_costs(outcome: dict[str, Any]) -> None:
    """Print where the time went, by group and by experiment."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("group")
    for title in COSTS.values():
        table.add_column(title, justify="right")
    for group in outcome["groups"]:
        table.add_row(group["group"], *(f"{group[name]:,.0f}" for name in COSTS))
    console.print(table)
    say("updates: " + ", ".join(f"{name} {count:,}" for name, count in outcome["updates"].items()))
    say(f"compiled {outcome['programs']} programs in {outcome['compiling']:,.0f} s")
    runs = outcome["runs"]
    say(
        f"finished {runs['finished']}, failed {runs['failed']}, found finished {runs['before']}; "
        f"{outcome['seconds']:,.0f} s"
    )


def _print_estimate(groups: list[Group], lanes: int | None) -> None:
    """Print the size of a sweep, and its time from a chunk of the largest group."""
    if not groups:
        return
    largest = max(groups, key=lambda group: len(group.runs))
    rate, compiling = measure_speed(largest, lanes)
    runs = [run for group in groups for run in group.runs]
    episodes, most = sum(int(r.end.episodes) for r in runs), sum(r.max_steps or 0 for r in runs)
    say(f"{episodes:,} episodes, at most {most:,} updates")
    count = choose_lanes(largest, lanes)
    say(f"{largest.name}: {rate:,.0f} updates/s with {count} lanes, {compiling:.0f} s to compile")
    say(f"at that rate at most {(most / rate + compiling * len(groups)) / 3600:.1f} hours")
