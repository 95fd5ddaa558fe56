"""The search itself: a population of trials in lanes, judged by their looks, refilled by Optuna."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from winkel.envs.host import HostTask
from winkel.errors import InputError, require_integer
from winkel.search import claims
from winkel.search.calibration import final_scores
from winkel.search.flights import Flight
from winkel.search.pools import Pools
from winkel.search.problem import Problem
from winkel.search.pruning import LOOKS, STARTUP, is_below_median, standing, step_of
from winkel.search.storage import Shared, reachable
from winkel.search.suggest import distributions, scores, size_of, suggest, sums
from winkel.training.lanes import Report

LANES, LANES_ON_CPU = 64, 8
"""Runs side by side by default."""
AT_ONCE = 16
"""Trials claimed before the first of them gets its name, for which there are a few seconds."""
REFRESH = 0.25
"""Seconds between two looks at the study for those who watch."""


class Progress(NamedTuple):
    """How a search stands.

    Attributes:
        wanted: trials in all.
        complete: that went through all environments.
        pruned: stopped below the median.
        failed: whose loss was not finite, or which had no score.
        running: under way here.
        elsewhere: under way in other processes, or queued.
        share: of the trials that is done.
        updates: made here.
        best: the best final score so far.
        programs: shapes so far.
    """

    wanted: int
    complete: int
    pruned: int
    failed: int
    running: int
    elsewhere: int
    share: float
    updates: int
    best: float | None
    programs: int


@dataclass
class Population:
    """One process's part in a search."""

    problem: Problem
    shared: Shared
    wanted: int
    lanes: int | None = None
    chunk_steps: int = 100
    seed: int = 0
    """Of the sampler."""
    startup: int = STARTUP
    progress: Callable[[Progress], None] = lambda _: None
    notice: Callable[[str], None] = lambda _: None
    flights: dict[int, Flight] = field(default_factory=dict)
    updates: int = 0
    _shown: float = -1.0

    def __post_init__(self) -> None:
        require_integer("trials", self.wanted, at_least=1)
        default = LANES_ON_CPU if jax.default_backend() == "cpu" else LANES
        chosen = default if self.lanes is None else self.lanes
        self.lanes = require_integer("lanes", chosen, at_least=1)
        require_integer("chunk_steps", self.chunk_steps, at_least=1)
        self.space = distributions(self.problem.space.parameters)
        there_are = size_of(self.space)
        if self.wanted > there_are:
            raise InputError(
                f"need trials <= {there_are}, the configurations that the space has, "
                f"got {self.wanted}"
            )
        self.pools = Pools(self.problem, self.lanes, self.chunk_steps, self.notice)
        simulators = any(isinstance(task, HostTask) for task in self.problem.tasks)
        self.size = 1 if simulators else max(self.lanes // self.problem.seeds, 1)

    def run(self) -> Progress:
        """Until there are as many trials as wanted, here or elsewhere."""
        with reachable(self.shared.url):
            self.process = claims.Process(self.shared)
            try:
                taken = claims.take_up(self.shared)
                if taken:
                    self.notice(f"took up {taken} trials of processes that have ended")
                while self._fill():
                    for pool in list(self.pools.open.values()):
                        self._settle(pool.advance())
                    self.pools.tidy()
                    self.process.beat()
                    self._show()
                standing = self.standing()
                self.progress(standing)
                return standing
            except BaseException:
                claims.release(self.shared, list(self.flights))
                raise
            finally:
                self.process.close()
                self.pools.close()

    def _show(self) -> None:
        if time.monotonic() - self._shown >= REFRESH:
            self.progress(self.standing())
            self._shown = time.monotonic()

    def standing(self) -> Progress:
        """How the search stands."""
        trials = self.shared.trials()
        counted = [t for t in trials if claims.counts(t, trials)]
        state = [t.state for t in counted]
        ended = sum(s.is_finished() for s in state)
        environments = len(self.problem.tasks)
        shares = sum(flight.share(environments) for flight in self.flights.values())
        current = sum(flight.total()["updates"] for flight in self.flights.values())
        return Progress(
            wanted=self.wanted,
            complete=state.count(TrialState.COMPLETE),
            pruned=state.count(TrialState.PRUNED),
            failed=state.count(TrialState.FAIL),
            running=len(self.flights),
            elsewhere=len(counted) - ended - len(self.flights),
            share=min((ended + shares) / self.wanted, 1.0),
            updates=self.updates + current,
            best=max(sums(counted, environments).values(), default=None),
            programs=len(self.pools.programs),
        )

    def _fill(self) -> bool:
        """Ask for as many trials as there is room for; whether there is anything to do."""
        entering: list[Flight] = []
        while (room := self.size - len(self.flights)) > 0:
            trials = self.shared.trials()
            waiting = [t for t in trials if t.state == TrialState.WAITING]
            missing = self.wanted - sum(claims.counts(t, trials) for t in trials)
            if waiting:
                entering += self._begin(waiting[: min(room, AT_ONCE)])
            elif missing > 0:
                environments = len(self.problem.tasks)
                count = min(room, missing)
                for kept in suggest(self.space, trials, environments, self.seed, count):
                    self.shared.enqueue(kept)
            elif self.flights or not any(map(claims.is_nameless, trials)):
                break
            else:
                time.sleep(0.2)  # it gets its name, or is found to be nobody's
                claims.take_up(self.shared)
        for flight in entering:
            if not self._is_through(flight):
                self.pools.enter(flight, list(self.flights.values()))
            else:
                trials = self.shared.trials()
                complete = [t for t in trials if t.state == TrialState.COMPLETE]
                value = self._value([*complete, trials[flight.number]])
                self._end(flight, TrialState.COMPLETE, value)
        return bool(self.flights)

    def _begin(self, waiting: list[FrozenTrial]) -> list[Flight]:
        """Trials of the queue, but for those that turn out to be too many."""
        claimed = [self.shared.claim(queued, self.space) for queued in waiting]
        trials = self.shared.trials()
        begun = []
        for trial in filter(None, claimed):
            frozen = trials[trial.number]
            why = claims.superfluous(frozen, trials, self.wanted)
            if why is not None:
                self.shared.mark(frozen, why, True)
                self.shared.end(trial.number, TrialState.FAIL)
                trials = self.shared.trials()
                continue
            trial.set_user_attr(claims.PROCESS, self.process.name)
            flight = Flight(trial=trial, values=self.problem.space.fields(trial.params))
            ancestor = frozen.user_attrs.get(claims.SUCCESSOR)
            if ancestor is not None:
                self._inherit(flight, trials[ancestor])
            self.flights[flight.number] = flight
            begun.append(flight)
        return begun

    def _inherit(self, flight: Flight, ancestor: FrozenTrial) -> None:
        """Environments that the trial had been through before its process died."""
        looks = ancestor.intermediate_values
        for environment in range(len(self.problem.tasks)):
            steps = [step_of(environment, look) for look in range(1, LOOKS + 1)]
            if not all(step in looks for step in steps):
                return
            for step in steps:
                flight.trial.report(looks[step], step)
            flight.environment += 1

    def _is_through(self, flight: Flight) -> bool:
        return flight.environment == len(self.problem.tasks)

    def _settle(self, moved: list[tuple[Flight, Report]]) -> None:
        """Looks that are due, of all trials first; then who stops, and who goes on where."""
        looked: dict[int, list[int]] = {}
        for flight, report in moved:
            if flight.number not in self.flights:
                continue
            if report.failure is not None:
                self._fail(flight, report.failure)
            elif flight.due(self.problem):
                steps = self._look(flight)
                if flight.number in self.flights:
                    looked.setdefault(flight.number, []).extend(steps)
        if not looked:
            return
        trials = self.shared.trials()
        complete = [t for t in trials if t.state == TrialState.COMPLETE]
        for number, steps in looked.items():
            flight = self.flights[number]
            if self.problem.space.prune and any(self._stops(trials, number, s) for s in steps):
                self._end(flight, TrialState.PRUNED)
            elif flight.looks == LOOKS:
                self.pools.leave(flight)
                flight.move_on()
                if self._is_through(flight):
                    complete.append(trials[number])
                    self._end(flight, TrialState.COMPLETE, self._value(complete))
                else:
                    self.pools.enter(flight, list(self.flights.values()))

    def _look(self, flight: Flight) -> list[int]:
        """All looks that are due."""
        steps = []
        try:
            while flight.due(self.problem):
                value = flight.look(self.problem)
                steps.append(step_of(flight.environment, flight.looks))
                flight.trial.report(value, steps[-1])
        except UpdateFinishedTrialError:
            self._lose(flight)
        except InputError as error:
            if "no episode" not in str(error):
                raise
            self._fail(flight, str(error))
        return steps

    def _stops(self, trials: list[FrozenTrial], number: int, step: int) -> bool:
        """Below the median of the other trials; at the very last look there is nothing to save."""
        if step == step_of(len(self.problem.tasks) - 1, LOOKS):
            return False
        others = (
            standing(t.intermediate_values, step, t.state == TrialState.PRUNED)
            for t in trials
            if t.number != number and claims.counts(t, trials)
        )
        known = [value for value in others if value is not None]
        return is_below_median(trials[number].intermediate_values[step], known, self.startup)

    def _fail(self, flight: Flight, reason: str) -> None:
        self.notice(f"trial {flight.number} failed: {reason}")
        flight.trial.set_user_attr(claims.REASON, reason)
        self._end(flight, TrialState.FAIL)

    def _end(self, flight: Flight, state: TrialState, value: float | None = None) -> None:
        """Tell Optuna, and free the lanes."""
        for name, count in flight.total().items():
            flight.trial.set_user_attr(name, count)
        if self.shared.end(flight.number, state, value):
            self._forget(flight)
        else:
            self._lose(flight)

    def _value(self, complete: list[FrozenTrial]) -> float:
        """The final score of the last of some trials among them."""
        _, totals = final_scores(scores(complete, len(self.problem.tasks)))
        return float(totals[-1])

    def _lose(self, flight: Flight) -> None:
        self.notice(f"trial {flight.number} was taken up by another process; left it there")
        self._forget(flight)

    def _forget(self, flight: Flight) -> None:
        self.updates += flight.total()["updates"]
        self.pools.leave(flight)
        del self.flights[flight.number]
