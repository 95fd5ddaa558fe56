"""`winkel sweep`: an experiment of the paper, all its settings, agents and seeds."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from rich.table import Table

from winkel.agents import VARIANTS
from winkel.commands.backend import make_deterministic
from winkel.commands.terminal import console, say
from winkel.commands.train import Display
from winkel.errors import InputError, require_integer
from winkel.experiments.config import parse_shared_overrides
from winkel.experiments.ledger import GroupCost, Outcome
from winkel.experiments.session import Options, Status
from winkel.experiments.sweep import (
    Group,
    Sweep,
    bsuite_envs,
    calibrated,
    deep_sea_envs,
    grouped,
    lanes_of,
    run_sweep,
    write_log,
)
from winkel.io.results import ensure_folder

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
LEAST_LANES = 8
"""To which a program shrinks on an accelerator; fewer are hardly faster."""
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
    """When half of the lanes are idle, go on in a program of half as many; the default on an
    accelerator, but for --deterministic."""
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
    fields: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self) -> None:
        """Run what is not there yet, and count."""
        if self.deterministic:
            make_deterministic()
        accelerated = jax.default_backend() != "cpu"
        packed = _chosen("pack", self.pack, self.no_pack, accelerated and self.kind == "bsuite")
        shrinks = _chosen(
            "shrink", self.shrink, self.no_shrink, accelerated and not self.deterministic
        )
        rests = _chosen("rest", self.rest, self.no_rest, shrinks and self.kind == "bsuite")
        if packed and self.kind != "bsuite":
            raise InputError(f"need --pack for bsuite, got it for {self.kind}")
        sweep = self._sweep(packed)
        options = Options(
            evaluate_every=self._evaluate_every,
            checkpoint_seconds=self.checkpoint_seconds,
            chunk_steps=CHUNK_ON_ACCELERATOR if accelerated else 100,
            log_every=CHUNKS_LOGGED if accelerated else 1,
            shrink=LEAST_LANES if shrinks else None,
            rest=rests,
            ahead=accelerated,
        )
        if not self.dry_run:
            ensure_folder(self.out)
        if self.lanes is not None:
            require_integer("lanes", self.lanes, at_least=1)
        groups, ended = grouped(
            sweep, self.out, options, self.mnist_dir, self.resume, write=not self.dry_run
        )
        todo = sum(len(group.runs) for group in groups)
        say(f"{todo + ended.total()} runs in {len(groups)} programs")
        say(f"{ended['finished']} finished before, {ended['failed']} failed before")
        if self.dry_run:
            _estimate(groups, self.lanes, options)
            return
        if groups:
            with _Board(groups, todo) as board:
                begin, costs = time.perf_counter(), list[GroupCost]()
                show, tell = board.update, board.display.say
                try:
                    outcome = run_sweep(
                        groups, ended, self.out, options, self.lanes, show, tell, costs
                    )
                except BaseException:
                    seconds = time.perf_counter() - begin
                    spent = Outcome(0, 0, ended.total(), seconds, tuple(costs))
                    write_log(self.out, sweep, spent, status="interrupted")
                    raise
            write_log(self.out, sweep, outcome)
            _print_costs(outcome)
            say(
                f"finished {outcome.finished}, failed {outcome.failed}, found finished "
                f"{outcome.found}; {outcome.seconds:,.0f} s"
            )
        say(f"runs: {self.out}")

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


class _Board:
    """One bar over all groups, with the runs of the current one below."""

    def __init__(self, groups: list[Group], todo: int) -> None:
        self.display = Display(f"{todo} runs")
        self.names = [group.name for group in groups]
        self.sizes = [len(group.runs) for group in groups]

    def __enter__(self) -> "_Board":
        self.display.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.display.__exit__(*exception)

    def update(self, group: int, statuses: list[Status]) -> None:
        """Show how far the sweep is, by runs."""
        done = sum(self.sizes[:group])
        share = (done + sum(s.progress for s in statuses)) / sum(self.sizes)
        running = [s for s in statuses if s.state == "running"] or statuses
        ended = int(np.sum([s.state != "running" for s in statuses]))
        self.display.show(f"{self.names[group]}: {ended}/{len(statuses)}", share, running)


def _chosen(name: str, yes: bool, no: bool, default: bool) -> bool:
    if yes and no:
        raise InputError(f"need one of --{name} and --no-{name}, got both")
    return yes or (default and not no)


def _print_costs(outcome: Outcome) -> None:
    """Where the time went: by program, and by experiment."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    columns = ("runs", "lanes", "updates", "seconds", "updates/s", "compiled", "s compiling")
    table.add_column("group")
    for name in (*columns, "s on device", "s saving"):
        table.add_column(name, justify="right")
    for group in outcome.groups:
        spent = group.spent
        numbers = (group.runs, spent.lanes, spent.total, spent.seconds, spent.rate, spent.programs)
        rest = (spent.compiling, spent.device, spent.saving)
        table.add_row(group.name, *(f"{number:,.0f}" for number in (*numbers, *rest)))
    console.print(table)
    made = outcome.updates_by_experiment()
    say("updates: " + ", ".join(f"{name} {count:,}" for name, count in made.items()))
    programs, compiling = (outcome.row()[name] for name in ("programs", "compiling"))
    say(f"compiled {programs} programs in {compiling:,.0f} s")


def _estimate(groups: list[Group], lanes: int | None, options: Options) -> None:
    """Count, and time a chunk of the largest group."""
    if not groups:
        return
    largest = max(groups, key=lambda group: len(group.runs))
    rate, compiling = calibrated(largest, lanes, options)
    episodes = sum(
        int((run.stop or run.horizon).episodes) for group in groups for run in group.runs
    )
    most = sum(run.most_steps or 0 for group in groups for run in group.runs)
    say(f"{episodes:,} episodes, at most {most:,} updates")
    say(
        f"{largest.name}: {rate:,.0f} updates/s with {lanes_of(largest, lanes)} lanes, "
        f"{compiling:.0f} s to compile"
    )
    say(f"at that rate at most {(most / rate + compiling * len(groups)) / 3600:.1f} hours")
