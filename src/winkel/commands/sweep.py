"""`winkel sweep`: all settings, agents and seeds of an experiment of the paper."""

import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro

from winkel.agents import VARIANTS
from winkel.cluster import SHARDS, connect, run_on_ray
from winkel.commands.options import Fields, check_fields, check_runs, console, make_table, say
from winkel.commands.plan import run_plan
from winkel.commands.train import Display
from winkel.errors import InputError, defer_interrupt, require_integer
from winkel.files import hold_runs, write_text
from winkel.runs import sweep as sweeps
from winkel.runs.record import load_run
from winkel.runs.recorder import Status
from winkel.runs.spec import MAX_RUNS, Options
from winkel.training.programs import start_jax

PROGRESS_SECONDS = 1.0
"""Time between two writes of a shard's progress."""
LOCK_SECONDS = 150.0
"""Time to wait for another process that holds runs of a shard; a file server frees those of a lost
node after about 90 s."""
STATISTICS = tuple(name for name in VARIANTS if name.startswith("statistic_"))
COMPARED = ("pe_dqn", "bdqn", "ids", "dltv")
PAPER: dict[str, dict[str, Any]] = {
    "bsuite": {"agents": COMPARED, "seeds": 1, "episodes": None},
    "deep-sea": {
        "agents": (*COMPARED, "pe_dqn_qr_qr", "pe_dqn_c51_c51", "pe_dqn_ind"),
        "seeds": 10,
        "sizes": tuple(range(10, 101, 10)),
        "episodes": 10_000,
    },
    "statistics": {"agents": STATISTICS, "seeds": 30, "sizes": (50,), "episodes": 10_000},
}
"""What each experiment of the paper ran (sizes of deep sea read off its figure)."""


@dataclass(frozen=True, kw_only=True)
class SweepCommand:
    """Run an experiment of the paper. Any field of the agents is an option: --hidden 64."""

    kind: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[KIND]")] = None
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
    """End a run of deep sea after so many treasures in a row, once linear schedules have ended."""
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
    shard: Annotated[str | None, tyro.conf.arg(metavar="K/N")] = None
    """Only shard K of N, a share of the sweep such as 3/12, for a machine or GPU of its own."""
    cluster: Literal["ray"] | None = None
    """Run all shards as tasks of Ray."""
    address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """Address of a Ray cluster, or auto; one on this machine by default."""
    cpus_per_shard: float = 1.0
    """CPUs that a task of Ray takes."""
    gpus_per_shard: float | None = None
    """The GPU that a task of Ray takes, or a part of it: 1 by default if there are any, else 0."""
    plan: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Make the sweeps of this file that are missing, in its order, instead of KIND."""
    budget: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = None
    """With --plan: save and stop in this time, such as 25m."""
    fields: Fields = field(default_factory=dict)

    def run(self) -> None:
        """Run here or on a cluster. On SIGTERM and SIGUSR1, save and end as at Ctrl-C."""
        self.check_options()
        with stop_at_signals():
            if self.plan is not None:
                run_plan(self, self.plan, PAPER)
            elif self.cluster is not None:
                self._run_on_ray()
            else:
                self.run_here()

    def check_options(self) -> None:
        """Raise if options exclude each other."""
        if self.kind is not None and self.kind not in PAPER:
            raise InputError(f"need {', '.join(PAPER)} first, then options, got {self.kind!r}")
        cpus, gpus, on_ray = self.cpus_per_shard, self.gpus_per_shard, self.cluster is not None
        chosen = "the name of an experiment" if self.plan is None else "--plan alone"
        broken = {
            f"{chosen}, got {self.kind or 'none'}": (self.kind is None) != (self.plan is not None),
            "--budget with --plan": self.budget is not None and self.plan is None,
            "--address with --cluster ray": self.address is not None and not on_ray,
            "--gpus-per-shard with --cluster ray": gpus is not None and not on_ray,
            "--cluster ray without --dry-run and --shard": on_ray and (self.dry_run or self.shard),
            f"CPUs of a shard >= 0, got {cpus}": cpus < 0,
            f"one GPU for a shard or a part of one, got {gpus}": gpus and not 0 <= gpus <= 1,
        }
        for rule, is_broken in broken.items():
            if is_broken:
                raise InputError(f"need {rule}")
        if self.lanes is not None:
            require_integer("lanes", self.lanes, at_least=1)

    def run_here(
        self,
        done: Collection[str] = (),
        check: Callable[[list[Status]], None] = lambda _: None,
        wait: float = 1.0,
    ) -> dict[str, int]:
        """Run all but those with the fingerprints `done`; count the runs by how they ended.

        `check` is called after each chunk. If it raises KeyboardInterrupt, all runs are saved. Wait
        so many seconds for another process that writes one of them.
        """
        start_jax()
        sweep, all_groups = self.groups()
        for group in all_groups if done else ():
            group.runs[:] = [run for run in group.runs if run.config["fingerprint"] not in done]
        all_groups = [group for group in all_groups if group.runs]
        if self.shard is not None:
            most_lanes = sweeps.most_lanes(self.lanes, jax.default_backend() != "cpu")
            all_groups = sweeps.take_shard(all_groups, *read_shard(self.shard), most_lanes)
        for group in all_groups:
            sweeps.choose_lanes(group, self.lanes)  # raises if there is no memory for them
        if self.dry_run:
            groups, ended = self._remaining(all_groups, write=False)
            _print_estimate(groups, self.lanes)
            return dict(ended)
        runs = [run for group in all_groups for run in group.runs]
        with hold_runs(self.out, [run.folder(self.out) for run in runs], "winkel sweep", wait):
            groups, ended = self._remaining(all_groups, write=True)
            counts = {"before": ended.total()}
            if groups:
                sizes = [len(group.runs) for group in groups]
                with Display(f"{sum(sizes)} runs", sum(sizes)) as display:

                    def show(number: int, statuses: list[Status]) -> None:
                        over = sum(status.state != "running" for status in statuses)
                        title = f"{groups[number].name}: {over}/{len(statuses)}"
                        display.show(statuses, sum(sizes[:number]), title)
                        check(statuses)

                    outcome = sweeps.run_sweep(
                        sweep, groups, self.out, self.lanes, ended.total(), show, say
                    )
                _print_costs(outcome)
                counts = outcome["runs"]
        say(f"runs: {self.out}")
        check_runs([load_run(run.folder(self.out)) for run in runs], self.allow_failures)
        return counts

    def _remaining(
        self, all_groups: list[sweeps.Group], write: bool
    ) -> tuple[list[sweeps.Group], Counter[str]]:
        """Find the runs that have not ended, and print how many there are."""
        groups, ended = sweeps.remaining_groups(all_groups, self.out, self.resume, write)
        count = sum(len(group.runs) for group in groups) + ended.total()
        say(f"{count} runs in {len(groups)} programs")
        say(f"{ended['finished']} finished before, {ended['failed']} failed before")
        return groups, ended

    def groups(self, gpus: float | None = None) -> tuple[dict[str, Any], list[sweeps.Group]]:
        """The sweep and its runs by program, for shards with so many GPUs or for this machine."""
        accelerated = jax.default_backend() != "cpu" if gpus is None else gpus > 0
        bsuite = self.kind == "bsuite"
        packed = accelerated and bsuite if self.pack is None else self.pack
        compacts = accelerated if self.compact_lanes is None else self.compact_lanes
        freezes = compacts and bsuite if self.freeze_bonus is None else self.freeze_bonus
        if packed and not bsuite:
            raise InputError(f"need --pack for bsuite, got it for {self.kind}")
        every = 200 if self.paper and self.evaluate_every is None else self.evaluate_every
        # An accelerator waits for the host after each chunk, and for each line of metrics.
        steps = 200 if accelerated else 100
        options = Options(
            evaluate_every=every,
            checkpoint_seconds=self.checkpoint_seconds,
            snapshots=self.snapshots,
            solved_streak=self.solved_streak,
            chunk_steps=steps if self.chunk_steps is None else self.chunk_steps,
            log_every=5 if accelerated else 1,
            compact_lanes=8 if compacts else None,
            freeze_bonus=freezes,
        )
        sweep = self._sweep(packed)
        return sweep, sweeps.group_runs(**sweep, options=options)

    def _run_on_ray(self) -> None:
        with connect(self.address) as ray:
            gpus, cpus = self.gpus_per_shard, self.cpus_per_shard
            if gpus is None:
                gpus = 1.0 if ray.cluster_resources().get("GPU") else 0.0
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            sizes = [(node.get("CPU", 0), node.get("GPU", 0)) for node in nodes]
            if not any(size[0] >= cpus and size[1] >= gpus for size in sizes):  # Ray would wait
                largest = "{:g} and {:g}".format(*max(sizes))
                needed = f"{cpus:g} CPUs and {gpus:g} GPUs for a shard"
                raise InputError(f"need a node with {needed}; the largest has {largest}")
            jax.config.update("jax_platforms", "cpu")  # GPUs are for the workers
            _, groups = self.groups(gpus)
            most_lanes = sweeps.most_lanes(self.lanes, gpus > 0)
            all_runs = [run for group in groups for run in group.runs]
            total, count = len(all_runs), len(sweeps.split_groups(groups, most_lanes))
            self._remaining(groups, write=False)
            begin, out = time.perf_counter(), self.out.absolute()
            command = replace(
                self, out=out, cluster=None, address=None, gpus_per_shard=None, resume=True,
                allow_failures=True,
            )  # fmt: skip
            with Display(f"{total} runs", total) as display, defer_interrupt() as check_interrupt:

                def show(ended_runs: int, unfinished: list[int]) -> None:
                    check_interrupt()
                    running = [one for number in unfinished for one in read_progress(out, number)]
                    title = f"{count - len(unfinished)}/{count} shards"
                    display.show(running, ended_runs, title)

                for path in (out / SHARDS).glob("*.json"):  # of an earlier call
                    path.unlink(missing_ok=True)
                run_one = partial(run_shard, command, count)
                runs = run_on_ray(ray, run_one, count, out, cpus, gpus, show=show, notice=say)
        _say_counts(runs, time.perf_counter() - begin)
        say(f"runs: {self.out}")
        check_runs([load_run(run.folder(self.out)) for run in all_runs], self.allow_failures)

    def _sweep(self, packed: bool) -> dict[str, Any]:
        """All runs: of the options, else the paper's if asked for, else the defaults."""
        preset = PAPER[str(self.kind)] if self.paper else {}
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
        return {
            "envs": envs,
            "agents": agents,
            "seeds": tuple(range(self.first_seed, self.first_seed + seeds)),
            "episodes": preset.get("episodes") if self.episodes is None else self.episodes,
            "until": self.until,
            "packed": packed,
            "fields": self.fields,
            "label": self.label,
        }


def read_shard(text: str) -> tuple[int, int]:
    """Number and count of a shard such as '3/12'."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise InputError(f"need a shard such as 3/12, from 1/12 to 12/12, got {text!r}")
    return int(number), int(count)


def run_shard(command: SweepCommand, count: int, number: int) -> dict[str, int]:
    """Run a shard in a worker of Ray, write its progress; count its runs by how they ended."""
    written = -PROGRESS_SECONDS

    def write(statuses: list[Status]) -> None:
        nonlocal written
        ended = all(status.state != "running" for status in statuses)
        if ended or time.monotonic() - written >= PROGRESS_SECONDS:
            written = time.monotonic()
            write_text(command.out / SHARDS / f"{number}.json", json.dumps(statuses) + "\n")

    command = replace(command, shard=f"{number}/{count}")
    return command.run_here(check=write, wait=LOCK_SECONDS)


def read_progress(out: Path, number: int) -> list[Status]:
    """Read the last written status of a shard's runs; empty before the first."""
    path = out / SHARDS / f"{number}.json"
    return [Status(*row) for row in json.loads(path.read_bytes())] if path.exists() else []


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
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_counts(runs: Mapping[str, int], seconds: float) -> None:
    """Print how many runs have finished, failed, or had ended before, and the time."""
    counts = [runs.get(name, 0) for name in ("finished", "failed", "before")]
    say("finished {}, failed {}, ended before {}; {:,.0f} s".format(*counts, seconds))


def _print_costs(outcome: dict[str, Any]) -> None:
    """Print where the time went, by group and by experiment."""
    groups = outcome["groups"]
    rows = [[f"{v:,.0f}" if k != "group" else v for k, v in group.items()] for group in groups]
    console.print(make_table([name.replace("_per_", "/") for name in groups[0]], rows), crop=False)
    say("updates: " + ", ".join(f"{name} {count:,}" for name, count in outcome["updates"].items()))
    say(f"compiled {outcome['programs']} programs in {outcome['compiling']:,.0f} s")
    _say_counts(outcome["runs"], outcome["seconds"])


def _print_estimate(groups: list[sweeps.Group], lanes: int | None) -> None:
    """Print the size of a sweep, and its time from a chunk of the group with the most steps."""
    if not groups:
        return
    largest = max(groups, key=lambda group: sum(run.max_steps or 1 for run in group.runs))
    rate, compiling, count = sweeps.measure_speed(largest, lanes)
    runs = [run for group in groups for run in group.runs]
    episodes = sum(int(run.end.episodes) for run in runs)
    updates = sum((run.max_steps or 0) * run.agent.config.updates_per_step for run in runs)
    say(f"{episodes:,} episodes, at most {updates:,} updates")
    say(f"{largest.name}: {rate:,.0f} updates/s with {count} lanes, {compiling:.0f} s to compile")
    hours = (updates / rate + compiling * len(groups)) / 3600
    say(f"about {hours:.1f} hours if all programs are as fast; less if episodes end early")
