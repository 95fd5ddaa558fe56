"""Runs of one shape, from the first step to the last, recorded on the way."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from winkel.envs.registry import Task, true_inputs
from winkel.errors import InputError, require_integer
from winkel.experiments.config import Configured
from winkel.experiments.recording import Recorder, is_begun
from winkel.experiments.trained import Trained
from winkel.io.checkpoint import pack, unpack
from winkel.training.device import lane_shapes
from winkel.training.lanes import Lanes, Plan, Report
from winkel.training.steps import UNLIMITED, Horizon
from winkel.types import OneHot

DEFAULT_SNAPSHOTS = 6


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


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to train, none of which shapes what is learned.

    Evaluations and snapshots happen at the first end of a chunk after their time.
    """

    evaluate_every: int | None = None
    """Episodes (or steps, where the horizon counts steps) between greedy evaluations."""
    evaluation_episodes: int = 1
    """Greedy episodes of each evaluation."""
    snapshots: int = DEFAULT_SNAPSHOTS
    """Looks at all countable observations, from the start to the end; 0 for none."""
    checkpoint_seconds: float = 60.0
    """Time between checkpoints; one is written at the end in any case."""
    chunk_steps: int = 100
    """Steps between two looks at the lanes."""

    def __post_init__(self) -> None:
        if self.evaluate_every is not None:
            require_integer("evaluate_every", self.evaluate_every, at_least=1)
        require_integer("evaluation_episodes", self.evaluation_episodes, at_least=1)
        require_integer("snapshots", self.snapshots, at_least=0)
        require_integer("chunk_steps", self.chunk_steps, at_least=1)
        if not self.checkpoint_seconds >= 0:
            raise InputError(f"need checkpoint_seconds >= 0, got {self.checkpoint_seconds}")


class Planned(NamedTuple):
    """A run to be made, and where its records go.

    Attributes:
        task: the environment's setting; all runs of a session share its shapes.
        configured: the agent; all runs of a session share its static settings.
        horizon: when schedules end.
        stop: when the run stops before that.
        recorder: what keeps its records.
    """

    task: Task
    configured: Configured
    horizon: Horizon
    stop: Horizon | None
    recorder: Recorder


@dataclass
class Session:
    """Runs that share one compiled program: lanes on one side, recorders on the other."""

    runs: list[Planned]
    options: Options
    progress: Callable[[list[Status]], None]
    notice: Callable[[str], None]
    keep: bool = True
    """Whether to hand back records and learners; else they are on disk alone."""

    def run(self, num_lanes: int) -> list[Trained]:
        """All runs to their end, interrupted or not."""
        self.trained: dict[int, Trained] = {}
        self.recorders = [run.recorder for run in self.runs]
        self.agent, env = self.runs[0].configured.agent, self.runs[0].task.env
        self.statuses = {i: _waiting(recorder) for i, recorder in enumerate(self.recorders)}
        plans = [self._plan(run) for run in self.runs]
        self.lanes = Lanes(self.agent, env, plans, num_lanes, self.options.chunk_steps)
        self.whole = True
        saved_at = time.monotonic()
        try:
            while self._chunk():
                if time.monotonic() - saved_at >= self.options.checkpoint_seconds:
                    self._save()
                    saved_at = time.monotonic()
                self.progress([self.statuses[i] for i in range(len(self.recorders))])
        except KeyboardInterrupt:
            if self.whole:
                self._save()
            raise
        finally:
            for recorder in self.recorders:
                recorder.close()
        return [self.trained[i] for i in range(len(self.recorders))]

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

    def _plan(self, run: Planned) -> Plan:
        recorder = run.recorder
        plan = Plan(
            params=run.task.params,
            hyper=run.configured.hyper,
            horizon=run.horizon,
            seed=recorder.config["seed"],
            fan_in=true_inputs(run.task.id, run.task.env),
            stop=run.stop,
        )
        if recorder.folder is None or not is_begun(recorder.folder):
            return plan
        arrays, skipped = recorder.resume()
        for reason in skipped:
            self.notice(f"{recorder.folder}: {reason}; went back to the checkpoint before")
        like = lane_shapes(self.agent, run.task.env, plan.params, plan.hyper, plan.horizon)
        return plan._replace(saved=unpack(arrays, like))

    def _record(self, report: Report) -> None:
        recorder = self.recorders[report.plan]
        if report.episodes:
            recorder.add("episodes", report.episodes)
        if report.failure is None:
            counts = {
                "env_steps": report.env_steps,
                "episodes": report.num_episodes,
                "updates": report.updates,
            }
            recorder.log(counts | report.metrics)
        self.statuses[report.plan] = self._status(report)

    def _status(self, report: Report) -> Status:
        recorder = self.recorders[report.plan]
        rows = recorder.rows("episodes")
        returns = rows.get("return", np.zeros(0))
        treasures = np.flatnonzero(rows.get("treasure", np.zeros(0)))
        seen = rows.get("seen")
        state = "failed" if report.failure else "finished" if report.finished else "running"
        return Status(
            env=recorder.config["env"],
            agent=recorder.config["agent"],
            seed=recorder.config["seed"],
            progress=report.progress,
            env_steps=report.env_steps,
            num_episodes=report.num_episodes,
            updates=report.updates,
            recent_return=float(returns[-50:].mean()) if len(returns) else float("nan"),
            seen=None
            if seen is None or not len(seen)
            else seen[-1] / reachable(self.runs[report.plan].task),
            found=int(treasures[0]) + 1 if len(treasures) else None,
            state=state,
        )

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
        made = len(self.recorders[report.plan].rows("snapshots").get("episodes", ()))
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
            recorder.checkpoint(pack(state), outcome)
            run = recorder.finish(outcome)
            self.trained[report.plan] = Trained(
                config=run.config,
                episodes=run.episodes if self.keep else {},
                evaluations=recorder.rows("evaluations") if self.keep else {},
                snapshots=recorder.rows("snapshots") if self.keep else {},
                agent=self.agent,
                hyper=self.runs[report.plan].configured.hyper,
                learner=state.run.learner if self.keep else None,
            )
            if not self.keep:
                recorder.forget()
            self.lanes.release(report.plan)

    @property
    def _lane_of(self) -> dict[int, int]:
        return self.lanes.running

    def _save(self) -> None:
        for plan, lane in self._lane_of.items():
            if self.recorders[plan].folder is not None:
                self.recorders[plan].checkpoint(pack(self.lanes.state(lane)))


def reachable(task: Task) -> int:
    """State-actions that an episode can come through, where observations are countable."""
    size = task.setting["size"]
    return int(size * (size + 1) / 2 * task.env.num_actions)


def _waiting(recorder: Recorder) -> Status:
    return Status(
        env=recorder.config["env"],
        agent=recorder.config["agent"],
        seed=recorder.config["seed"],
        progress=0.0,
        env_steps=0,
        num_episodes=0,
        updates=0,
        recent_return=float("nan"),
        seen=None,
        found=None,
        state="running",
    )


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
