"""`winkel sweep`: all settings, agents and seeds of an experiment of the paper."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro

from winkel.agents import VARIANTS
from winkel.cluster import shards
from winkel.cluster.shards import connect, run_on_ray
from winkel.commands.options import Fields, File, check_fields, check_runs, console, make_table, say
from winkel.commands.shard import say_counts
from winkel.commands.train import Display
from winkel.errors import InputError, defer_interrupt, require_integer
from winkel.files import hold_runs, write_text
from winkel.runs import sweep as sweeps
from winkel.runs.record import load_run
from winkel.runs.recorder import Status
from winkel.runs.spec import MAX_RUNS, Options
from winkel.runs.train import MAX_LANES
from winkel.training.programs import start_jax

STATISTICS = tuple(name for name in VARIANTS if name.startswith("statistic_"))
BASELINES = ("pe_dqn", "bdqn", "ids", "dltv")
PAPER: dict[str, dict[str, Any]] = {
    "bsuite": {"agents": BASELINES, "seeds": 1, "episodes": None},
    "deep-sea": {
        "agents": (*BASELINES, "pe_dqn_qr_qr", "pe_dqn_c51_c51", "pe_dqn_ind"),
        "seeds": 10,
        "sizes": tuple(range(10, 101, 10)),
        "episodes": 10_000,
    },
    "statistics": {"agents": STATISTICS, "seeds": 30, "sizes": (50,), "episodes": 10_000},
}
"""Section 5: what each experiment of the paper ran (sizes of deep sea read off its figure)."""


@dataclass(frozen=True, kw_only=True)
class SweepCommand:
    """Run an experiment of the paper. Any field of the agents is an option: --hidden 64."""

    kind: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="KIND")]
    """bsuite: its settings; deep-sea: several sizes; statistics: the moments of section 6.1."""
    agents: tuple[str, ...] = ()
    """Names from `winkel list agents`; pe_dqn by default, all moments for statistics."""
    seeds: int | None = None
    """Number of seeds, from FIRST_SEED on; 1 by default."""
    first_seed: int = 0
    """The lowest seed."""
    experiments: tuple[str, ...] = ()
    """For bsuite: only these of its 23 experiments; mnist needs `winkel data mnist`."""
    sizes: tuple[int, ...] = ()
    """For deep-sea and statistics: sizes of deep sea; 10 by default."""
    episodes: int | None = None
    """Horizon of every run; bsuite's own by default."""
    solved_streak: int | None = None
    """End a run of deep sea after so many treasures in a row, once β and ε no longer change."""
    label: str | None = None
    """Name of the only agent in folders and figures."""
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
    pack: bool | None = None
    """For bsuite: pad experiments to one shape, for one program; by default on an accelerator."""
    compact_lanes: bool | None = None
    """Continue in fewer lanes if enough are idle; by default on an accelerator."""
    freeze_bonus: bool | None = None
    """Stop learning PE-DQN's bonus once β is 0; with PE-DQN's kernels. By default for bsuite on an
    accelerator."""
    snapshots: int = 6
    """Maps of visits, value, disagreement and bonus to keep of every run, where states are few."""
    chunk_steps: int | None = None
    """Steps between two reports to the host; 100 by default on a CPU, 200 elsewhere."""
    evaluate_every: int | None = None
    """Episodes between greedy evaluations; none by default, 200 with --paper."""
    checkpoint_seconds: float = 300.0
    """Least time between checkpoints."""
    allow_failures: bool = False
    """Exit with status 0 also if runs failed."""
    manifest_only: bool = False
    """Run nothing; write OUT/manifest.json, the shards of which `winkel shard` runs anywhere."""
    cluster: Literal["ray", "slurm"] | None = None
    """Run shards as tasks of Ray, or write a job array for SLURM."""
    address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """Address of a Ray cluster, or auto; one on this machine by default."""
    script: File = None
    """File for SLURM's job array."""
    shard_runs: int | None = None
    """Most runs of a shard; as many as it has lanes by default. It also limits the lanes."""
    cpus_per_shard: float = 1.0
    """CPUs that a shard takes."""
    gpus_per_shard: float | None = None
    """The GPU that a shard takes, or a part of it: 1 by default if there are any, else 0."""
    fields: Fields = field(default_factory=dict)

    def run(self) -> None:
        """Run here or on a cluster, or write a manifest."""
        self.check_options()
        if self.cluster == "ray":
            self._run_on_ray()
        elif self.cluster == "slurm" or self.manifest_only:
            start_jax()
            gpus = self.gpus_per_shard
            if gpus is None:
                gpus = float(jax.default_backend() != "cpu")
            manifest = self._write_manifest(gpus)
            if self.script is not None:
                path = self.out / shards.MANIFEST
                shards.write_script(self.script, manifest, path, self.cpus_per_shard, gpus)
                say(f"script: {self.script}; read it, then: sbatch {self.script}")
        else:
            self.run_here()

    def check_options(self) -> None:
        """Raise if options exclude each other."""
        if self.kind not in PAPER:
            raise InputError(f"need {', '.join(PAPER)} first, then options, got {self.kind!r}")
        ray, here = self.cluster == "ray", self.cluster is None and not self.manifest_only
        cpus, gpus = self.cpus_per_shard, self.gpus_per_shard
        script, slurm = self.script is not None, self.cluster == "slurm"
        broken = {
            "--cluster slurm and --script FILE together": script != slurm,
            "--address with --cluster ray": self.address is not None and not ray,
            "--shard-runs with --cluster or --manifest-only": self.shard_runs is not None and here,
            "--gpus-per-shard with --cluster or --manifest-only": gpus is not None and here,
            "--dry-run without --cluster and --manifest-only": self.dry_run and not here,
            "--manifest-only without --cluster ray": self.manifest_only and ray,
            "--allow-failures for `winkel shard`, not for a manifest": (
                self.allow_failures and not (here or ray)
            ),
            f"CPUs of a shard >= 0, got {cpus}": cpus < 0,
            f"one GPU for a shard or a part of one, got {gpus}": gpus and not 0 <= gpus <= 1,
        }
        for rule, is_broken in broken.items():
            if is_broken:
                raise InputError(f"need {rule}")
        if self.lanes is not None:
            require_integer("lanes", self.lanes, at_least=1)

    def groups(self) -> list[sweeps.Group]:
        """All runs, by the program that they share."""
        return sweeps.group_runs(*self._choose())

    def run_here(
        self, done: Collection[str] = (), check: Callable[[], None] = lambda: None
    ) -> None:
        """Run all but those with the fingerprints `done`.

        `check` is called after each chunk. If it raises KeyboardInterrupt, all runs are saved.
        """
        start_jax()
        sweep, options = self._choose()
        all_groups = sweeps.group_runs(sweep, options)
        for group in all_groups:
            sweeps.choose_lanes(group, self.lanes)  # raises if there is no memory for them
        if self.dry_run:
            groups, _ = self._remaining(all_groups, write=False, done=done)
            _print_estimate(groups, self.lanes)
            return
        with hold_runs(self.out, sweep.folders(self.out), "winkel sweep"):
            groups, ended = self._remaining(all_groups, write=True, done=done)
            if groups:
                sizes = [len(group.runs) for group in groups]
                with Display(f"{sum(sizes)} runs", sum(sizes)) as display:

                    def show(number: int, statuses: list[Status]) -> None:
                        over = sum(status.state != "running" for status in statuses)
                        title = f"{groups[number].name}: {over}/{len(statuses)}"
                        display.show(statuses, sum(sizes[:number]), title)
                        check()

                    outcome = sweeps.run_sweep(
                        sweep, groups, self.out, self.lanes, ended.total(), show, say
                    )
                _print_costs(outcome)
        say(f"runs: {self.out}")
        runs = [run for group in all_groups for run in group.runs]
        here = [run.folder(self.out) for run in runs if run.config["fingerprint"] not in done]
        check_runs(map(load_run, here), self.allow_failures)

    def _remaining(
        self, all_groups: list[sweeps.Group], write: bool, done: Collection[str] = ()
    ) -> tuple[list[sweeps.Group], Counter[str]]:
        """Find the runs that have not ended, and print how many there are."""
        groups, ended = sweeps.remaining_groups(all_groups, self.out, self.resume, write, done)
        count = sum(len(group.runs) for group in groups) + ended.total()
        say(f"{count} runs in {len(groups)} programs")
        say(f"{ended['finished']} finished before, {ended['failed']} failed before")
        return groups, ended

    def _choose(self, gpus: float | None = None) -> tuple[sweeps.Sweep, Options]:
        """What to run and how, with so many GPUs or with what is here."""
        accelerated = jax.default_backend() != "cpu" if gpus is None else gpus > 0
        bsuite = self.kind == "bsuite"
        packed = accelerated and bsuite if self.pack is None else self.pack
        compacts = accelerated if self.compact_lanes is None else self.compact_lanes
        freezes = compacts and bsuite if self.freeze_bonus is None else self.freeze_bonus
        if packed and not bsuite:
            raise InputError(f"need --pack for bsuite, got it for {self.kind}")
        every = 200 if self.paper and self.evaluate_every is None else self.evaluate_every
        options = Options(
            evaluate_every=every,
            checkpoint_seconds=self.checkpoint_seconds,
            snapshots=self.snapshots,
            solved_streak=self.solved_streak,
            # An accelerator waits for the host after each chunk, and for each line of metrics.
            chunk_steps=self.chunk_steps or (200 if accelerated else 100),
            log_every=5 if accelerated else 1,
            compact_lanes=8 if compacts else None,
            freeze_bonus=freezes,
        )
        return self._sweep(packed), options

    def _write_manifest(self, gpus: float) -> shards.Manifest:
        """Split the sweep into shards with so many GPUs each, and write it into its folder."""
        sweep, options = self._choose(gpus)
        manifest = shards.plan_manifest(
            sweep,
            options,
            lanes=self.lanes,
            shard_runs=self.shard_runs,
            max_lanes=MAX_LANES if gpus and jax.default_backend() == "cpu" else None,
        )
        path, text = self.out / shards.MANIFEST, manifest.to_json()
        is_new = not path.exists() or path.read_text() != text
        if is_new and path.exists() and not self.resume:
            raise InputError(
                f"{path} is of another sweep; replace it with --resume, or choose another --out"
            )
        self._remaining(sweeps.group_runs(sweep, options), write=False)
        if is_new:
            with hold_runs(self.out, [path, *sweep.folders(self.out)], "winkel sweep"):
                write_text(path, text)
        sizes = [len(shard.runs) for shard in manifest.shards]
        lanes = sorted({shard.lanes for shard in manifest.shards})
        say(
            f"{manifest.num_runs} runs in {len(sizes)} shards of {min(sizes)} to {max(sizes)}, "
            f"in {' or '.join(map(str, lanes))} lanes"
        )
        say(f"manifest: {path}")
        return manifest

    def _run_on_ray(self) -> None:
        """Run all shards on a Ray cluster with a display."""
        with connect(self.address) as ray:
            gpus, cpus = self.gpus_per_shard, self.cpus_per_shard
            if gpus is None:
                gpus = 1.0 if ray.cluster_resources().get("GPU") else 0.0
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            sizes = [(node.get("CPU", 0), node.get("GPU", 0)) for node in nodes]
            if not any(most[0] >= cpus and most[1] >= gpus for most in sizes):  # Ray would wait
                largest = "{:g} and {:g}".format(*max(sizes))
                needed = f"{cpus:g} CPUs and {gpus:g} GPUs for a shard"
                raise InputError(f"need a node with {needed}; the largest has {largest}")
            jax.config.update("jax_platforms", "cpu")  # GPUs are for the workers
            manifest = self._write_manifest(gpus)
            begin = time.perf_counter()
            with (
                hold_runs(self.out, [self.out / shards.MANIFEST], "winkel sweep --cluster ray"),
                Display(f"{manifest.num_runs} runs", manifest.num_runs) as display,
                defer_interrupt() as check_interrupt,
            ):

                def show(*progress: Any) -> None:
                    check_interrupt()
                    display.show(*progress)

                runs = run_on_ray(ray, manifest, self.out, cpus, gpus, show=show, notice=say)
        say_counts(runs, time.perf_counter() - begin)
        say(f"runs: {self.out}")
        check_runs(map(load_run, manifest.sweep.folders(self.out)), self.allow_failures)

    def _sweep(self, packed: bool) -> sweeps.Sweep:
        preset = PAPER[self.kind] if self.paper else {}
        default_agents = STATISTICS if self.kind == "statistics" else ("pe_dqn",)
        agents = tuple(self.agents or preset.get("agents", default_agents))
        check_fields(SweepCommand, self.fields, *agents)
        seeds = preset.get("seeds", 1) if self.seeds is None else self.seeds
        require_integer("seeds", seeds, at_least=1, at_most=MAX_RUNS)
        if self.kind == "bsuite":
            if self.sizes:
                raise InputError("need --experiments for bsuite, got --sizes; deep-sea takes those")
            envs = sweeps.bsuite_envs(self.experiments or None)
        else:
            if self.experiments:
                raise InputError(f"need --sizes for {self.kind}, got --experiments")
            envs = sweeps.deep_sea_envs(self.sizes or preset.get("sizes", (10,)))
        return sweeps.Sweep(
            envs=envs,
            agents=agents,
            seeds=tuple(range(self.first_seed, self.first_seed + seeds)),
            episodes=preset.get("episodes") if self.episodes is None else self.episodes,
            until=self.until,
            padded=self.kind == "bsuite",
            packed=packed,
            fields=self.fields,
            label=self.label,
        )


def _print_costs(outcome: dict[str, Any]) -> None:
    """Print where the time went, by group and by experiment."""
    groups = outcome["groups"]
    rows = [[f"{v:,.0f}" if k != "group" else v for k, v in group.items()] for group in groups]
    console.print(make_table([name.replace("_per_", "/") for name in groups[0]], rows), crop=False)
    say("updates: " + ", ".join(f"{name} {count:,}" for name, count in outcome["updates"].items()))
    say(f"compiled {outcome['programs']} programs in {outcome['compiling']:,.0f} s")
    say_counts(outcome["runs"], outcome["seconds"])


def _print_estimate(groups: list[sweeps.Group], lanes: int | None) -> None:
    """Print the size of a sweep, and its time from a chunk of the largest group."""
    if not groups:
        return
    largest = max(groups, key=lambda group: len(group.runs))
    rate, compiling = sweeps.measure_speed(largest, lanes)
    runs = [run for group in groups for run in group.runs]
    episodes, most = sum(int(r.end.episodes) for r in runs), sum(r.max_steps or 0 for r in runs)
    say(f"{episodes:,} episodes, at most {most:,} updates")
    count = sweeps.choose_lanes(largest, lanes)
    say(f"{largest.name}: {rate:,.0f} updates/s with {count} lanes, {compiling:.0f} s to compile")
    say(f"at that rate at most {(most / rate + compiling * len(groups)) / 3600:.1f} hours")
