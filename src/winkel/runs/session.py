"""Runs of one shape, from the first step to the last, recorded on the way."""

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from winkel.runs.checkpoint import pack, unpack
from winkel.runs.planned import Options, Planned
from winkel.runs.recording import is_begun
from winkel.runs.shapes import shapes_of, world_of
from winkel.runs.status import Spent, Standing, Status, status
from winkel.runs.trained import Trained
from winkel.simulators import StepBatch
from winkel.training.lanes import Lanes, Plan, Report
from winkel.training.programs import Programs
from winkel.training.steps import UNLIMITED
from winkel.types import OneHot

__all__ = ["Options", "Planned", "Session", "Status"]

SAVING = 0.05
"""Share of the time that checkpoints may take; where they take longer they become rarer."""


@dataclass
class Session:
    """Runs that share one compiled program: lanes on one side, recorders on the other."""

    runs: list[Planned]
    options: Options
    progress: Callable[[list[Status]], None]
    notice: Callable[[str], None]
    keep: bool = True
    """Whether to hand back records and learners; else they are on disk alone."""
    watch: Callable[[StepBatch, int], None] | None = None
    """Gets every move of simulators, and how many steps each run has made."""

    def run(self, num_lanes: int) -> list[Trained]:
        """All runs to their end, interrupted or not."""
        self.began, self.programs, self.num_lanes = time.perf_counter(), Programs(), num_lanes
        self.saving, self.updates, self.updates_before = 0.0, Counter[str](), Counter[int]()
        self.trained: dict[int, Trained] = {}
        self.recorders = [run.recorder for run in self.runs]
        self.agent = self.runs[0].configured.agent
        plans = [self._plan(i, run) for i, run in enumerate(self.runs)]
        self.standings = [Standing.of(run.task, run.recorder.rows("episodes")) for run in self.runs]
        self.statuses = [
            status(*parts, None) for parts in zip(self.recorders, self.standings, strict=True)
        ]
        self.lanes = self._make_lanes(plans)
        self.whole = True
        saved_at, pause = time.monotonic(), self.options.checkpoint_seconds
        try:
            while self._chunk():
                if time.monotonic() - saved_at >= pause:
                    begin = time.monotonic()
                    self._save()
                    saved_at = time.monotonic()
                    if pause:
                        pause = max(pause, (saved_at - begin) / SAVING)
                self.progress(list(self.statuses))
        except KeyboardInterrupt:
            if self.whole:
                self._save()
            raise
        finally:
            for recorder in self.recorders:
                recorder.close()
            self.lanes.close()
        return [self.trained[i] for i in range(len(self.recorders))]

    def _make_lanes(self, plans: list[Plan]) -> Lanes:
        options = self.options
        return Lanes(
            self.agent,
            world_of(self.runs[0].task, self.notice, self.watch),
            plans,
            self.num_lanes,
            options.chunk_steps,
            compact_lanes=options.shrink,
            freeze_bonus=options.rest,
            compile_in_background=options.ahead,
            notice=self.notice,
            programs=self.programs,
            devices=options.devices,
        )

    def spent(self) -> Spent:
        """What it took so far."""
        return Spent(
            seconds=time.perf_counter() - self.began,
            device=self.programs.running,
            compiling=self.programs.compiling,
            saving=self.saving,
            programs=self.programs.count,
            lanes=self.num_lanes,
            updates=dict(self.updates),
        )

    def _chunk(self) -> list[Report]:
        """Move the lanes and record what happened. Ctrl-C waits until both are done."""
        with _held_back():
            self.whole = False
            reports = self.lanes.advance()
            for report in reports:
                self._record(report)
            self._look(reports)
            self._finish(reports)
            self.whole = True
        return reports

    def _plan(self, index: int, run: Planned) -> Plan:
        recorder, plan = run.recorder, run.plan()
        if recorder.folder is None or not is_begun(recorder.folder):
            return plan
        arrays, skipped = recorder.resume()
        for reason in skipped:
            self.notice(f"{recorder.folder}: {reason}; went back to the checkpoint before")
        saved = unpack(arrays, shapes_of(run.task, run.configured, run.horizon))
        self.updates_before[index] = int(saved.clock.updates)
        return plan._replace(saved=saved)

    def _record(self, report: Report) -> None:
        recorder = self.recorders[report.plan]
        if report.episodes:
            recorder.add("episodes", report.episodes)
            self.standings[report.plan].add(report.episodes)
        self.updates[recorder.config["env"]] += report.updates - self.updates_before[report.plan]
        self.updates_before[report.plan] = report.updates
        chunk = report.updates // self.options.chunk_steps
        learned = bool(report.metrics) and chunk % self.options.log_every == 0
        if report.failure is None and (report.finished or learned):
            counts = {
                "env_steps": report.env_steps,
                "episodes": report.num_episodes,
                "updates": report.updates,
            }
            recorder.log(counts | report.metrics)
        self.statuses[report.plan] = self._status(report)

    def _status(self, report: Report) -> Status:
        return status(self.recorders[report.plan], self.standings[report.plan], report)

    def _look(self, reports: list[Report]) -> None:
        """Evaluations and snapshots that are due."""
        lane_of = self._lane_of
        numbers = {report.plan: self._due_evaluation(report) for report in reports}
        for count in sorted({number for number in numbers.values() if number is not None}):
            due = [report for report in reports if numbers[report.plan] == count]
            lanes = [lane_of[report.plan] for report in due]
            found = self.lanes.evaluate(lanes, count, self.options.evaluation_episodes)
            for report, returns in zip(due, found, strict=True):
                row = {
                    "evaluation": np.array([count]),
                    "env_steps": np.array([report.env_steps]),
                    "episodes": np.array([report.num_episodes]),
                    "returns": np.asarray(returns, np.float64)[None],
                }
                self.recorders[report.plan].add("evaluations", row)
        due = [report for report in reports if self._due_snapshot(report)]
        if due:
            surveys = self.lanes.survey([lane_of[report.plan] for report in due])
            for report, survey in zip(due, surveys, strict=True):
                row = {"episodes": np.array([report.num_episodes])}
                row |= {name: values[None] for name, values in survey.items()}
                self.recorders[report.plan].add("snapshots", row)

    def _due_evaluation(self, report: Report) -> int | None:
        """The number of the evaluation that is due, if it was not made yet."""
        every = self.options.evaluate_every
        if every is None or report.failure:
            return None
        by_steps = self.runs[report.plan].horizon.steps != UNLIMITED
        count = (report.env_steps if by_steps else report.num_episodes) // every
        made = self.recorders[report.plan].evaluations.get("evaluation")
        return count if count > (made[-1][-1] if made else 0) else None

    def _due_snapshot(self, report: Report) -> bool:
        countable = isinstance(self.agent.spec.observation, OneHot)
        if not countable or not self.options.snapshots or report.failure:
            return False
        made = self.recorders[report.plan].count("snapshots")
        last = max(self.options.snapshots - 1, 1)
        at = made / last if self.options.snapshots > 1 else 1.0
        return made <= last and report.progress >= at - 1e-6

    def _finish(self, reports: list[Report]) -> None:
        for report in reports:
            if not report.finished and not report.failure:
                continue
            recorder, lane = self.recorders[report.plan], self._lane_of[report.plan]
            state = self.lanes.state(lane)
            outcome = {"status": "finished"}
            if report.failure is not None:
                where = "{agent} in {env}, seed {seed}".format(**recorder.config)
                self.notice(f"{where} stopped: {report.failure}")
                outcome = {"status": "failed", "reason": report.failure}
            told = self.lanes.left_support(report.plan)
            if told is not None:
                self.notice(f"seed {recorder.config['seed']}: {told}")
            begin = time.perf_counter()
            recorder.checkpoint(pack(state), outcome)
            run = recorder.finish(outcome)
            self.saving += time.perf_counter() - begin
            self.trained[report.plan] = Trained(
                config=run.config,
                episodes=run.episodes if self.keep else {},
                evaluations=recorder.rows("evaluations") if self.keep else {},
                snapshots=recorder.rows("snapshots") if self.keep else {},
                agent=self.agent,
                hyper=self.runs[report.plan].configured.hyper,
                learner=state.learner if self.keep else None,
                packing=self.runs[report.plan].task.packing,
            )
            if not self.keep:
                recorder.forget()
            self.lanes.release(report.plan)

    @property
    def _lane_of(self) -> dict[int, int]:
        return self.lanes.running

    def _save(self) -> None:
        begin = time.perf_counter()
        for plan, lane in self._lane_of.items():
            if self.recorders[plan].folder is not None:
                self.recorders[plan].checkpoint(pack(self.lanes.state(lane)))
        self.saving += time.perf_counter() - begin


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
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
