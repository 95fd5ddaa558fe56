"""Runs of one shape, from the first step to the last: advanced, recorded, evaluated and saved."""

import contextlib
import dataclasses
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winkel.agents.base import Agent
from winkel.envs.base import Task
from winkel.envs.simulator_task import SimulatorTask
from winkel.runs.checkpoint import pack, unpack
from winkel.runs.metrics import Mirror
from winkel.runs.record import RunRecord
from winkel.runs.recorder import Recorder, Status, is_begun
from winkel.runs.spec import Options, RunSpec
from winkel.simulators import StepBatch
from winkel.training.compaction import Compaction
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes, Report
from winkel.training.programs import Programs, World
from winkel.training.simulated import SimulatorWorld
from winkel.training.steps import Plan
from winkel.types import RunState

MAX_SAVING = 0.05
"""Fraction of the time that writing checkpoints may take; if it is more, they become rarer."""

MirrorMaker = Callable[[dict[str, Any], Path], tuple[Mirror, ...]]
"""Makes copies of the metrics' log (TensorBoard, W&B) for a run's config and folder."""
Watch = Callable[[StepBatch, int], None]
"""Gets every step of simulators, and how many steps each run has made."""


class Cost(NamedTuple):
    """What a session took.

    Attributes:
        name: of the group of runs.
        runs: number of runs.
        lanes: runs side by side, at first.
        seconds: wall time.
        device: of these, waiting for the device.
        compiling: of these, compiling programs.
        saving: of these, writing checkpoints and records.
        programs: number of compiled programs.
        updates: by environment.
    """

    name: str
    runs: int
    lanes: int
    seconds: float
    device: float
    compiling: float
    saving: float
    programs: int
    updates: dict[str, int]

    @property
    def total(self) -> int:
        """Updates of all runs."""
        return sum(self.updates.values())

    @property
    def rate(self) -> float:
        """Updates a second, compilation and everything else included."""
        return self.total / self.seconds if self.seconds else 0.0

    def row(self) -> dict[str, Any]:
        """The cost as JSON."""
        rounded = {k: round(v, 1) if isinstance(v, float) else v for k, v in self._asdict().items()}
        group = rounded.pop("name")
        totals = {"updates": self.total, "updates_per_second": round(self.rate, 1)}
        return {"group": group} | rounded | totals


@dataclass
class Session:
    """Runs that share one compiled program.

    Attributes:
        specs: the runs.
        out: folder for all runs; None to keep them in memory.
        num_lanes: runs side by side; the others wait.
        progress: gets the status of every run after each chunk.
        notice: gets sentences that a user should see.
        keep: whether to return records and learners; if not, they are on disk alone.
        mirrors: makes copies of the metrics' log.
        watch: gets every step of simulators.
    """

    specs: Sequence[RunSpec]
    out: Path | None
    num_lanes: int
    progress: Callable[[list[Status]], None] = lambda _: None
    notice: Callable[[str], None] = lambda _: None
    keep: bool = True
    mirrors: MirrorMaker | None = None
    watch: Watch | None = None
    programs: Programs = field(init=False, default_factory=Programs)
    recorders: list[Recorder] = field(init=False, default_factory=list)
    lanes: Lanes = field(init=False)
    records: dict[int, RunRecord] = field(init=False, default_factory=dict)
    began: float = field(init=False, default_factory=time.perf_counter)
    saving: float = field(init=False, default=0.0)
    updates_before: dict[int, int] = field(init=False, default_factory=dict)
    """Updates that resumed runs had made before."""
    consistent: bool = field(init=False, default=True)
    """Whether lanes and records belong to the same step, so that they can be saved."""

    def run(self) -> list[RunRecord]:
        """Make all runs, or continue them from their checkpoints. Ctrl-C saves them."""
        spec, options = self.specs[0], self.specs[0].options
        plans = [self._plan(number) for number in range(len(self.specs))]
        self.lanes = make_lanes(
            spec.agent, spec.task, plans, self.num_lanes, options,
            self.notice, self.programs, self.watch,
        )  # fmt: skip
        saved_at, pause = time.monotonic(), options.checkpoint_seconds
        try:
            while self._advance():
                if time.monotonic() - saved_at >= pause:
                    begin = time.monotonic()
                    self._save()
                    saved_at = time.monotonic()
                    if pause:
                        pause = max(pause, (saved_at - begin) / MAX_SAVING)
                self.progress([recorder.status for recorder in self.recorders])
        except KeyboardInterrupt:
            if self.consistent:
                self._save()
            raise
        finally:
            for recorder in self.recorders:
                recorder.close()
            self.lanes.close()
        return [self.records[number] for number in range(len(self.specs))]

    def cost(self, name: str) -> Cost:
        """What the session took so far."""
        updates: Counter[str] = Counter()
        for number, recorder in enumerate(self.recorders):
            status = recorder.status
            updates[status.env] += status.updates - self.updates_before.get(number, 0)
        return Cost(
            name=name,
            runs=len(self.specs),
            lanes=self.num_lanes,
            seconds=time.perf_counter() - self.began,
            device=self.programs.running,
            compiling=self.programs.compiling,
            saving=self.saving,
            programs=self.programs.count,
            updates=dict(updates),
        )

    def _plan(self, number: int) -> Plan:
        """Open the records of a run, and plan it from its beginning or its checkpoint."""
        spec = self.specs[number]
        folder = None if self.out is None else spec.folder(self.out)
        mirrors = self.mirrors(spec.config, folder) if self.mirrors and folder else ()
        recorder = Recorder(spec, folder, mirrors)
        self.recorders.append(recorder)
        if folder is None or not is_begun(folder):
            return spec.plan()
        arrays, skipped = recorder.resume()
        for reason in skipped:
            self.notice(f"{folder}: {reason}; went back to the checkpoint before")
        state = unpack(arrays, state_shapes(spec))
        self.updates_before[number] = int(state.clock.updates)
        recorder.status = recorder.status._replace(updates=self.updates_before[number])
        return spec.plan()._replace(saved=state)

    def _advance(self) -> list[Report]:
        """Advance the lanes by a chunk and record it. Ctrl-C waits until both are done."""
        with _defer_interrupt():
            self.consistent = False
            reports = self.lanes.advance()
            for report in reports:
                self.recorders[report.plan].record(report)
            self._evaluate(reports)
            self._take_snapshots(reports)
            for report in reports:
                if report.finished or report.failure is not None:
                    self._finish(report)
            self.consistent = True
        return reports

    def _evaluate(self, reports: Sequence[Report]) -> None:
        """Make the greedy evaluations that are due."""
        due = {
            report.plan: self.recorders[report.plan].due_evaluation(report) for report in reports
        }
        for number in sorted({number for number in due.values() if number is not None}):
            chosen = [report for report in reports if due[report.plan] == number]
            num_episodes = self.specs[0].options.evaluation_episodes
            found = self.lanes.evaluate([report.plan for report in chosen], number, num_episodes)
            for report, returns in zip(chosen, found, strict=True):
                row = {
                    "evaluation": np.array([number]),
                    "env_steps": np.array([report.env_steps]),
                    "episodes": np.array([report.num_episodes]),
                    "returns": np.asarray(returns, np.float64)[None],
                }
                self.recorders[report.plan].add("evaluations", row)

    def _take_snapshots(self, reports: Sequence[Report]) -> None:
        """Take the snapshots that are due."""
        due = [report for report in reports if self.recorders[report.plan].due_snapshot(report)]
        if not due:
            return
        surveys = self.lanes.survey([report.plan for report in due])
        for report, survey in zip(due, surveys, strict=True):
            row = {"episodes": np.array([report.num_episodes])}
            row |= {name: values[None] for name, values in survey.items()}
            self.recorders[report.plan].add("snapshots", row)

    def _finish(self, report: Report) -> None:
        """Save a run that has ended, and free its lane."""
        spec, recorder = self.specs[report.plan], self.recorders[report.plan]
        state = self.lanes.state(report.plan)
        outcome = {"status": "finished"}
        if report.failure is not None:
            where = f"{spec.label} in {spec.task.id}, seed {spec.seed}"
            self.notice(f"{where} stopped: {report.failure}")
            outcome = {"status": "failed", "reason": report.failure}
        outside = self.lanes.left_support(report.plan)
        if outside is not None:
            self.notice(f"seed {spec.seed}: {outside}")
        begin = time.perf_counter()
        recorder.checkpoint(pack(state), outcome)
        record = recorder.finish(outcome)
        self.saving += time.perf_counter() - begin
        self.records[report.plan] = (
            dataclasses.replace(record, spec=spec, learner=state.learner)
            if self.keep
            else dataclasses.replace(record, episodes={}, tables={})
        )
        self.lanes.release(report.plan)

    def _save(self) -> None:
        """Write a checkpoint of every run under way."""
        begin = time.perf_counter()
        if self.out is not None:
            for number in self.lanes.running:
                self.recorders[number].checkpoint(pack(self.lanes.state(number)))
        self.saving += time.perf_counter() - begin


@contextlib.contextmanager
def _defer_interrupt() -> Iterator[None]:
    """Raise Ctrl-C's KeyboardInterrupt at the end of the block; at once if it is pressed twice."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    pressed = []

    def hold(*_: object) -> None:
        pressed.append(True)
        if len(pressed) > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def make_world(
    task: Task, notice: Callable[[str], None] = lambda _: None, watch: Watch | None = None
) -> World:
    """Make what steps the environments of a task: the one place that tells simulators from JAX."""
    if isinstance(task, SimulatorTask):
        return SimulatorWorld(lambda seeds: task.pool(seeds, notice), task.num_envs, watch)
    return CompiledWorld(task.env)


def make_lanes(
    agent: Agent,
    task: Task,
    plans: Sequence[Plan],
    num_lanes: int,
    options: Options,
    notice: Callable[[str], None] = lambda _: None,
    programs: Programs | None = None,
    watch: Watch | None = None,
) -> Lanes:
    """Make lanes for runs of one agent and one shape of environment."""
    rearrange = None
    if options.compact_lanes is not None or options.freeze_bonus:
        rearrange = Compaction(
            options.compact_lanes, options.freeze_bonus, options.compile_in_background
        ).rearrange
    return Lanes(
        agent,
        make_world(task, notice, watch),
        plans,
        num_lanes,
        options.chunk_steps,
        rearrange=rearrange,
        notice=notice,
        programs=programs or Programs(),
        devices=options.devices,
    )


def state_shapes(spec: RunSpec) -> RunState:
    """Shapes and types of a run's state, without computing it."""
    return make_world(spec.task).shapes(spec.agent, spec.plan())
