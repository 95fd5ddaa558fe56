"""The records of one run while it goes on: in memory, on disk, in TensorBoard or W&B."""

import contextlib
import dataclasses
import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winkel.errors import InputError, import_extra
from winkel.files import ensure_folder
from winkel.runs import record as records
from winkel.runs.checkpoint import check_same_run, has_checkpoint, save_checkpoint
from winkel.runs.record import CHECKPOINT_FOLDER, CONFIG, METRICS, RECENT, Arrays, RunRecord
from winkel.runs.spec import RunSpec
from winkel.training.lanes import Report
from winkel.training.steps import UNLIMITED
from winkel.types import OneHot

MetricsRow = Mapping[str, float | int]


class Status(NamedTuple):
    """State of one run, for a display."""

    env: str
    agent: str
    seed: int
    progress: float = 0.0
    env_steps: int = 0
    num_episodes: int = 0
    updates: int = 0
    recent_return: float = float("nan")
    """Mean over the last episodes."""
    visited: float | None = None
    """Share of the state-action pairs that were visited, None if they are not counted."""
    goal_episode: int | None = None
    """First episode that reached the goal of deep sea, None before it."""
    state: str = "running"
    """'running', 'finished' or 'failed'."""


Writer = Callable[[int, MetricsRow], object]
"""Gets the number of steps and a row."""
Mirror = Callable[[dict[str, Any], Path], contextlib.AbstractContextManager[Writer]]
"""Opens another place for the rows of a run, by its config and folder."""


def check_log(path: Path) -> None:
    """Raise if the file is no longer where it was: its folder was deleted or moved."""
    if not path.is_file():
        raise InputError(
            f"{path} was deleted or moved while the run was writing it; its last checkpoint "
            "is where the folder is now"
        )


def append_row(path: Path, length: int, row: MetricsRow | None = None) -> int:
    """Append all of a row or nothing after so many bytes of a file; return its new length.

    What followed them is cut off: it was written after the checkpoint from which a run is resumed.
    NaN and infinities, which JSON lacks, become null.
    """
    line = b""
    if row is not None:
        finite = {name: value if math.isfinite(value) else None for name, value in row.items()}
        line = json.dumps(finite, allow_nan=False).encode() + b"\n"
    if length:
        check_log(path)
    else:
        ensure_folder(path.parent)
    try:
        with path.open("r+b" if length else "wb") as file:
            file.seek(max(length - 1, 0))
            if length and file.read(1) != b"\n":
                raise InputError(f"need {length} bytes of whole lines, the run's own, in {path}")
            file.write(line)
            file.truncate()
    except OSError as error:
        with contextlib.suppress(OSError):
            os.truncate(path, length)
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    return length + len(line)


@dataclass
class Recorder:
    """Records of one run: on disk if it has a folder, else in memory."""

    spec: RunSpec
    folder: Path | None = None
    num_lanes: int = 1
    """Lanes of the session that makes the run; rounding depends on it."""
    mirrors: Sequence[Mirror] = ()
    status: Status = field(init=False)
    updates_before: int = field(init=False, default=0)
    """Updates that a resumed run had made before."""
    streak: int = field(init=False, default=0)
    """Newest episodes in a row with the treasure of deep sea, since all schedules have ended."""
    log_length: int = field(init=False, default=0)
    """Bytes of `metrics.jsonl` so far."""

    def __post_init__(self) -> None:
        self.status = Status(self.spec.task.id, self.spec.label, self.spec.seed)
        # Each column is a list of parts.
        self.tables: dict[str, dict[str, list[np.ndarray]]]
        self.tables = {"episodes": {}, "evaluations": {}, "snapshots": {}}
        self._recent = deque[float](maxlen=RECENT)
        self._open = contextlib.ExitStack()
        self._writers: list[Writer] = []
        if self.folder is not None:
            opened = [mirror(self.spec.config, self.folder) for mirror in self.mirrors]
            self._writers = [self._open.enter_context(one) for one in opened]

    @property
    def is_solved(self) -> bool:
        """Whether the run may end early, as `Options.solved_streak` says."""
        wanted = self.spec.options.solved_streak
        return wanted is not None and self.streak >= wanted

    def record(self, report: Report) -> None:
        """Record the episodes and metrics of a chunk."""
        if report.episodes:
            self.add("episodes", report.episodes)
            self._update_status(report.episodes, report.num_episodes)
        ended = report.finished or self.is_solved
        state = "failed" if report.failure else "finished" if ended else "running"
        self.status = self.status._replace(
            progress=1.0 if self.is_solved else report.share_done,
            env_steps=report.env_steps,
            num_episodes=report.num_episodes,
            updates=report.updates,
            state=state,
        )
        steps_of_learning = report.updates // self.spec.agent.config.updates_per_step
        chunk = steps_of_learning // self.spec.options.chunk_steps
        due = bool(report.metrics) and chunk % self.spec.options.log_every == 0
        if self.folder is not None and report.failure is None and (ended or due):
            counts = {"env_steps": report.env_steps, "episodes": report.num_episodes}
            row = counts | {"updates": report.updates} | report.metrics
            self.log_length = append_row(self.folder / METRICS, self.log_length, row)
            for write in self._writers:
                write(report.env_steps, row)

    def add(self, table: str, rows: Arrays) -> None:
        """Append rows to one of the tables."""
        for name, values in rows.items():
            parts = self.tables[table].setdefault(name, [])
            if len(values) or not parts:
                parts.append(np.asarray(values))

    def add_row(self, table: str, row: Mapping[str, Any]) -> None:
        """Append one row to one of the tables."""
        self.add(table, {name: np.asarray(value)[None] for name, value in row.items()})

    def rows(self, table: str) -> Arrays:
        """A table so far, its columns in alphabetical order."""
        columns = self.tables[table]
        for parts in columns.values():
            if len(parts) > 1:
                parts[:] = [np.concatenate(parts)]
        return {name: columns[name][0] for name in sorted(columns)}

    def due_evaluation(self, report: Report) -> int | None:
        """Number (from 1) of the evaluation that is due, None if none is."""
        every = self.spec.options.evaluate_every
        if every is None or report.failure:
            return None
        by_steps = self.spec.horizon.steps != UNLIMITED
        number = (report.env_steps if by_steps else report.num_episodes) // every
        made = self.tables["evaluations"].get("evaluation")
        return number if number > (made[-1][-1] if made else 0) else None

    def due_snapshot(self, report: Report) -> bool:
        """Whether a snapshot is due."""
        wanted = self.spec.options.snapshots
        made = sum(map(len, self.tables["snapshots"].get("episodes", ())))
        countable = isinstance(self.spec.agent.spec.observation, OneHot)
        if not countable or report.failure or made >= wanted:
            return False
        return report.share_done >= (made / (wanted - 1) if wanted > 1 else 1.0) - 1e-6

    def checkpoint(self, state: Arrays, outcome: dict[str, Any] | None = None) -> None:
        """Save the state, all records so far, and the outcome if the run has ended."""
        if self.folder is None:
            return
        arrays = {f"state/{name}": array for name, array in state.items()}
        for table in self.tables:
            arrays |= {f"{table}/{name}": rows for name, rows in self.rows(table).items()}
        if self.log_length:
            check_log(self.folder / METRICS)
        meta = {
            "run": self.spec.config,
            "lanes": self.num_lanes,
            "log_position": self.log_length,
            "outcome": outcome,
        }
        save_checkpoint(self.folder / CHECKPOINT_FOLDER, arrays, meta)

    def resume(self) -> tuple[Arrays, list[str]]:
        """Take over the records of the newest checkpoint; return its state, and notices.

        They say which newer checkpoints cannot be read, and why the results may not be those of an
        uninterrupted run.
        """
        assert self.folder is not None
        found, meta, damaged = records.load_run_checkpoint(self.folder)
        check_same_run(self.spec.config, meta["run"], str(self.folder / CHECKPOINT_FOLDER))
        notices = [f"{text}; went back to the checkpoint before" for text in damaged.values()]
        for path in damaged:  # it must not count among those that are kept
            path.rename(path.with_suffix(".damaged"))
        here = {"lanes": self.num_lanes, "hardware": self.spec.config["hardware"]}
        there = {"lanes": meta["lanes"], "hardware": meta["run"].get("hardware")}
        notices += [
            f"was made with {name} {there[name]} and continues with {here[name]}: results may "
            "differ in rounding from those of an uninterrupted run"
            for name in here
            if here[name] != there[name]
        ]
        for table in self.tables:
            self.add(table, found.get(table, {}))
        episodes = found.get("episodes", {})
        self._update_status(episodes, len(episodes.get("return", ())))
        self.log_length = append_row(self.folder / METRICS, meta["log_position"])
        return found.get("state", {}), notices

    def finish(self, outcome: dict[str, Any]) -> RunRecord:
        """Write the records and hand them over; the tables are empty afterwards."""
        self.close()
        tables = {table: self.rows(table) for table in self.tables}
        episodes = tables.pop("episodes")
        record = RunRecord(self.spec.config | outcome, episodes, self.folder, tables=tables)
        if self.folder is not None:
            record = dataclasses.replace(record, config=records.save_run(self.folder, record))
        for columns in self.tables.values():
            columns.clear()
        return record

    def close(self) -> None:
        """Close the mirrors."""
        self._open.close()

    def _update_status(self, rows: Arrays, num_episodes: int) -> None:
        """Update what is known of episodes; the last row is episode `num_episodes`."""
        count = len(rows.get("return", ()))
        if not count:
            return
        self._recent.extend(rows["return"][-RECENT:].tolist())
        visited, goal = self.status.visited, self.status.goal_episode
        if self.spec.task.num_pairs is not None and "visited" in rows:
            visited = float(rows["visited"][-1] / self.spec.task.num_pairs)
        if "treasure" in rows:
            goals = np.flatnonzero(rows["treasure"])
            if goal is None and len(goals):
                goal = num_episodes - count + int(goals[0]) + 1
            before = max(self.spec.schedules_end - (num_episodes - count), 0)
            counted = rows["treasure"][before:]
            misses = np.flatnonzero(~counted.astype(bool))
            since = len(counted) - 1 - misses[-1] if len(misses) else self.streak + len(counted)
            self.streak = int(since)
        self.status = self.status._replace(
            recent_return=sum(self._recent) / len(self._recent),
            visited=visited,
            goal_episode=goal,
        )


def load_ended(spec: RunSpec, out: Path, resume: bool, write: bool = True) -> RunRecord | None:
    """The record of a run that has ended, else None; raises if its folder holds another run.

    With `write`, the records of a run that was killed after its last checkpoint are written first.
    """
    folder = spec.folder(out)
    if folder.exists() and not resume:
        raise InputError(f"{folder} exists; resume it (--resume), or choose another folder")
    if write and not (folder / CONFIG).is_file() and has_checkpoint(folder / CHECKPOINT_FOLDER):
        for only in ("episodes/", ""):  # all bytes are read only if this part says that it ended
            _, meta, _ = records.load_run_checkpoint(folder, only)
            if meta.get("outcome") is None:
                return None
        recorder = Recorder(spec, folder)
        recorder.resume()
        recorder.finish(meta["outcome"])
    if not (folder / CONFIG).is_file():
        return None
    record = records.load_run(folder)
    check_same_run(spec.config, record.config, str(folder / CONFIG))
    return record


@contextlib.contextmanager
def tensorboard(config: dict[str, Any], folder: Path) -> Iterator[Writer]:
    """Write rows as TensorBoard's scalars, into the run's folder."""
    summaries = import_extra("tensorboardX", "tensorboard")
    writer = summaries.SummaryWriter(str(folder / "tensorboard"))

    def write(step: int, row: MetricsRow) -> None:
        for name, value in row.items():
            if name != "env_steps":
                writer.add_scalar(name, value, step)

    with contextlib.closing(writer):
        yield write


@contextlib.contextmanager
def wandb(project: str, config: dict[str, Any], folder: Path) -> Iterator[Writer]:
    """Send rows to a new run on Weights & Biases."""
    package = import_extra("wandb", "wandb")
    name = f"{config['env']}-{config['agent']}-{config['seed']}"
    try:
        run = package.init(project=project, name=name, config=config)
    except package.Error as error:
        reason = " ".join(str(error).split())
        raise InputError(f"cannot start a run on Weights & Biases: {reason}") from error
    try:
        yield lambda step, row: run.log(dict(row), step=step)
    finally:
        run.finish()
