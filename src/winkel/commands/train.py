"""`winkel train`: train an agent and show its progress."""

import math
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from winkel.commands.options import (
    EnvName,
    Fields,
    check_fields,
    check_runs,
    console,
    make_table,
    say,
)
from winkel.errors import require_integer
from winkel.runs import recorder
from winkel.runs.record import RECENT, Training
from winkel.runs.recorder import Status
from winkel.runs.spec import MAX_RUNS, Options
from winkel.runs.train import train

MAX_ROWS = 12
"""Runs in the live table."""
REFRESH = 0.25
"""Seconds between two drawings of the live table, during which the accelerator would wait."""
LINE_SECONDS, LINE_SHARE, MOST_LINE_SECONDS = 10.0, 0.1, 60.0
"""Without a terminal, lines are so many seconds apart, and after so much progress or time."""


def train_agent(
    env: EnvName,
    agent: str = "pe_dqn",
    seeds: int = 1,
    first_seed: int = 0,
    episodes: int | None = None,
    steps: Annotated[int | None, tyro.conf.arg(aliases=["--frames"])] = None,
    num_envs: int | None = None,
    workers: int | None = None,
    timeout: float | None = None,
    preset: str | None = None,
    until: int | None = None,
    out: Path = Path("runs"),
    label: str | None = None,
    resume: bool = False,
    lanes: int | None = None,
    evaluate_every: int | None = None,
    evaluation_episodes: int = 1,
    snapshots: int = 6,
    checkpoint_seconds: float = 60.0,
    chunk_steps: int = 100,
    tensorboard: bool = False,
    wandb: str | None = None,
    allow_failures: bool = False,
    fields: Fields = MappingProxyType({}),
) -> None:
    """Train an agent. Any field of the agent is an option: --num-atoms 51 --learning-rate 1e-3.

    Args:
        env: An id: deep_sea/0, deep_sea:size=30, catch_noise/3; an environment in JAX:
            gymnax:Breakout-MinAtar, jax:my_module:MyEnv; or a simulator: gym:CartPole-v1,
            dm:bsuite/catch/0, my_module:make, doom:my-way-home/sparse.
        agent: A name from `winkel list agents`.
        seeds: Number of runs, with seeds FIRST_SEED, FIRST_SEED + 1, …
        first_seed: The lowest seed.
        episodes: Horizon in episodes; bsuite's own if neither this nor --steps is given.
        steps: Horizon in steps.
        num_envs: Environments of each run, for simulators; 1 by default, 32 in VizDoom.
        workers: Processes that simulators run in; by the number of CPUs by default, 0 for none.
        timeout: Seconds that such a process may take to make, reset or step them; 120 by default.
        preset: Settings by name: one of `winkel list presets`, or from `winkel search apply`.
        until: Stop after so many episodes; schedules still use the full horizon.
        out: Folder for the runs.
        label: The agent's name in that folder, if not its own.
        resume: Continue the runs that are there.
        lanes: Runs side by side; the others wait.
        evaluate_every: Episodes between greedy evaluations (steps, if the horizon counts steps).
        evaluation_episodes: Greedy episodes of an evaluation.
        snapshots: Maps of visits, value, disagreement and bonus to keep, where states are few.
        checkpoint_seconds: Least time between checkpoints.
        chunk_steps: Steps between two reports to the host.
        tensorboard: Also write TensorBoard's files, into each run's folder.
        wandb: Also log to this project of Weights & Biases.
        allow_failures: Exit with status 0 also if runs failed.
    """
    require_integer("--seeds", seeds, at_least=1, at_most=MAX_RUNS)
    check_fields(train_agent, fields, agent)

    mirrors = [recorder.tensorboard] if tensorboard else []
    if wandb is not None:
        mirrors.append(partial(recorder.wandb, wandb))
    with Display(f"{agent} in {env}") as display:
        training = train(
            env,
            agent,
            seeds=range(first_seed, first_seed + seeds),
            episodes=episodes,
            steps=steps,
            num_envs=num_envs,
            workers=workers,
            timeout=timeout,
            preset=preset,
            until=until,
            out=out,
            resume=resume,
            lanes=lanes,
            label=label,
            options=Options(
                evaluate_every=evaluate_every,
                evaluation_episodes=evaluation_episodes,
                snapshots=snapshots,
                checkpoint_seconds=checkpoint_seconds,
                chunk_steps=chunk_steps,
            ),
            mirrors=mirrors,
            progress=display.show,
            notice=say,
            **fields,
        )
    print_summary(training)
    for run in training.runs:
        say(f"run: {run.folder}")
    check_runs(training.runs, allow_failures)


class Display:
    """A live table of runs under one progress bar for all of them; without a terminal, lines."""

    def __init__(self, title: str, total: int | None = None) -> None:
        self.title, self._total = title, total
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[speed]}"),
            console=console,
            get_time=time.monotonic,
        )
        task = self._bar.add_task(f"{title}: compiling", total=1.0, speed="")
        speed = self._bar.add_task("updates", total=None, visible=False, speed="")
        self._share, self._speed = self._bar.tasks[task], self._bar.tasks[speed]
        self._live = Live(self._bar, console=console, refresh_per_second=1 / REFRESH)
        self._updates: dict[tuple[str, str, int], int] = {}
        self._shown = (-math.inf, 0.0)

    def __enter__(self) -> "Display":
        if console.is_terminal:
            self._live.start()
        else:
            say(f"{self.title}: compiling")
        return self

    def __exit__(self, *exception: Any) -> None:
        self._live.stop()

    def show(self, statuses: list[Status], done: int = 0, title: str | None = None) -> None:
        """Show some runs, and the share of all that is done; `done` others have ended."""
        share = (done + sum(one.progress for one in statuses)) / (self._total or len(statuses) or 1)
        title, now, new = title or self.title, time.monotonic(), 0
        for one in statuses:
            run = one.env, one.agent, one.seed
            new += one.updates - self._updates.get(run, one.updates)
            self._updates[run] = one.updates
        self._bar.advance(self._speed.id, new)
        speed = f"{self._speed.speed:,.0f} updates/s" if self._speed.speed else ""
        self._bar.update(self._share.id, completed=share, description=title, speed=speed)
        since, gained = now - self._shown[0], share - self._shown[1]
        if console.is_terminal and (since >= REFRESH or share == 1.0):
            self._live.update(Group(self._bar, _status_table(statuses)))
            self._shown = now, share
        due = since >= LINE_SECONDS and (gained >= LINE_SHARE or since >= MOST_LINE_SECONDS)
        if due and not console.is_terminal:
            returns = [one.recent_return for one in statuses if one.num_episodes]
            left = self._share.time_remaining
            facts = [
                f"{title}: {share:.0%}",
                f"{sum(one.num_episodes for one in statuses):,} episodes",
                f"return (last {RECENT}) {np.mean(returns):.3f}" if returns else "",
                speed,
                "" if left is None else f"{timedelta(seconds=left)} left",
            ]
            say(", ".join(filter(None, facts)))
            self._shown = now, share


def _status_table(statuses: list[Status]) -> Table:
    columns = ["seed", "episodes", "steps", f"return (last {RECENT})"]
    columns += ["visited", "first goal"] * any(one.visited is not None for one in statuses)
    rows = []
    running_first = sorted(statuses, key=lambda status: status.state != "running")
    for status in running_first[:MAX_ROWS]:
        counts = str(status.seed), f"{status.num_episodes:,}", f"{status.env_steps:,}"
        row = [*counts, f"{status.recent_return:.3f}"]
        if "visited" in columns:
            row.append(f"{status.visited or 0:.0%}")
            row.append("" if status.goal_episode is None else f"{status.goal_episode:,}")
        rows.append([*row, "" if status.state == "running" else status.state])
    if len(statuses) > MAX_ROWS:
        rows.append([f"and {len(statuses) - MAX_ROWS} more", *[""] * len(columns)])
    return make_table([*columns, ""], rows)


def print_summary(training: Training) -> None:
    """Print a table of the runs' results."""
    columns = ["seed", "episodes", "steps", "mean return", f"return (last {RECENT})"]
    countable = "treasure" in training.runs[0].episodes
    columns += ["first goal", "bad episodes"] * countable
    rows = []
    for run in training.runs:
        returns = run.episodes.get("return", np.zeros(0))
        means = [f"{part.mean():.3f}" if len(part) else "" for part in (returns, returns[-RECENT:])]
        steps = int(np.sum(run.episodes.get("length", 0)))
        row = [str(run.config["seed"]), f"{len(returns):,}", f"{steps:,}", *means]
        if countable:
            goals = np.flatnonzero(run.episodes["treasure"])
            row.append(f"{goals[0] + 1:,}" if len(goals) else "never")
            row.append(f"{int(run.episodes['bad'].sum()):,}")
        rows.append([*row, run.config.get("status", "unfinished")])
    console.print(make_table([*columns, "status"], rows, title="Summary"), crop=False)
