"""The search loop: a population of trials in lanes, scored, pruned, and refilled from the study."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import jax
import numpy as np
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, Trial, TrialState

from winkel.agents.base import Agent
from winkel.errors import InputError, defer_interrupt, require_integer
from winkel.runs.spec import Options
from winkel.runs.train import make_lanes
from winkel.search import study as studies
from winkel.search.problem import MILESTONES, SearchEnvironment, score_episodes
from winkel.search.study import REASON, Study, is_counted
from winkel.training.lanes import Lanes, Report

_STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
LANES, LANES_ON_CPU = 64, 8
"""Default number of runs side by side."""
STARTUP = 5
"""Other trials that must have been scored before any is pruned; Optuna's number."""
SHOW_SECONDS = 0.25
"""Time between two updates of the display."""


@dataclass
class TrialInProgress:
    """A trial that trains in one environment after the other."""

    trial: Trial
    lanes: Lanes = field(init=False)
    reports: dict[int, list[Report]] = field(init=False)
    """Reports of its runs in the current environment, by their numbers in the lanes."""
    step: int = 0
    """Milestones passed in all environments."""
    updates_before: int = 0
    """Updates in earlier environments."""

    @property
    def last_reports(self) -> list[Report]:
        """Last report of each run that has any."""
        return [reports[-1] for reports in self.reports.values() if reports]

    @property
    def updates(self) -> int:
        """Updates in all environments."""
        return self.updates_before + sum(report.updates for report in self.last_reports)

    def has_reached(self, entry: SearchEnvironment, point: int) -> bool:
        """Whether all runs have made so many steps or episodes, or have ended."""
        return len(self.last_reports) == len(self.reports) and all(
            report.finished or point <= (report.env_steps if entry.steps else report.num_episodes)
            for report in self.last_reports
        )

    def score(self, entry: SearchEnvironment, point: int) -> float:
        """Return the mean score over seeds after so many steps or episodes."""
        scores = []
        for reports in self.reports.values():
            parts = [report.episodes for report in reports]
            table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            count = np.count_nonzero(table["env_steps"] <= point) if entry.steps else point
            so_far = {name: column[:count] for name, column in table.items()}
            scores.append(score_episodes(entry.score, so_far))
        return float(np.mean(scores))

    def release(self) -> None:
        """Free the lanes of all runs that have not ended."""
        for number, reports in self.reports.items():
            if not reports or not (reports[-1].finished or reports[-1].failure):
                self.lanes.release(number)


@dataclass
class Population:
    """The part of one process in a search for `wanted` trials, those of other processes included.

    `lanes` runs go side by side. `progress` is called now and then with a line on the trials and
    the best one so far, and with the share of the work that is done; trials of other processes, and
    queued ones, are 'elsewhere'.
    """

    study: Study
    wanted: int
    lanes: int
    options: Options
    progress: Callable[[str, float], None] = lambda *_: None
    notice: Callable[[str], None] = lambda _: None
    in_progress: dict[int, TrialInProgress] = field(init=False, default_factory=dict)
    programs: dict[tuple[int, Agent, int | None], Lanes] = field(init=False, default_factory=dict)
    """Lanes by environment, agent with its static settings, and for simulators, whose runs begin
    together, trial number."""
    updates: int = field(init=False, default=0)
    """Updates made here in trials that have ended."""

    def __post_init__(self) -> None:
        self.problem = self.study.problem
        compiled = all(task.compiled for task in self.problem.tasks)
        self.size = max(self.lanes // self.problem.seeds, 1) if compiled else 1

    def run(self) -> None:
        """Run trials until there are as many as wanted, here and elsewhere."""
        shown = time.monotonic()
        hint = "; continue with --resume when it is back"
        with (
            defer_interrupt() as check_interrupt,
            studies.storage_errors(self.study.where, hint),
            self.study.heartbeats(self.in_progress),
        ):
            try:
                check_interrupt()
                while self._fill(check_interrupt):
                    for lanes in list(self.programs.values()):
                        self._advance(lanes)
                    for key, lanes in list(self.programs.items()):
                        if not any(trial.lanes is lanes for trial in self.in_progress.values()):
                            self.programs.pop(key).close()
                    if time.monotonic() - shown >= SHOW_SECONDS:
                        self._show_progress()
                        shown = time.monotonic()
                    check_interrupt()
            except BaseException:
                for trial in self.in_progress.values():
                    self.study.requeue(trial.trial)
                raise
            finally:
                for lanes in self.programs.values():
                    lanes.close()
            self._show_progress()

    def _show_progress(self) -> None:
        trials, num_environments = self.study.trials(), len(self.problem.tasks)
        counts = Counter(_STATES.get(t.state, "elsewhere") for t in trials if is_counted(t))
        done = float(counts.total() - counts["elsewhere"])
        for trial in self.in_progress.values():
            share = sum(report.share_done for report in trial.last_reports) / len(trial.reports)
            done += (trial.step // MILESTONES + share) / num_environments
        counts["running"] = len(self.in_progress)
        counts["elsewhere"] -= counts["running"]
        order = (*_STATES.values(), "running", "elsewhere")
        shown = [f"{counts[state]} {state}" for state in order if counts[state]]
        if totals := studies.final_scores(trials, num_environments):
            best = max(totals, key=totals.__getitem__)
            scores = studies.raw_scores([trials[best]], num_environments)[0]
            shown.append(f"best trial {best}: {' and '.join(f'{s:,.6g}' for s in scores)}")
        self.progress(", ".join(shown), min(done / self.wanted, 1.0))

    def _fill(self, check_interrupt: Callable[[], None]) -> bool:
        """Begin as many trials as there is room for; return whether any is in progress."""
        while True:
            room = self.size - len(self.in_progress)
            trials = self.study.begin_trials(room, self.wanted)
            self.in_progress |= {trial.number: TrialInProgress(trial) for trial in trials}
            for trial in trials:
                self._enter_environment(self.in_progress[trial.number])
            if self.in_progress or not self.study.wait_for_others(check_interrupt):
                return bool(self.in_progress)

    def _enter_environment(self, trial: TrialInProgress) -> None:
        """Queue a trial's runs in the lanes of its program."""
        environment = trial.step // MILESTONES
        runs = self.problem.runs(environment, trial.trial.params)
        agent, task, plans = runs[0].agent, runs[0].task, [run.plan() for run in runs]
        key = environment, agent, None if task.compiled else trial.trial.number
        if key in self.programs:
            numbers = [self.programs[key].add(plan) for plan in plans]
        else:
            trials = self.in_progress.values()
            agents = [
                self.problem.runs(t.step // MILESTONES, t.trial.params)[0].agent for t in trials
            ]
            expected = agents.count(agent) * self.problem.seeds
            # A power of two, so that few programs differ in the number of lanes alone.
            count = min(self.lanes, 1 << (expected - 1).bit_length())
            self.programs[key] = make_lanes(runs[0], plans, count, self.options, notice=self.notice)
            numbers = list(range(len(plans)))
        trial.lanes, trial.reports = self.programs[key], {number: [] for number in numbers}

    def _advance(self, lanes: Lanes) -> None:
        """Advance lanes by a chunk; first score all trials, then prune, end or move them on."""
        trials = [trial for trial in self.in_progress.values() if trial.lanes is lanes]
        reports = {number: found for trial in trials for number, found in trial.reports.items()}
        for report in lanes.advance():
            reports[report.run].append(report)
            if report.finished or report.failure:
                lanes.release(report.run)
        scored = []
        for trial in trials:
            with self._errors_of(trial):
                if steps := self._report_scores(trial):
                    scored.append((trial, steps))
        stored = self.study.trials() if scored else []
        for trial, steps in scored:
            with self._errors_of(trial):
                self._continue_or_end(trial, steps, stored)

    def _continue_or_end(
        self, trial: TrialInProgress, steps: list[int], trials: list[FrozenTrial]
    ) -> None:
        """Prune a trial, let it enter the next environment, or end it as complete."""
        number, num_environments = trial.trial.number, len(self.problem.tasks)
        last = MILESTONES * num_environments  # pruning there would save nothing
        prunes = self.problem.prune
        if prunes and any(s != last and is_below_median(number, s, trials) for s in steps):
            self._end(trial, TrialState.PRUNED)
        elif trial.step < last and trial.step % MILESTONES == 0:
            trial.release()
            trial.updates_before = trial.updates
            self._enter_environment(trial)
        elif trial.step == last:
            complete = [t for t in self.study.trials() if t.state == TrialState.COMPLETE]
            scores = studies.calibrated_scores([*complete, trials[number]], num_environments)
            value = scores[-1].sum()
            self._end(trial, TrialState.COMPLETE, float(value))

    def _report_scores(self, trial: TrialInProgress) -> list[int]:
        """Report the mean score over seeds at each milestone that all of them have reached.

        Return Optuna's steps of these milestones; raise if a run or a score has failed.
        """
        for report in trial.last_reports:
            if report.failure is not None:
                raise InputError(report.failure)
        entry, steps = self.problem.environments[trial.step // MILESTONES], []
        for point in entry.milestones()[trial.step % MILESTONES :]:
            if not trial.has_reached(entry, point):
                break
            score = trial.score(entry, point)
            trial.step += 1
            if trial.step % MILESTONES == 0 and not np.isfinite(score):
                raise InputError(f"no episode of {entry.id} ended within its horizon")
            steps.append(trial.step)
            trial.trial.report(score, trial.step)
        return steps

    def _end(self, trial: TrialInProgress, state: TrialState, value: float | None = None) -> None:
        trial.trial.set_user_attr("updates", trial.updates)
        self.study.end(trial.trial, state, value)
        self._forget(trial)

    @contextmanager
    def _errors_of(self, trial: TrialInProgress) -> Iterator[None]:
        """End a trial that fails; drop one that another process took for dead and has ended."""
        number = trial.trial.number
        try:
            try:
                yield
            except InputError as error:
                trial.trial.set_user_attr(REASON, str(error))
                self._end(trial, TrialState.FAIL)
                self.notice(f"trial {number} failed: {error}")
        except UpdateFinishedTrialError:
            self.notice(f"trial {number} was requeued by another process; dropped it here")
            self._forget(trial)

    def _forget(self, trial: TrialInProgress) -> None:
        self.updates += trial.updates
        trial.release()
        del self.in_progress[trial.trial.number]


def choose_lanes(wanted: int | None) -> int:
    """Return how many runs go side by side; by default more on an accelerator."""
    if wanted is not None:
        return require_integer("lanes", wanted, at_least=1)
    return LANES_ON_CPU if jax.default_backend() == "cpu" else LANES


def is_below_median(number: int, step: int, trials: Sequence[FrozenTrial]) -> bool:
    """Whether a trial scores below the median of the others at a step.

    Unlike Optuna's MedianPruner, compare the scores of the step itself, not the best so far, and
    count running trials. A trial pruned earlier in the same environment counts as −∞: otherwise
    each milestone would halve the trials that are left.
    """
    others = (score_at(t, step) for t in trials if t.number != number and is_counted(t))
    known = [score for score in others if score is not None]
    score = next(t for t in trials if t.number == number).intermediate_values[step]
    return len(known) >= STARTUP and score < float(np.median(known))


def score_at(trial: FrozenTrial, step: int) -> float | None:
    """Score of a trial at a step; −∞ if it was pruned before in the same environment, else None."""
    if step in trial.intermediate_values:
        return trial.intermediate_values[step]
    first = step - (step - 1) % MILESTONES  # step of the environment's first milestone
    last = max(trial.intermediate_values, default=0)
    pruned_here = trial.state == TrialState.PRUNED and first <= last < step
    return -np.inf if pruned_here else None
