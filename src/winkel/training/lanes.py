"""Many runs in few lanes: a lane whose run has ended takes the next run from the queue.

`Lanes` reports after every chunk of steps what happened. There may be hundreds of lanes and a few
milliseconds between two chunks, so the arrays of all lanes are handled together.
"""

import itertools
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from winkel.agents.base import Agent
from winkel.errors import InputError
from winkel.training import programs
from winkel.training.compiled import CompiledWorld
from winkel.training.programs import SIZES, Arrays, ChunkResults, Programs, Row
from winkel.training.simulated import SimulatorWorld
from winkel.training.steps import Job, Plan, make_jobs
from winkel.types import Clock, RunState

World = CompiledWorld | SimulatorWorld
"""It makes the steps of the environments of a row."""
EPISODE_COLUMNS = ("return", "length", "env_steps", "visited")
"""Columns of the table of episodes besides facts."""


class Report(NamedTuple):
    """Results of a chunk of steps for one run."""

    run: int
    """Index of its plan."""
    episodes: Arrays
    """The episodes that ended: return, length, facts, and the step at which they ended."""
    metrics: dict[str, float]
    """Means over the updates of the chunk, empty without any."""
    env_steps: int
    """Steps, episodes and updates are counted from the beginning of the run up to its end."""
    num_episodes: int
    updates: int
    share_done: float
    finished: bool
    failure: str | None
    """Why the run had to stop; None if it did not."""


@dataclass
class Lanes:
    """Runs of one agent in one world, `num_lanes` of them at a time.

    Idle lanes are still computed: results depend on the number of lanes only through rounding.

    Chunks start at step `burn_in` of each run. So everything that happens between chunks
    (evaluation, the end of a run) falls on the same steps of a run, whatever its neighbours do.
    """

    agent: Agent
    world: World
    plans: Sequence[Plan]
    """The runs; they begin in this order, and are identified by their index in it."""
    num_lanes: int
    """How many there are now. Simulators have one for each run."""
    chunk_steps: int = 100
    """Steps between two reports."""
    rearrange: Callable[["Lanes"], Row] | None = None
    """Makes a new row of the runs under way when no run waits (`compaction`); None for none."""
    notice: Callable[[str], None] = lambda _: None
    """Called with a sentence when memory did not suffice."""
    programs: Programs = field(default_factory=Programs)
    row: Row = field(init=False)

    def __post_init__(self) -> None:
        if not self.world.refills:
            self.num_lanes = len(self.plans)
        self.world.open(self.programs)
        self.row = Row(self.agent, [None] * self.num_lanes)
        self._queue = deque(range(len(self.plans)))

    @property
    def running(self) -> list[int]:
        """Runs under way."""
        return [*self.row.running]

    def advance(self) -> list[Report]:
        """Fill idle lanes from the queue, then move all by a chunk. Empty when all is done.

        Burn-in is reported together with the first chunk. A run that is reported as finished or
        failed keeps its lane until it is released. If memory does not suffice, the chunk is
        repeated with half as many lanes.
        """
        while True:
            if self.rearrange is not None and self.running and not self._queue:
                self.row = self.rearrange(self)
                self.num_lanes = self.row.num_lanes
            queue, plans = self._queue.copy(), self.plans
            row = replace(self.row, run_of=self.row.run_of[:])
            try:
                burn_in = self._fill()
                if not self.running:
                    return []
                return self._report(burn_in, *self.world.advance(self.row, self.chunk_steps))
            except jax.errors.JaxRuntimeError as error:
                if not programs.out_of_memory(error):
                    raise
                if not self.world.refills:
                    raise InputError(
                        f"out of memory; need fewer runs, or a smaller {SIZES}"
                    ) from error
            self.row, self._queue, self.plans = row, queue, plans
            del row  # its arrays would stay in memory
            self._halve()

    def prepare(self) -> list[Future[Any]]:
        """Compile what the first chunks need, in the background."""
        plans = list(itertools.islice(itertools.cycle(self.plans), self.num_lanes))
        return self.world.compile_ahead(self.agent, self.chunk_steps, self._make_jobs(plans))

    def add(self, plan: Plan) -> int:
        """Queue one run more, also while others run; returns its number."""
        if not self.world.refills:
            raise InputError("need all runs in simulators at the beginning, got one more")
        self.plans = [*self.plans, plan]
        self._queue.append(len(self.plans) - 1)
        return len(self.plans) - 1

    def release(self, run: int) -> None:
        """Free a run's lane for the next in the queue, or take the run out of the queue."""
        if run in self._queue:
            self._queue.remove(run)
        else:
            self.row.run_of[self.row.running[run]] = None

    def state(self, run: int) -> RunState:
        """The state of one run, on the host (keys stay JAX's)."""
        lane = self.row.running[run]
        return jax.device_get(programs.take_lanes(self.row.states, lane))

    def evaluate(self, runs: Sequence[int], index: int, num_episodes: int) -> np.ndarray:
        """Undiscounted returns of greedy episodes of some runs, `[runs, num_episodes]`."""
        lanes = [self.row.running[run] for run in runs]
        return np.stack(self.world.evaluate(self.agent, self.row, lanes, index, num_episodes))

    def survey(self, runs: Sequence[int]) -> list[Arrays]:
        """Visits, value, disagreement and bonus of some runs at every countable observation."""
        lanes = [self.row.running[run] for run in runs]
        return self.world.survey(self.agent, self.row, lanes) if lanes else []

    def support_notice(self, run: int) -> str | None:
        """A sentence on returns outside of the support, None without any."""
        return self.world.support_notice(self.row.running[run])

    def close(self) -> None:
        """End all simulators."""
        self.world.close()

    def _fill(self) -> Arrays | None:
        """Start queued runs in idle lanes; returns the episodes of burn-in."""
        row = self.row
        idle = [lane for lane, run in enumerate(row.run_of) if run is None]
        new = idle[: len(self._queue)]
        if not new:
            return None
        for lane in new:
            row.run_of[lane] = self._queue.popleft()
        row.agent = self.agent  # the bonus of a new run is not frozen
        filler = next(run for run in row.run_of if run is not None)
        plans = [self.plans[filler if run is None else run] for run in row.run_of]
        row.jobs = self._make_jobs(plans)
        row.states, burn_in = self.world.begin(row, plans, new)
        row.clock = self.programs.fetch(row.states.clock)
        begun = {row.run_of[lane] for lane in new}
        self.plans = [
            plan._replace(saved=None) if run in begun else plan
            for run, plan in enumerate(self.plans)
        ]
        return burn_in

    def _make_jobs(self, plans: Sequence[Plan]) -> Job:
        masked = any(plan.available is not None for plan in self.plans)
        return make_jobs(plans, self.agent.spec, masked)

    def _report(
        self, burn_in: Arrays | None, states: RunState, results: ChunkResults
    ) -> list[Report]:
        """Take over the states after a chunk, and report it together with the burn-in before it.

        A lane goes back to its state before the chunk if its loss was not finite, or if its run had
        ended before. With simulators that state is gone.
        """
        clock, episodes, metrics = results
        row, running, before = self.row, self.row.running, split_clock(self.row.clock)
        ended = {  # before this chunk
            lane
            for run, lane in running.items()
            if self.plans[run].share_done(before[lane].episodes, before[lane].env_steps) == 1.0
        }
        learning = {*running.values()} - ended
        losses = metrics.get("loss", np.zeros((row.num_lanes, 1)))
        updates_per_step = self.agent.config.updates_per_step
        failures = find_failures(losses, row.clock.updates, learning, updates_per_step)
        if self.world.refills and (ended or failures):
            which = np.isin(np.arange(row.num_lanes), [*ended, *failures])
            states = programs.where_lanes(which, row.states, states)
            clock = jax.tree.map(lambda old, new: np.where(which, old, new), row.clock, clock)
            new = ~which[episodes["lane"]]
            episodes = {name: column[new] for name, column in episodes.items()}
            kept = "; the state before that chunk is kept"
            failures = {lane: text + kept for lane, text in failures.items()}
        row.states, row.clock = states, clock
        tables = split_by_lane(row.num_lanes, [*([burn_in] if burn_in else []), episodes])
        after, means = split_clock(clock), mean_metrics(metrics)
        reports = []
        for run, lane in sorted(running.items()):
            plan, old, new = self.plans[run], before[lane], after[lane]
            values = {name: (x[lane], means[name][lane]) for name, x in metrics.items()}
            failure = failures.get(lane)
            reports.append(make_report(run, plan, tables[lane], values, old, new, failure))
        return reports

    def _halve(self) -> None:
        """Continue with half as many lanes; runs that had one wait on the host and come first."""
        if self.num_lanes == 1:
            raise InputError(f"out of memory with a single lane; need a smaller {SIZES}")
        running, plans = self.running, list(self.plans)
        states = jax.device_get(self.row.states)
        for run, lane in self.row.running.items():
            state = jax.tree.map(lambda x, lane=lane: x[lane], states)
            plans[run] = plans[run]._replace(saved=state)
        self.plans = plans
        self._queue.extendleft(reversed(running))
        before, self.num_lanes = self.num_lanes, self.num_lanes // 2
        self.row = Row(self.agent, [None] * self.num_lanes)
        self.notice(f"out of memory with {before} lanes: continuing with {self.num_lanes}")


def make_report(
    run: int,
    plan: Plan,
    episodes: Arrays,
    metrics: dict[str, tuple[np.ndarray, float]],
    before: Any,
    clock: Any,
    failure: str | None,
) -> Report:
    """Report a chunk of one run up to its end, from clocks of plain numbers before and after it.

    `metrics` are those of every update of the chunk, and their mean.
    """
    table = episodes
    if plan.facts is not None:
        kept_names = (*EPISODE_COLUMNS, *plan.facts)
        table = {name: column for name, column in episodes.items() if name in kept_names}
    num_episodes, end = clock.episodes, clock.env_steps
    done = plan.share_done(num_episodes, end)
    if done == 1.0:  # what comes after the end is left out
        ends, last = table["env_steps"], plan.end
        number = num_episodes - np.arange(len(ends))[::-1]
        kept = (number <= int(last.episodes)) & (ends <= int(last.steps))
        table = {name: column[kept] for name, column in table.items()}
        num_episodes -= int(np.sum(~kept))
        end = min(end, int(last.steps))
        if num_episodes == int(last.episodes) and kept.any():
            end = min(end, int(table["env_steps"][-1]))
    # Metrics have a row for each step; in simulators, for each step of all environments.
    updates, steps = clock.updates - before.updates, clock.env_steps - before.env_steps
    counted = updates - (clock.env_steps - end) * updates // max(steps, 1)
    if counted == updates:
        means = {name: mean for name, (_, mean) in metrics.items() if updates > 0}
    else:
        means = {
            name: float(np.mean(x[: len(x) * counted // updates], dtype=np.float64))
            for name, (x, _) in metrics.items()
            if counted > 0
        }
    finite = np.isfinite(table["return"])
    if failure is None and not finite.all():
        failure = f"the return of an episode was {table['return'][~finite][0]}"
    return Report(
        run=run,
        episodes=table,
        metrics=means,
        env_steps=end,
        num_episodes=num_episodes,
        updates=before.updates + max(counted, 0),
        share_done=done,
        finished=failure is None and done == 1.0,
        failure=failure,
    )


def split_clock(clock: Clock) -> list[Any]:
    """A clock of plain numbers for each lane: fast, since there may be hundreds of lanes."""
    return [Clock(*numbers) for numbers in zip(*(x.tolist() for x in clock), strict=True)]


def mean_metrics(metrics: Arrays) -> dict[str, list[float]]:
    """The mean of each metric over the updates of a chunk, for each lane."""
    return {
        name: x.astype(np.float64, order="C").mean(axis=1).tolist() for name, x in metrics.items()
    }


def split_by_lane(num_lanes: int, tables: list[Arrays]) -> list[Arrays]:
    """A table of episodes for each lane, from tables that have a column `lane`."""
    table = {name: np.concatenate([part[name] for part in tables]) for name in tables[0]}
    lanes = table.pop("lane")
    order = np.argsort(lanes, kind="stable")
    bounds = np.searchsorted(lanes[order], np.arange(num_lanes + 1))
    table = {name: column[order] for name, column in table.items()}
    return [
        {name: column[begin:end] for name, column in table.items()}
        for begin, end in itertools.pairwise(bounds)
    ]


def find_failures(
    losses: np.ndarray, updates: np.ndarray, lanes: Collection[int], updates_per_step: int
) -> dict[int, str]:
    """A sentence for each of some lanes whose loss was not finite.

    `updates` is how many each lane had made before the chunk.
    """
    finite = np.isfinite(losses)
    first = np.argmin(finite, axis=1)
    return {
        int(lane): f"the loss was {losses[lane, first[lane]]} at update "
        f"{int(updates[lane]) + int(first[lane]) * updates_per_step + 1}"
        for lane in np.flatnonzero(~finite.all(axis=1))
        if lane in lanes
    }
