"""How runs stand while they go on: for a display, and for what a session says it has done."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from winkel.envs.host import HostTask
from winkel.envs.registry import Task
from winkel.runs.recording import Arrays, Recorder
from winkel.training.lanes import Report

RECENT = 50
"""Episodes that a display averages over."""


class Status(NamedTuple):
    """How one run stands, for a display.

    Attributes:
        env: where.
        agent: who.
        seed: which.
        progress: share of the horizon done.
        env_steps: made so far.
        num_episodes: ended so far.
        updates: made so far.
        recent_return: mean over the last episodes, NaN before the first.
        seen: share of reachable state-actions seen, None where they cannot be counted.
        found: first episode with a treasure, None where there is none (yet).
        state: 'running', 'finished' or 'failed'.
    """

    env: str
    agent: str
    seed: int
    progress: float
    env_steps: int
    num_episodes: int
    updates: int
    recent_return: float
    seen: float | None
    found: int | None
    state: str


@dataclass
class Standing:
    """What a status says of a run's episodes, kept up as they come in."""

    reachable: int | None
    recent: np.ndarray
    mean: float = float("nan")
    episodes: int = 0
    seen: float | None = None
    found: int | None = None

    @classmethod
    def of(cls, task: Task | HostTask, rows: Arrays) -> "Standing":
        """After these episodes, none or those of a run that goes on."""
        standing = cls(task.num_pairs, np.zeros(0))
        standing.add(rows)
        return standing

    def add(self, rows: Arrays) -> None:
        """Episodes more."""
        count = len(rows.get("return", ()))
        if not count:
            return
        self.recent = np.concatenate([self.recent, rows["return"][-RECENT:]])[-RECENT:]
        self.mean = float(np.add.reduce(self.recent)) / len(self.recent)
        if self.reachable is not None and "seen" in rows:
            self.seen = rows["seen"][-1] / self.reachable
        if self.found is None and "treasure" in rows:
            treasures = np.flatnonzero(rows["treasure"])
            self.found = self.episodes + int(treasures[0]) + 1 if len(treasures) else None
        self.episodes += count


def status(recorder: Recorder, standing: Standing, report: Report | None) -> Status:
    """How a run stands after a report, or before its first."""
    state = "running"
    if report is not None and (report.failure or report.finished):
        state = "failed" if report.failure else "finished"
    return Status(
        env=recorder.config["env"],
        agent=recorder.config["agent"],
        seed=recorder.config["seed"],
        progress=0.0 if report is None else report.progress,
        env_steps=0 if report is None else report.env_steps,
        num_episodes=0 if report is None else report.num_episodes,
        updates=0 if report is None else report.updates,
        recent_return=standing.mean,
        seen=standing.seen,
        found=standing.found,
        state=state,
    )


class Spent(NamedTuple):
    """What a session took.

    Attributes:
        seconds: by the clock on the wall.
        device: of these, waiting for the device.
        compiling: of these, compiling programs.
        saving: of these, writing checkpoints and records.
        programs: compiled.
        lanes: runs side by side, at first.
        updates: made, by environment.
    """

    seconds: float
    device: float
    compiling: float
    saving: float
    programs: int
    lanes: int
    updates: dict[str, int]

    @property
    def total(self) -> int:
        """Updates of all runs."""
        return sum(self.updates.values())

    @property
    def rate(self) -> float:
        """Updates a second, compilation and everything else included."""
        return self.total / self.seconds if self.seconds else 0.0
