"""Many runs in few lanes: a lane whose run has ended takes the next run from the queue.

`Lanes` touches neither disk nor screen: after every chunk of steps it reports what happened, and it
hands out or takes in the state of a lane.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from winkel.agents.base import Agent
from winkel.errors import InputError
from winkel.training.mesh import choose_lanes, make_mesh, select_lane, shard_lanes
from winkel.training.programs import Programs, lane_bytes, out_of_memory
from winkel.training.records import Arrays, Chunk, Plan, Report, is_reached, make_reports
from winkel.training.rows import LaneMover, round_up
from winkel.training.steps import Job
from winkel.training.world import Row, World
from winkel.types import Clock, RunState

__all__ = ["Arrays", "Lanes", "Plan", "Report"]


@dataclass
class Lanes:
    """Runs of one agent in one world, `num_lanes` of them at a time.

    Lanes without a run are idle, not left out: results depend on the number of lanes, though only
    through rounding.

    Chunks of a lane begin at its own step `burn_in`, whatever its neighbours do. So everything that
    happens between chunks (evaluation, the end of a run) happens at the same step of a run, alone
    or among others.

    Attributes:
        agent: the algorithm.
        world: steps the environments.
        plans: the runs; they begin in this order.
        num_lanes: how many there are now, in all rows. Simulators need one for each run.
        chunk_steps: steps between two reports.
        compact_lanes: when no run waits and enough lanes are idle, move the others into a program
            of fewer lanes, a multiple of this number (`rows`); None: never.
        freeze_bonus: do not learn a bonus that changes nothing any more (`rows`).
        compile_in_background: compile the programs for both in the background, and change to them
            when they are ready; else all lanes wait.
        notice: called with a sentence when memory did not suffice.
        programs: calls and counts programs.
        devices: number of local devices that lanes are spread over; lanes are rounded up to a
            multiple.
    """

    agent: Agent
    world: World
    plans: Sequence[Plan]
    num_lanes: int
    chunk_steps: int = 100
    compact_lanes: int | None = None
    freeze_bonus: bool = False
    compile_in_background: bool = False
    notice: Callable[[str], None] = lambda _: None
    programs: Programs = field(default_factory=Programs)
    devices: int = 1
    rows: list[Row] = field(init=False)
    """All lanes: those that learn the bonus, then those that do not."""

    def __post_init__(self) -> None:
        if not self.plans:
            raise InputError("need at least one run, got none")
        if self.num_lanes < 1 or self.chunk_steps < 1:
            raise InputError(
                f"need at least one lane and one step a chunk, got {self.num_lanes} and "
                f"{self.chunk_steps}"
            )
        self._mesh = make_mesh(self.devices)
        self.world.open(self.programs, self._mesh)
        if not self.world.refills:
            self.num_lanes = len(self.plans)
        self.num_lanes = round_up(self.num_lanes, self.devices)
        unit = self.compact_lanes
        self._mover = LaneMover(
            agent=self.agent,
            world=self.world,
            programs=self.programs,
            mesh=self._mesh,
            chunk_steps=self.chunk_steps,
            unit=None if unit is None else round_up(unit, self.devices),
            freeze_bonus=self.freeze_bonus,
            in_background=self.compile_in_background,
        )
        self.rows = [Row(self.agent, [None] * self.num_lanes)]
        self._queue = deque(range(len(self.plans)))
        self._saved = {i: plan.saved for i, plan in enumerate(self.plans) if plan.saved is not None}

    @property
    def running(self) -> dict[int, int]:
        """Lane of each run under way, counted through all rows."""
        return {
            plan: offset + lane
            for offset, row in self._offsets()
            for plan, lane in row.running.items()
        }

    def advance(self) -> list[Report]:
        """Fill idle lanes from the queue, then move all by a chunk. Empty when all is done.

        Burn-in is reported together with the first chunk. A run that is reported as finished or
        failed keeps its lane until it is released. If memory does not suffice, the chunk is
        repeated with half as many lanes.
        """
        while True:
            if self.world.refills and self.running and not self._queue:
                self.rows = self._mover.rearrange(self.rows, self.plans)
                self.num_lanes = sum(row.num_lanes for row in self.rows)
            queue, saved = deque(self._queue), dict(self._saved)
            rows = [replace(row, plan_of=list(row.plan_of)) for row in self.rows]
            try:
                return self._advance()
            except jax.errors.JaxRuntimeError as error:
                if not self.world.refills or not out_of_memory(error):
                    raise
            self.rows, self._queue, self._saved = rows, queue, saved
            del rows  # its arrays would stay in memory
            self._halve()

    def _advance(self) -> list[Report]:
        burn_in = self._fill()
        if not self.running:
            return []
        first = self.rows[0]
        if burn_in is not None and self._ended(first) == {*first.running.values()}:
            return self._reports(first, burn_in, None, first.lanes, first.clock)
        moved = [self.world.advance(row, self.chunk_steps) for row in self.rows]
        reports = []
        for row, (runs, trace) in zip(self.rows, moved, strict=True):
            clock, chunk = self.world.read(runs, trace)
            reports += self._reports(row, burn_in if row is first else None, chunk, runs, clock)
        return sorted(reports, key=lambda report: report.plan)

    def prepare(self) -> list[Future[None]]:
        """Compile what the first chunks need, in the background."""
        jobs = self._make_jobs([i % len(self.plans) for i in range(self.num_lanes)])
        return self.world.compile_first(self.agent, jobs, self.chunk_steps)

    def add(self, plan: Plan) -> int:
        """Queue one run more, also while others run; its number among the plans."""
        if not self.world.refills:
            raise InputError("need all runs in simulators at the beginning, got one more")
        number = len(self.plans)
        self.plans = [*self.plans, plan]
        self._queue.append(number)
        if plan.saved is not None:
            self._saved[number] = plan.saved
        return number

    def release(self, plan: int) -> None:
        """Free a run's lane for the next in the queue, or take the run out of the queue."""
        if plan in self._queue:
            self._queue.remove(plan)
            self._saved.pop(plan, None)
        else:
            row = next(row for row in self.rows if plan in row.running)
            row.plan_of[row.running[plan]] = None

    def state(self, lane: int) -> RunState:
        """The state of one run, on the host (keys stay JAX's)."""

        def of(row: Row, lanes: list[int]) -> list[RunState]:
            return [select_lane(row.lanes, lane) for lane in lanes]

        return jax.device_get(self._each(of, [lane])[0])

    def evaluate(self, lanes: Sequence[int], index: int, num_episodes: int) -> np.ndarray:
        """Returns `[lanes, num_episodes]` of greedy episodes.

        `index` is the number of the evaluation, on which its random numbers depend.
        """

        def of(row: Row, lanes: list[int]) -> list[np.ndarray]:
            return self.world.evaluate(self.agent, row, lanes, index, num_episodes)

        return np.stack(self._each(of, lanes))

    def survey(self, lanes: Sequence[int]) -> list[Arrays]:
        """Visits, value, disagreement and bonus at every countable observation."""
        return self._each(lambda row, lanes: self.world.survey(self.agent, row, lanes), lanes)

    def left_support(self, plan: int) -> str | None:
        """A sentence on returns of a run outside of its support, None without any."""
        return self.world.left_support(self.running[plan])

    def close(self) -> None:
        """End all simulators."""
        self.world.close()

    def _each(
        self, function: Callable[[Row, list[int]], list[Any]], lanes: Sequence[int]
    ) -> list[Any]:
        """Call a function of each row and some of its lanes; the results of all `lanes`."""
        found = dict[int, Any]()
        for offset, row in self._offsets():
            own = [lane - offset for lane in lanes if 0 <= lane - offset < row.num_lanes]
            if own:
                results = zip(own, function(row, own), strict=True)
                found |= {offset + lane: result for lane, result in results}
        return [found[lane] for lane in lanes]

    def _offsets(self) -> Iterator[tuple[int, Row]]:
        """Each row with the number of its first lane."""
        offsets = itertools.accumulate((row.num_lanes for row in self.rows), initial=0)
        return zip(offsets, self.rows, strict=False)

    def _fill(self) -> Chunk | None:
        """Start queued runs in idle lanes of the first row; returns the results of burn-in."""
        row = self.rows[0]
        idle = [lane for lane, plan in enumerate(row.plan_of) if plan is None]
        new = dict(zip(idle, self._queue, strict=False))
        if not new:
            return None
        for lane, plan in new.items():
            self._queue.remove(plan)
            row.plan_of[lane] = plan
        row.agent = self.agent  # the bonus of a new run is not frozen
        spare = next(plan for plan in row.plan_of if plan is not None)
        numbers = [spare if plan is None else plan for plan in row.plan_of]
        row.jobs = self._make_jobs(numbers)
        saved = {lane: self._saved.pop(plan) for lane, plan in new.items() if plan in self._saved}
        fresh = [lane for lane in new if lane not in saved]
        plans = [self.plans[number] for number in numbers]
        row.lanes, burn_in = self.world.begin(row, plans, fresh, saved)
        row.clock = self.programs.fetch(row.lanes.clock)
        return burn_in

    def _make_jobs(self, numbers: list[int]) -> Job:
        masked = any(plan.available is not None for plan in self.plans)
        return self.world.make_jobs([self.plans[i] for i in numbers], self.agent.spec, masked)

    def _ended(self, row: Row) -> set[int]:
        """Lanes whose runs have reached their end, by the clocks of the row."""
        return {
            lane
            for plan, lane in row.running.items()
            if is_reached(self.plans[plan].end, row.clock, lane)
        }

    def _reports(
        self, row: Row, burn_in: Chunk | None, chunk: Chunk | None, runs: RunState, clock: Clock
    ) -> list[Report]:
        """Report the results of burn-in and chunk; without a chunk no lane moved.

        A lane goes back to its state before the chunk if its loss was not finite, or if its run had
        ended before. With simulators that state is gone.
        """
        ended, back, failures = self._ended(row), set[int](), dict[int, str]()
        if chunk is not None:
            moved = {*row.running.values()} - ended
            found = chunk.failures(row.clock.updates)
            failures = {lane: text for lane, text in found.items() if lane in moved}
        if chunk is not None and self.world.refills and (ended or failures):
            back = {*ended, *failures}
            which = np.isin(np.arange(row.num_lanes), [*back])
            runs = shard_lanes(choose_lanes(which, row.lanes, runs), self._mesh)
            clock = jax.tree.map(lambda old, new: np.where(which, old, new), row.clock, clock)
            kept = "; the state before that chunk is kept"
            failures = {lane: text + kept for lane, text in failures.items()}
        row.lanes, row.clock = runs, clock
        return make_reports(self.plans, row.running, clock, burn_in, chunk, back, failures)

    def _halve(self) -> None:
        """Continue with half as many lanes; runs that had one wait on the host and come first."""
        first = self.plans[0]
        shapes = self.world.shapes(self.agent, first.params, first.hyper)
        need = lane_bytes(self.agent, shapes, first.params) / 2**20
        if self.num_lanes == self.devices:
            raise InputError(
                f"out of memory: a single lane needs about {need:,.0f} MiB; "
                "need a smaller batch_size, capacity, num_atoms or hidden"
            )
        running = list(self.running)
        for row in self.rows:
            if row.running:
                runs = jax.device_get(row.lanes)
                for plan, lane in row.running.items():
                    self._saved[plan] = jax.tree.map(lambda x, lane=lane: x[lane], runs)
        self._queue.extendleft(reversed(running))
        before = self.num_lanes
        self.num_lanes = before // self.devices // 2 * self.devices
        self.rows = [Row(self.agent, [None] * self.num_lanes)]
        self.notice(
            f"out of memory with {before} lanes of about {need:,.0f} MiB each: "
            f"continuing with {self.num_lanes}"
        )
