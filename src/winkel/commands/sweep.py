"""`winkel sweep`: an experiment of the paper, all its settings, agents and seeds."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro

from winkel.agents import VARIANTS
from winkel.commands.terminal import say
from winkel.commands.train import Display
from winkel.envs.registry import Task, parse
from winkel.errors import InputError, require_integer
from winkel.experiments.config import parse_overrides
from winkel.experiments.session import Options, Status
from winkel.experiments.sweep import (
    Group,
    Outcome,
    Sweep,
    bsuite_envs,
    calibrated,
    deep_sea_envs,
    grouped,
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
    """Runs side by side; 256 on an accelerator, 8 on a CPU by default."""
    evaluate_every: int | None = None
    """Episodes between greedy evaluations; none by default, 200 with --paper."""
    checkpoint_seconds: float = 300.0
    """Time between checkpoints of unfinished runs."""
    mnist_dir: Path | None = None
    """Folder with MNIST's IDX files."""
    fields: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self) -> None:
        """Run what is not there yet, and count."""
        sweep = self._sweep()
        options = Options(
            evaluate_every=self._evaluate_every,
            checkpoint_seconds=self.checkpoint_seconds,
            chunk_steps=100,
        )
        if not self.dry_run:
            ensure_folder(self.out)
        default_lanes = 8 if jax.default_backend() == "cpu" else 256
        lanes = default_lanes if self.lanes is None else self.lanes
        require_integer("lanes", lanes, at_least=1)
        groups, ended = grouped(
            sweep, self.out, options, self.mnist_dir, self.resume, write=not self.dry_run
        )
        todo = sum(len(group.runs) for group in groups)
        say(f"{todo + ended.total()} runs in {len(groups)} programs")
        say(f"{ended['finished']} finished before, {ended['failed']} failed before")
        if self.dry_run:
            _estimate(groups, lanes, options)
            return
        if groups:
            with _Board(groups, todo) as board:
                begin = time.perf_counter()
                try:
                    outcome = run_sweep(
                        groups, ended, self.out, options, lanes, board.update, board.display.say
                    )
                except BaseException:
                    spent = Outcome(0, 0, ended.total(), time.perf_counter() - begin)
                    write_log(self.out, sweep, spent, status="interrupted")
                    raise
            write_log(self.out, sweep, outcome)
            say(
                f"finished {outcome.finished}, failed {outcome.failed}, found finished "
                f"{outcome.found}; {outcome.seconds:,.0f} s"
            )
        say(f"runs: {self.out}")

    @property
    def _evaluate_every(self) -> int | None:
        return 200 if self.paper and self.evaluate_every is None else self.evaluate_every

    def _sweep(self) -> Sweep:
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
            fields=_fields(agents, list(self.fields)),
        )


def _fields(agents: tuple[str, ...], arguments: list[str]) -> dict[str, Any]:
    """Fields that at least one of the agents has."""
    found: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        count = 1 if "=" in rest[0] or len(rest) == 1 else 2
        option, rest = rest[:count], rest[count:]
        errors: list[InputError] = []
        for agent in agents:
            try:
                found |= parse_overrides(agent, option)
            except InputError as error:
                errors.append(error)
        if len(errors) == len(agents):
            raise errors[0]
    return found


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


def _estimate(groups: list[Group], lanes: int, options: Options) -> None:
    """Count, and time a chunk of the largest group."""
    if not groups:
        return
    largest = max(groups, key=lambda group: len(group.runs))
    rate, compiling = calibrated(largest, lanes, options)
    episodes = sum(
        int((run.stop or run.horizon).episodes) for group in groups for run in group.runs
    )
    most = sum(
        int((run.stop or run.horizon).episodes) * _longest(run.task)
        for group in groups
        for run in group.runs
    )
    say(f"{episodes:,} episodes, at most {most:,} updates")
    say(
        f"{largest.name}: {rate:,.0f} updates/s with {min(lanes, largest.total)} lanes, "
        f"{compiling:.0f} s to compile"
    )
    say(f"at that rate at most {(most / rate + compiling * len(groups)) / 3600:.1f} hours")


def _longest(task: Task) -> int:
    """Steps that an episode can have, from what bsuite's environments are."""
    setting = task.setting
    known: dict[str, Any] = {
        "bandit": 1,
        "mnist": 1,
        "catch": 9,
        "discounting_chain": 100,
        "deep_sea": setting.get("size"),
        "deep_sea_stochastic": setting.get("size"),
        "memory_len": setting.get("memory_length", 0) + 1,
        "memory_size": setting.get("memory_length", 0) + 1,
        "umbrella_length": setting.get("chain_length"),
        "umbrella_distract": setting.get("chain_length"),
    }
    return int(known.get(parse(task.id)[0].family, 1_001))
