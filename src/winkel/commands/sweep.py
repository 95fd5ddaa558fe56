"""`winkel sweep`: an experiment of the paper, all its settings, agents and seeds."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro

from winkel.agents import VARIANTS
from winkel.cluster.on_ray import Resources
from winkel.cluster.shard import sweeping
from winkel.commands.backend import make_deterministic
from winkel.commands.cluster import Wanted, plan, run_with_ray, submit_by_slurm
from winkel.commands.sweep_display import Board, estimate, print_costs
from winkel.commands.terminal import say
from winkel.errors import InputError, require_integer
from winkel.runs.ledger import GroupCost, Outcome
from winkel.runs.session import Options
from winkel.runs.spec import parse_shared_overrides
from winkel.runs.sweep import (
    MOST_LANES,
    Group,
    Sweep,
    bsuite_envs,
    deep_sea_envs,
    grouped,
    run_sweep,
    write_log,
)
from winkel.training.mesh import make_mesh

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
"""Lanes that a program shrinks by on an accelerator; fewer than that are hardly faster."""
CHUNK_ON_ACCELERATOR = 200
"""Steps between two looks at the lanes, during which the accelerator has nothing to do."""
CHUNKS_LOGGED = 5
"""On an accelerator, chunks of a run for each line of its metrics."""

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(frozen=True, kw_only=True)
class SweepCommand:
    """Run an experiment of the paper. Any field of the agents is an option: --hidden 64."""

    kind: tyro.conf.Positional[Literal["bsuite", "deep-sea", "statistics"]]
    """bsuite: its settings; deep-sea: sizes; statistics: section 5.1, the moments on deep sea."""
    agents: tuple[str, ...] = ()
    """Names from `winkel list agents`; pe_dqn by default, all moments for statistics."""
    seeds: int | None = None
    """How many, from FIRST_SEED on; 1 by default."""
    first_seed: int = 0
    """The lowest seed."""
    experiments: tuple[str, ...] = ()
    """For bsuite: only these of its 23 experiments."""
    sizes: tuple[int, ...] = ()
    """For deep-sea and statistics: sizes of the sea; 10 by default."""
    episodes: int | None = None
    """Horizon of every run; bsuite's own by default."""
    until: int | None = None
    """Stop every run after so many episodes, although schedules go by the horizon."""
    paper: bool = False
    """The paper's agents, sizes, seeds and episodes, where not given."""
    out: Path = Path("runs")
    """Folder for the runs."""
    resume: bool = False
    """Go on: finished runs are not repeated, begun ones are continued."""
    dry_run: bool = False
    """Run nothing; say how many runs, programs and updates there are, and how long it may take."""
    lanes: int | None = None
    """Runs side by side; by default on an accelerator 256 or as many as there is memory for, on a
    CPU 8."""
    pack: Flag = False
    """For bsuite: settings of different experiments share a program, padded; the default on an
    accelerator."""
    no_pack: Flag = False
    """Only settings of one experiment share a program; the default on a CPU."""
    shrink: Flag = False
    """When enough lanes are idle, go on in a program of fewer; the default on an accelerator, but
    for --deterministic."""
    no_shrink: Flag = False
    """Leave idle lanes as they are; the default on a CPU, where runs are then the same bit by bit
    alone and in company."""
    rest: Flag = False
    """When β has fallen to 0 in all lanes, stop learning the bonus, which then changes nothing but
    what `winkel inspect` shows; with PE-DQN's kernels. The default for bsuite on an accelerator,
    but for --deterministic."""
    no_rest: Flag = False
    """Learn the bonus to the end; the default for everything else."""
    deterministic: bool = False
    """Have a GPU give the same bits each time, more slowly; a CPU does so anyway."""
    evaluate_every: int | None = None
    """Episodes between greedy evaluations; none by default, 200 with --paper."""
    checkpoint_seconds: float = 300.0
    """Time between checkpoints of unfinished runs."""
    mnist_dir: Path | None = None
    """Folder with MNIST's IDX files."""
    devices: int | None = None
    """Devices of this machine that lanes are spread over; all by default, those of a shard with
    --cluster."""
    plan_only: bool = False
    """Run nothing; write OUT/manifest.json, the shards of which `winkel shard` runs anywhere."""
    cluster: Literal["ray", "slurm"] | None = None
    """Run shards as tasks of Ray, or write a job array for SLURM."""
    address: str | None = None
    """HOST:PORT of a Ray cluster, or auto; one on this machine by default."""
    script: Path | None = None
    """File for SLURM's job array."""
    shard_runs: int | None = None
    """Most runs of a shard; as many as it has lanes by default. Fewer are lanes too, if those are
    not given."""
    cpus_per_shard: float = 1.0
    """CPUs that a shard takes."""
    gpus_per_shard: float | None = None
    """GPUs that a shard takes, or a part of one; by default 1 where there are any, else 0."""
    retries: int = 10
    """How often Ray tries a shard again whose worker or node is lost."""
    fields: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self) -> None:
        """Run what is not there yet, and count."""
        self._check_where()
        if self.lanes is not None:
            require_integer("lanes", self.lanes, at_least=1)
        if self.cluster == "ray":
            resources = Resources(cpus=self.cpus_per_shard, retries=self.retries)
            run_with_ray(self._wanted, self.address, self.gpus_per_shard, resources)
        elif self.cluster == "slurm" or self.plan_only:
            gpus = self.gpus_per_shard
            if gpus is None:
                gpus = float(jax.default_backend() != "cpu")
            manifest = plan(self._wanted(gpus))
            if self.script is not None:
                submit_by_slurm(manifest, self.out, self.script, self.cpus_per_shard, gpus)
        else:
            self._run_here()

    def _check_where(self) -> None:
        """Raise where options do not go together."""
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

    def _run_here(self) -> None:
        if self.deterministic:
            make_deterministic()
        accelerated = jax.default_backend() != "cpu"
        devices = jax.local_device_count() if self.devices is None else self.devices
        make_mesh(devices)  # raises where there are not so many
        sweep, options = self._settled(accelerated, devices)
        if self.dry_run:
            self._count(sweep, options, dry=True)
            return
        with sweeping(self.out):
            self._sweep_here(sweep, options)
        say(f"runs: {self.out}")

    def _count(
        self, sweep: Sweep, options: Options, dry: bool
    ) -> tuple[list[Group], Counter[str], int]:
        groups, ended = grouped(
            sweep, self.out, options, self.mnist_dir, self.resume, write=not dry
        )
        todo = sum(len(group.runs) for group in groups)
        say(f"{todo + ended.total()} runs in {len(groups)} programs")
        say(f"{ended['finished']} finished before, {ended['failed']} failed before")
        if dry:
            estimate(groups, self.lanes, options)
        return groups, ended, todo

    def _sweep_here(self, sweep: Sweep, options: Options) -> None:
        groups, ended, todo = self._count(sweep, options, dry=False)
        if not groups:
            return
        with Board(groups, todo) as board:
            begin, costs = time.perf_counter(), list[GroupCost]()
            show, tell = board.update, board.display.say
            try:
                outcome = run_sweep(groups, ended, self.out, options, self.lanes, show, tell, costs)
            except BaseException:
                seconds = time.perf_counter() - begin
                spent = Outcome(0, 0, ended.total(), seconds, tuple(costs))
                write_log(self.out, sweep, spent, status="interrupted")
                raise
        write_log(self.out, sweep, outcome)
        print_costs(outcome)
        say(
            f"finished {outcome.finished}, failed {outcome.failed}, found finished "
            f"{outcome.found}; {outcome.seconds:,.0f} s"
        )

    def _settled(self, accelerated: bool, devices: int) -> tuple[Sweep, Options]:
        """What to run and how, where it will be: on accelerators or not."""
        packed = _chosen("pack", self.pack, self.no_pack, accelerated and self.kind == "bsuite")
        shrinks = _chosen(
            "shrink", self.shrink, self.no_shrink, accelerated and not self.deterministic
        )
        rests = _chosen("rest", self.rest, self.no_rest, shrinks and self.kind == "bsuite")
        if packed and self.kind != "bsuite":
            raise InputError(f"need --pack for bsuite, got it for {self.kind}")
        options = Options(
            evaluate_every=self._evaluate_every,
            checkpoint_seconds=self.checkpoint_seconds,
            chunk_steps=CHUNK_ON_ACCELERATOR if accelerated else 100,
            log_every=CHUNKS_LOGGED if accelerated else 1,
            shrink=LANE_UNIT if shrinks else None,
            rest=rests,
            ahead=accelerated,
            devices=devices,
        )
        return self._sweep(packed), options

    def _wanted(self, gpus: float) -> Wanted:
        """The same as shards, each with so many GPUs."""
        devices = max(int(gpus), 1) if self.devices is None else self.devices
        sweep, options = self._settled(gpus > 0, devices)
        return Wanted(
            sweep=sweep,
            options=options,
            out=self.out,
            resume=self.resume,
            lanes=self.lanes,
            shard_runs=self.shard_runs,
            most=MOST_LANES * devices if gpus and jax.default_backend() == "cpu" else None,
            deterministic=self.deterministic,
            mnist_dir=self.mnist_dir,
        )

    @property
    def _evaluate_every(self) -> int | None:
        return 200 if self.paper and self.evaluate_every is None else self.evaluate_every

    def _sweep(self, packed: bool) -> Sweep:
        preset = PAPER[self.kind] if self.paper else {}
        default_agents = STATISTICS if self.kind == "statistics" else ("pe_dqn",)
        agents = self.agents or preset.get("agents", default_agents)
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
            agents=tuple(agents),
            seeds=tuple(range(first, first + seeds)),
            episodes=self.episodes or preset.get("episodes"),
            until=self.until,
            padded=self.kind == "bsuite",
            packed=packed,
            fields=parse_shared_overrides(tuple(agents), list(self.fields)),
        )


def _chosen(name: str, yes: bool, no: bool, default: bool) -> bool:
    if yes and no:
        raise InputError(f"need one of --{name} and --no-{name}, got both")
    return yes or (default and not no)
