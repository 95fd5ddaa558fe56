"""The search loop: a population of trials in lanes, scored, pruned, and refilled from the study."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial, TrialState

from winkel.agents.base import Agent
from winkel.errors import InputError, require_integer
from winkel.runs.session import make_lanes
from winkel.runs.spec import Options
from winkel.search.problem import Problem, score_episodes
from winkel.search.space import MILESTONES, SearchEnvironment
from winkel.search.study import Study, storage_errors
from winkel.search.trials import (
    REASON,
    STARTUP,
    calibrated_scores,
    final_scores,
    is_below_median,
    is_counted,
    step_of,
)
from winkel.training.lanes import Lanes, Report
from winkel.training.programs import Arrays

LANES, LANES_ON_CPU = 64, 8
"""Default number of runs side by side."""
SHOW_SECONDS = 0.25
"""Time between two updates of the display."""


class Progress(NamedTuple):
    """Progress of a search.

    Attributes:
        trials: number of trials by state: complete, pruned, failed, running (in this process) and
            elsewhere (in other processes, or queued).
        share: share of the work that is done.
        updates: updates made in this process.
        best: best final score so far.
        programs: compiled programs of this process so far.
    """

    trials: dict[str, int]
    share: float
    updates: int
    best: float | None
    programs: int


@dataclass
class SeedRun:
    """One run of a trial in its current environment: its episodes and its last report."""

    episodes: list[Arrays] = field(default_factory=list)
    last: Report | None = None

    def add(self, report: Report) -> None:
        """Add what a chunk of steps brought."""
        if report.episodes:
            self.episodes.append(report.episodes)
        self.last = report

    def has_reached(self, point: int, by_steps: bool) -> bool:
        """Whether the run has made so many steps (or else episodes), or has ended."""
        if self.last is None:
            return False
        reached = self.last.env_steps if by_steps else self.last.num_episodes
        return self.last.finished or reached >= point

    def episodes_until(self, point: int, by_steps: bool) -> Arrays:
        """Return the episodes that had ended after so many steps (or else episodes)."""
        if not self.episodes:
            return {}
        names = self.episodes[0]
        table = {name: np.concatenate([part[name] for part in self.episodes]) for name in names}
        self.episodes = [table]
        if by_steps:
            point = int(np.searchsorted(table["env_steps"], point, side="right"))
        return {name: column[:point] for name, column in table.items()}


@dataclass
class TrialInProgress:
    """A trial that trains in one environment after the other.

    Attributes:
        trial: Optuna's.
        fields: the agent's fields.
        environment: number of the current environment.
        milestone: milestones passed in it.
        runs: its runs there, one for each seed.
        updates_before: updates in earlier environments.
    """

    trial: Trial
    fields: dict[str, Any]
    environment: int = 0
    milestone: int = 0
    runs: list[SeedRun] = field(default_factory=list)
    updates_before: int = 0

    @property
    def number(self) -> int:
        """Optuna's number of the trial."""
        return self.trial.number

    def score(self, entry: SearchEnvironment, point: int) -> float:
        """Return the mean score over seeds after so many steps or episodes."""
        episodes = [run.episodes_until(point, entry.by_steps) for run in self.runs]
        return float(np.mean([score_episodes(entry.score, table) for table in episodes]))

    @property
    def updates(self) -> int:
        """Updates in all environments."""
        return self.updates_before + sum(run.last.updates for run in self.runs if run.last)

    @property
    def share(self) -> float:
        """Share that is done of the current environment."""
        return sum(run.last.progress for run in self.runs if run.last) / max(len(self.runs), 1)


@dataclass
class TrialLanes:
    """Lanes of one program, and the trial and seed of each of their plans."""

    lanes: Lanes
    owners: dict[int, tuple[TrialInProgress, SeedRun]] = field(default_factory=dict)

    def advance(self) -> list[tuple[TrialInProgress, Report]]:
        """Advance all runs by a chunk of steps, and free the lanes of those that ended."""
        advanced = []
        for report in self.lanes.advance():
            trial, run = self.owners[report.plan]
            run.add(report)
            advanced.append((trial, report))
            if report.finished or report.failure is not None:
                self._release(report.plan)
        return advanced

    def release(self, trial: TrialInProgress) -> None:
        """Free all lanes of a trial."""
        for plan in [plan for plan, (owner, _) in self.owners.items() if owner is trial]:
            self._release(plan)

    def _release(self, plan: int) -> None:
        del self.owners[plan]
        self.lanes.release(plan)


@dataclass
class Population:
    """The part of one process in a search.

    Attributes:
        problem: what to search for.
        study: where trials are stored.
        wanted: number of trials, those of other processes included.
        lanes: runs side by side; None for the default.
        chunk_steps: steps between two checks of the lanes.
        seed: of the suggestions.
        startup: other trials that must have been scored before any is pruned.
        progress: called with the progress now and then.
        notice: called with messages for the user.
        in_progress: trials in progress here, by number.
        programs: trials by environment, agent with its static settings, and for simulators, whose
            runs begin together, trial number: those that share a compiled program.
    """

    problem: Problem
    study: Study
    wanted: int
    lanes: int | None = None
    chunk_steps: int = 100
    seed: int = 0
    startup: int = STARTUP
    progress: Callable[[Progress], None] = lambda _: None
    notice: Callable[[str], None] = lambda _: None
    in_progress: dict[int, TrialInProgress] = field(init=False, default_factory=dict)
    programs: dict[tuple[int, Agent, int | None], TrialLanes] = field(
        init=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        require_integer("trials", self.wanted, at_least=1)
        default = LANES_ON_CPU if jax.default_backend() == "cpu" else LANES
        lanes = default if self.lanes is None else self.lanes
        self.lanes = require_integer("lanes", lanes, at_least=1)
        require_integer("chunk_steps", self.chunk_steps, at_least=1)
        size = self.problem.space.size()
        if self.wanted > size:
            raise InputError(
                f"need trials <= {size}, the configurations that the space has, got {self.wanted}"
            )
        compiled = all(task.compiled for task in self.problem.tasks)
        self.size = max(self.lanes // self.problem.seeds, 1) if compiled else 1
        self._updates = 0  # of ended trials
        self._keys = set[Any]()  # of all programs so far
        self._shown = time.monotonic()

    def run(self) -> Progress:
        """Run trials until there are as many as wanted, here and elsewhere."""
        with storage_errors(self.study.url), self.study.heartbeats(self.in_progress):
            try:
                while self._fill():
                    for lanes in list(self.programs.values()):
                        self._advance(lanes)
                    for key, lanes in list(self.programs.items()):
                        if not lanes.owners:
                            self.programs.pop(key).lanes.close()
                    if time.monotonic() - self._shown >= SHOW_SECONDS:
                        self.progress(self.measure())
                        self._shown = time.monotonic()
                progress = self.measure()
                self.progress(progress)
                return progress
            except BaseException:
                for trial in self.in_progress.values():
                    self.study.requeue(trial.trial)
                raise
            finally:
                for lanes in self.programs.values():
                    lanes.lanes.close()
                self.programs.clear()

    def measure(self) -> Progress:
        """Measure the progress of the search."""
        counted = list(filter(is_counted, self.study.trials()))
        states = [trial.state for trial in counted]
        ended = sum(state.is_finished() for state in states)
        num_environments = len(self.problem.tasks)
        here = self.in_progress.values()
        shares = sum((trial.environment + trial.share) / num_environments for trial in here)
        return Progress(
            trials={
                "complete": states.count(TrialState.COMPLETE),
                "pruned": states.count(TrialState.PRUNED),
                "failed": states.count(TrialState.FAIL),
                "running": len(here),
                "elsewhere": len(states) - ended - len(here),
            },
            share=min((ended + shares) / self.wanted, 1.0),
            updates=self._updates + sum(trial.updates for trial in here),
            best=max(final_scores(counted, num_environments).values(), default=None),
            programs=len(self._keys),
        )

    def _fill(self) -> bool:
        """Begin as many trials as there is room for; return whether any is in progress."""
        while True:
            room = self.size - len(self.in_progress)
            space = self.problem.space
            trials = self.study.begin_trials(space, room, self.wanted, self.seed)
            begun = [TrialInProgress(trial, space.fields(trial.params)) for trial in trials]
            self.in_progress |= {trial.number: trial for trial in begun}
            for trial in begun:
                self._enter_environment(trial)
            if self.in_progress or not self.study.wait_for_others():
                return bool(self.in_progress)

    def _enter_environment(self, trial: TrialInProgress) -> None:
        """Queue a trial's runs in the lanes of its program."""
        configured = self.problem.configure(trial.environment, trial.fields)
        plans = self.problem.plans(trial.environment, configured)
        trial.runs = [SeedRun() for _ in plans]
        task, agent = self.problem.tasks[trial.environment], configured.agent
        alone = None if task.compiled else trial.number
        key = (trial.environment, agent, alone)
        if key in self.programs:
            lanes = self.programs[key].lanes
            numbers = [lanes.add(plan) for plan in plans]
        else:
            count, options = self._count_lanes(agent), Options(chunk_steps=self.chunk_steps)
            lanes = make_lanes(agent, task, plans, count, options, self.notice)
            self.programs[key] = TrialLanes(lanes)
            self._keys.add(key)
            numbers = list(range(len(plans)))
        for number, run in zip(numbers, trial.runs, strict=True):
            self.programs[key].owners[number] = trial, run

    def _count_lanes(self, agent: Agent) -> int:
        """Return the number of lanes for all trials in progress that will share a program.

        It is a power of two, so that few programs differ in it alone.
        """
        agents = [
            self.problem.configure(trial.environment, trial.fields).agent
            for trial in self.in_progress.values()
        ]
        expected = agents.count(agent) * self.problem.seeds
        return min(self.lanes or LANES, 1 << (expected - 1).bit_length())

    def _advance(self, lanes: TrialLanes) -> None:
        """Advance lanes by a chunk; first score all trials, then prune, end or move them on."""
        scored: dict[int, list[int]] = {}
        for trial, report in lanes.advance():
            if trial.number in self.in_progress:
                with self._drop_if_ended(trial):
                    if report.failure is not None:
                        self._fail(trial, report.failure)
                    elif steps := self._report_scores(trial):
                        scored[trial.number] = steps
        if not scored:
            return
        trials = self.study.trials()
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        num_environments = len(self.problem.tasks)
        last = step_of(num_environments - 1, MILESTONES)  # pruning there would save nothing
        for trial in [self.in_progress[n] for n in scored if n in self.in_progress]:
            number = trial.number
            below = any(
                step != last and is_below_median(number, step, trials, self.startup)
                for step in scored[number]
            )
            with self._drop_if_ended(trial):
                if below and self.problem.space.prune:
                    self._end(trial, TrialState.PRUNED)
                elif trial.milestone == MILESTONES and trial.environment + 1 < num_environments:
                    self._release(trial)
                    trial.updates_before, trial.milestone = trial.updates, 0
                    trial.environment += 1
                    self._enter_environment(trial)
                elif trial.milestone == MILESTONES:
                    complete.append(trials[number])
                    value = calibrated_scores(complete, num_environments)[-1].sum()
                    self._end(trial, TrialState.COMPLETE, float(value))

    def _report_scores(self, trial: TrialInProgress) -> list[int]:
        """Report the mean score over seeds at each milestone that all of them have reached.

        Return Optuna's steps of these milestones.
        """
        entry, steps = self.problem.space.environments[trial.environment], []
        for point in entry.milestones()[trial.milestone :]:
            if not all(run.has_reached(point, entry.by_steps) for run in trial.runs):
                break
            score = trial.score(entry, point)
            trial.milestone += 1
            if trial.milestone == MILESTONES and not np.isfinite(score):
                self._fail(trial, f"no episode of {entry.id} ended within its horizon")
                return []
            steps.append(step_of(trial.environment, trial.milestone))
            trial.trial.report(score, steps[-1])
        return steps

    def _fail(self, trial: TrialInProgress, reason: str) -> None:
        self.notice(f"trial {trial.number} failed: {reason}")
        trial.trial.set_user_attr(REASON, reason)
        self._end(trial, TrialState.FAIL)

    def _end(self, trial: TrialInProgress, state: TrialState, value: float | None = None) -> None:
        trial.trial.set_user_attr("updates", trial.updates)
        self.study.end(trial.trial, state, value)
        self._forget(trial)

    @contextmanager
    def _drop_if_ended(self, trial: TrialInProgress) -> Iterator[None]:
        """Drop a trial that another process has ended because it took this one for dead."""
        try:
            yield
        except UpdateFinishedTrialError:
            self.notice(f"trial {trial.number} was requeued by another process; dropped it here")
            self._forget(trial)

    def _forget(self, trial: TrialInProgress) -> None:
        self._updates += trial.updates
        self._release(trial)
        del self.in_progress[trial.number]

    def _release(self, trial: TrialInProgress) -> None:
        for lanes in self.programs.values():
            lanes.release(trial)
