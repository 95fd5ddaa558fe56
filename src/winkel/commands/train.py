"""`winkel train`: an agent in an environment, live."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from winkel.commands.backend import make_deterministic
from winkel.commands.terminal import console, say
from winkel.errors import InputError
from winkel.runs.folder import run_folder
from winkel.runs.metrics import Mirror, tensorboard, wandb
from winkel.runs.session import Options, Status
from winkel.runs.spec import parse_overrides
from winkel.runs.train import train
from winkel.runs.trained import Training

MOST_ROWS = 12
REFRESH = 0.25
"""Seconds between two pictures; drawing more of them would keep the accelerator waiting."""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train an agent. Any field of it is an option: --num-atoms 51 --learning-rate 1e-3."""

    env: tyro.conf.Positional[str]
    """An id: deep_sea/0, deep_sea:size=30, catch_noise/3; or a simulator: gym:CartPole-v1,
    dm:bsuite/catch/0, my_module:make, doom:my-way-home/sparse."""
    agent: str = "pe_dqn"
    """A name from `winkel list agents`."""
    seeds: int = 1
    """How many runs, with seeds FIRST_SEED, FIRST_SEED + 1, …"""
    first_seed: int = 0
    """The lowest seed."""
    episodes: int | None = None
    """Horizon in episodes; bsuite's own if neither this nor --steps is given."""
    steps: int | None = None
    """Horizon in steps."""
    frames: int | None = None
    """The same, as one says of pictures."""
    num_envs: int | None = None
    """Environments of each run, for simulators; 1, or 32 in VizDoom, by default."""
    workers: int | None = None
    """Processes that simulators run in; by the number of CPUs by default, 0: none."""
    preset: str | None = None
    """Settings by name: vizdoom, vizdoom-official (the default in VizDoom), or one that `winkel
    search apply` wrote."""
    until: int | None = None
    """Stop after so many episodes, although schedules (such as of β) go by the horizon."""
    out: Path = Path("runs")
    """Folder for the runs."""
    label: str | None = None
    """What the agent is called there, if not by its name."""
    resume: bool = False
    """Go on with what is there."""
    lanes: int | None = None
    """Runs side by side; the others wait."""
    evaluate_every: int | None = None
    """Episodes between greedy evaluations (steps, if the horizon counts steps)."""
    evaluation_episodes: int = 1
    """Greedy episodes of an evaluation."""
    checkpoint_seconds: float = 60.0
    """Time between checkpoints."""
    chunk_steps: int = 100
    """Steps between two looks at the lanes."""
    deterministic: bool = False
    """Have a GPU give the same bits each time, more slowly; a CPU does so anyway."""
    tensorboard: bool = False
    """Also write TensorBoard's files, into each run's folder."""
    wandb: str | None = None
    """Also log to this project of Weights & Biases."""
    mnist_dir: Path | None = None
    """Folder with MNIST's IDX files."""
    fields: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self) -> None:
        """Train, show it, sum it up."""
        if self.seeds < 1 or self.first_seed < 0:
            raise InputError(
                f"need --seeds >= 1 from >= 0, got {self.seeds} from {self.first_seed}"
            )
        if self.deterministic:
            make_deterministic()
        if self.steps is not None and self.frames is not None:
            raise InputError(f"need --steps or --frames, got {self.steps} and {self.frames}")
        overrides = parse_overrides(self.agent, list(self.fields))
        with Display(f"{self.agent} in {self.env}") as display:
            training = train(
                self.env,
                self.agent,
                seeds=range(self.first_seed, self.first_seed + self.seeds),
                episodes=self.episodes,
                steps=self.steps if self.frames is None else self.frames,
                num_envs=self.num_envs,
                workers=self.workers,
                preset=self.preset,
                until=self.until,
                out=self.out,
                resume=self.resume,
                lanes=self.lanes,
                label=self.label,
                mnist_dir=self.mnist_dir,
                options=Options(
                    evaluate_every=self.evaluate_every,
                    evaluation_episodes=self.evaluation_episodes,
                    checkpoint_seconds=self.checkpoint_seconds,
                    chunk_steps=self.chunk_steps,
                ),
                mirrors=self._mirrors,
                progress=display.update,
                notice=display.say,
                **overrides,
            )
        summarise(training)
        for trained in training.runs:
            config = trained.config
            say(f"run: {run_folder(self.out, config['env'], config['agent'], config['seed'])}")

    def _mirrors(self, config: dict[str, Any], folder: Path) -> tuple[Mirror, ...]:
        made: list[Mirror] = []
        if self.tensorboard:
            made.append(tensorboard(folder / "tensorboard"))
        if self.wandb is not None:
            name = f"{config['env']}-{config['agent']}-{config['seed']}"
            made.append(wandb(self.wandb, name, config))
        return tuple(made)


@dataclass
class Display:
    """A live table of runs under one bar for all of them."""

    title: str
    _bar: Progress = field(init=False)
    _live: Live = field(init=False)
    _begin: float = field(init=False, default=0.0)
    _updates: int = field(init=False, default=0)
    _shown: float = field(init=False, default=-1.0)

    def __enter__(self) -> "Display":
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[speed]}"),
            console=console,
        )
        self._task = self._bar.add_task(f"{self.title}: compiling", total=1.0, speed="")
        self._live = Live(self._bar, console=console, refresh_per_second=1 / REFRESH)
        self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._live.__exit__(*exception)

    def say(self, text: str) -> None:
        """A line above the display."""
        self._live.console.print(text, highlight=False, markup=False)

    def update(self, statuses: list[Status]) -> None:
        """Show how the runs stand."""
        share = float(np.mean([status.progress for status in statuses]))
        self.show(self.title, share, statuses)

    def show(self, title: str, share: float, statuses: list[Status]) -> None:
        """Show a title, what share is done, and some runs."""
        if share < 1.0 and time.monotonic() - self._shown < REFRESH:
            return
        self._shown = time.monotonic()
        updates = sum(status.updates for status in statuses)
        if not self._begin:
            self._begin, self._updates = time.monotonic(), updates
        elapsed = time.monotonic() - self._begin
        speed = f"{(updates - self._updates) / elapsed:,.0f} updates/s" if elapsed > 1 else ""
        self._bar.update(self._task, completed=share, description=title, speed=speed)
        self._live.update(Group(self._bar, _table(statuses)))


def _table(statuses: list[Status]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("seed", "episodes", "steps", "return (last 50)"):
        table.add_column(name, justify="right")
    countable = any(status.seen is not None for status in statuses)
    if countable:
        table.add_column("state-actions seen", justify="right")
        table.add_column("goal first found", justify="right")
    table.add_column("")
    for status in statuses[:MOST_ROWS]:
        cells = [
            str(status.seed),
            f"{status.num_episodes:,}",
            f"{status.env_steps:,}",
            f"{status.recent_return:.3f}",
        ]
        if countable:
            cells.append("" if status.seen is None else f"{status.seen:.0%}")
            cells.append("" if status.found is None else f"episode {status.found}")
        table.add_row(*cells, "" if status.state == "running" else status.state)
    if len(statuses) > MOST_ROWS:
        table.add_row(f"and {len(statuses) - MOST_ROWS} more")
    return table


def summarise(training: Training) -> None:
    """A table of what the runs ended with."""
    table = Table(title="Summary", title_justify="left")
    for name in ("seed", "episodes", "steps", "mean return", "return (last 50)"):
        table.add_column(name, justify="right")
    countable = "treasure" in training.runs[0].episodes
    if countable:
        table.add_column("goal first found", justify="right")
        table.add_column("bad episodes", justify="right")
    table.add_column("status")
    for run in training.runs:
        rows = run.episodes
        returns = rows.get("return", np.zeros(0))
        cells = [
            str(run.config["seed"]),
            f"{len(returns):,}",
            f"{int(rows['length'].sum()) if len(returns) else 0:,}",
            f"{returns.mean():.3f}" if len(returns) else "",
            f"{returns[-50:].mean():.3f}" if len(returns) else "",
        ]
        if countable:
            found = np.flatnonzero(rows["treasure"])
            cells.append(f"episode {found[0] + 1}" if len(found) else "not found")
            cells.append(f"{int(rows['bad'].sum()):,}")
        table.add_row(*cells, run.config.get("status", "unfinished"))
    console.print(table)
