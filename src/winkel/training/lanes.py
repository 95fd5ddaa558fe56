"""Many runs through few lanes: a lane whose run has ended takes the next one from the queue.

The host's side of the loop on the accelerator. Nothing here touches a disk or a screen: `Lanes`
tells after every chunk of steps what happened, and hands out or takes in the state of a lane.
"""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winkel.agents.base import Agent
from winkel.errors import InputError
from winkel.training import device
from winkel.training.ahead import Ahead, rounded_up
from winkel.training.device import Job, Lane, Trace
from winkel.training.jobs import jobs_of
from winkel.training.mesh import copied, described, mesh_of, shared_out
from winkel.training.programs import Programs, lane_bytes, out_of_memory
from winkel.training.regrouping import Regrouping
from winkel.training.reports import (
    Arrays,
    Moved,
    Plan,
    Report,
    only,
    reached,
    reports_of,
)
from winkel.training.rows import Row
from winkel.types import Clock

__all__ = ["Arrays", "Lanes", "Plan", "Report"]


@dataclass
class Lanes:
    """Runs of one agent and one shape of environment, `num_lanes` of them at a time.

    Lanes without a run are idle, not left out: the number of lanes decides how the accelerator
    rounds, and nothing else in a run's company does.

    A lane's chunks begin at its own step `burn_in`, whatever its neighbours do, so that everything
    that happens between chunks (evaluation, the end of a run) happens at the same step of a run
    alone and in company.

    Attributes:
        agent: the algorithm.
        env: the environment's functions.
        plans: the runs; they begin in this order.
        num_lanes: how many there are now, in all rows.
        chunk_steps: steps that all move between two reports.
        shrink: when nothing waits and enough lanes are idle (`fewer_lanes`), the others move into a
            program of fewer, in steps of this many; None: never.
        rest: when agents have settled (`Settling`), leave out what they need not learn: with
            `shrink` and `ahead` in a row of their own, else when all of them have.
        ahead: compile programs of fewer lanes and of agents at rest in the background, and change
            to them when they are ready; else at once, while all wait.
        notice: gets a sentence when memory did not suffice.
        programs: what was compiled.
        devices: that lanes are spread over, as many on each; there may be more lanes for that.
    """

    agent: Agent
    env: Any
    plans: Sequence[Plan]
    num_lanes: int
    chunk_steps: int = 100
    shrink: int | None = None
    rest: bool = False
    ahead: bool = False
    notice: Callable[[str], None] = lambda _: None
    programs: Programs = field(default_factory=Programs)
    devices: int = 1
    rows: list[Row] = field(init=False)
    """Lanes by program: those that explore, and those at rest."""
    _queue: deque[int] = field(init=False)
    _saved: dict[int, Lane] = field(init=False)
    _regrouping: Regrouping = field(init=False)

    def __post_init__(self) -> None:
        if not self.plans:
            raise InputError("need at least one run, got none")
        if self.num_lanes < 1 or self.chunk_steps < 1:
            raise InputError(
                f"need at least one lane and one step a chunk, got {self.num_lanes} and "
                f"{self.chunk_steps}"
            )
        self._mesh = mesh_of(self.devices)
        self._on = {} if self._mesh is None else {"mesh": self._mesh}
        self.num_lanes = self._for_all_devices(self.num_lanes)
        if self.shrink is not None:
            self.shrink = self._for_all_devices(self.shrink)
        self.env = copied(jax.tree.map(jnp.asarray, self.env), self._mesh)  # travels once
        ahead = Ahead(self.programs, self.env, self.chunk_steps, self._mesh, self.ahead)
        self._regrouping = Regrouping(self.agent, ahead, self.shrink, self.rest)
        self.rows = [Row(self.agent, [None] * self.num_lanes)]
        self._queue = deque(range(len(self.plans)))
        self._saved = {i: plan.saved for i, plan in enumerate(self.plans) if plan.saved is not None}

    def _for_all_devices(self, count: int) -> int:
        """So many, or a few more: a multiple of the devices."""
        return rounded_up(count, self.devices)

    @property
    def running(self) -> dict[int, int]:
        """Lane of each run under way, counted through all rows."""
        offsets = itertools.accumulate((row.num_lanes for row in self.rows), initial=0)
        return {
            plan: offset + lane
            for offset, row in zip(offsets, self.rows, strict=False)
            for plan, lane in row.running.items()
        }

    def advance(self) -> list[Report]:
        """Fill idle lanes from the queue, then move all by a chunk. Empty when all is done.

        What a new lane's burn-in brought is reported together with its first chunk. A run that is
        reported as finished or failed keeps its lane until it is released. Where memory does not
        suffice, all is as it was before the chunk, in half as many lanes, and tried again.
        """
        while True:
            self._regroup()
            queue, saved = deque(self._queue), dict(self._saved)
            rows = [replace(row, plan_of=list(row.plan_of)) for row in self.rows]
            try:
                return self._advance()
            except jax.errors.JaxRuntimeError as error:
                if not out_of_memory(error):
                    raise
            self.rows, self._queue, self._saved = rows, queue, saved
            del rows  # or it would keep the memory that is wanting
            self._halve()

    def _advance(self) -> list[Report]:
        burnt_in = self._fill()
        if not self.running:
            return []
        first = self.rows[0]
        if burnt_in is not None and self._all_reached(first):
            return self._reports(first, burnt_in, None, first.lanes, first.clock)
        moved = [
            self.programs.call(
                device.advance,
                row.agent,
                self.env,
                row.jobs,
                row.lanes,
                self.chunk_steps,
                learning=True,
                **self._on,
            )
            for row in self.rows
        ]
        reports = []
        for row, (lanes, trace) in zip(self.rows, moved, strict=True):
            seen, clock = self.programs.fetch((trace, lanes.run.clock))
            reports += self._reports(row, burnt_in if row is first else None, seen, lanes, clock)
        return sorted(reports, key=lambda report: report.plan)

    def prepare(self) -> list[Future[None]]:
        """Compile what the first chunks need, in the background."""
        jobs = self._jobs_of([i % len(self.plans) for i in range(self.num_lanes)])
        lanes = jax.tree.map(
            lambda x: described(x.shape, x.dtype, self._mesh),
            jax.eval_shape(lambda env, jobs: device.begin(self.agent, env, jobs), self.env, jobs),
        )
        first = self.programs.ahead(device.begin, self.agent, self.env, jobs, **self._on)
        moves = [
            self.programs.ahead(
                device.advance,
                self.agent,
                self.env,
                jobs,
                lanes,
                steps,
                learning=learning,
                **self._on,
            )
            for steps, learning in ((self.agent.config.burn_in, False), (self.chunk_steps, True))
        ]
        return [first, *moves]

    def _all_reached(self, row: Row) -> bool:
        """Whether all runs ended within their burn-in, so that there is nothing to learn for."""
        return all(reached(self.plans[p].end, row.clock, lane) for p, lane in row.running.items())

    def add(self, plan: Plan) -> int:
        """Queue one run more, also while others run; its number among the plans."""
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

    def left_support(self, plan: int) -> str | None:
        """A sentence on returns beyond the support; here nobody looks for them."""
        return None

    def close(self) -> None:
        """Nothing to end: there are no processes."""

    def state(self, lane: int) -> Lane:
        """Everything of one lane, on the host (keys stay JAX's)."""
        for row in self.rows:
            if lane < row.num_lanes:
                return jax.device_get(device.picked(row.lanes, lane))
            lane -= row.num_lanes
        raise IndexError(lane)

    def evaluate(self, lanes: Sequence[int], index: int, num_episodes: int) -> np.ndarray:
        """Returns `[lanes, num_episodes]` of greedy episodes; `index` makes their randomness."""

        def look(jobs: Job, states: Lane) -> Any:
            keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, 5), index))(
                jobs.key
            )
            return self.programs.call(
                device.evaluate, self.agent, self.env, jobs, states, keys, num_episodes, **self._on
            )

        return np.stack(self._seen(look, lanes))

    def survey(self, lanes: Sequence[int]) -> list[Arrays]:
        """Visits, value, disagreement and bonus at every countable observation."""

        def look(jobs: Job, states: Lane) -> Any:
            found = self.programs.call(device.survey, self.agent, jobs, states, **self._on)
            return {"visits": states.visits, **found._asdict()}

        return self._seen(look, lanes)

    def _seen(self, look: Callable[[Job, Lane], Any], lanes: Sequence[int]) -> list[Any]:
        """What a look at all lanes shows of some; at one after the other where memory is short."""
        shown, first = dict[int, Any](), 0
        for row in self.rows:
            some = [lane - first for lane in lanes if first <= lane < first + row.num_lanes]
            found = self._seen_of(row, look, some)
            shown |= {first + lane: one for lane, one in zip(some, found, strict=True)}
            first += row.num_lanes
        return [shown[lane] for lane in lanes]

    def _seen_of(
        self, row: Row, look: Callable[[Job, Lane], Any], lanes: Sequence[int]
    ) -> list[Any]:
        if not lanes:
            return []
        try:
            found = self.programs.fetch(look(row.jobs, row.lanes))
            return [jax.tree.map(lambda x, lane=lane: x[lane], found) for lane in lanes]
        except jax.errors.JaxRuntimeError as error:
            if not out_of_memory(error):
                raise
        shown = []
        for lane in lanes:
            one = device.gathered_of([row.state], np.array([lane] * self.devices, np.int32))
            jobs, states = shared_out(one, self._mesh)
            shown.append(jax.tree.map(lambda x: x[0], self.programs.fetch(look(jobs, states))))
        return shown

    def _fill(self) -> Trace | None:
        """Start queued runs in idle lanes of the first row; the trace of their burn-in."""
        if not self._queue:
            return None
        row = self.rows[0]
        fresh: list[int] = []
        restored: list[int] = []
        for lane, plan in enumerate(row.plan_of):
            if plan is None and self._queue:
                plan = row.plan_of[lane] = self._queue.popleft()
                (restored if plan in self._saved else fresh).append(lane)
        if not fresh and not restored:
            return None
        row.agent = self.agent  # what begins has not settled
        self._place_jobs(row)
        begun = self.programs.call(device.begin, self.agent, self.env, row.jobs, **self._on)
        burnt_in = None
        if fresh:
            begun, trace = self.programs.call(
                device.advance,
                self.agent,
                self.env,
                row.jobs,
                begun,
                self.agent.config.burn_in,
                learning=False,
                **self._on,
            )
            burnt_in = only(self.programs.fetch(trace), fresh)
        if row.lanes is not None:
            begun = device.chosen(np.isin(np.arange(row.num_lanes), fresh), begun, row.lanes)
        for plan, lane in row.running.items():
            if lane in restored:
                begun = device.placed(begun, lane, self._saved.pop(plan))
        row.lanes = shared_out(begun, self._mesh)
        row.clock = self.programs.fetch(begun.run.clock)
        return burnt_in

    def _place_jobs(self, row: Row) -> None:
        spare = next(plan for plan in row.plan_of if plan is not None)
        row.jobs = self._jobs_of([spare if plan is None else plan for plan in row.plan_of])

    def _jobs_of(self, chosen: list[int]) -> Job:
        masked = any(plan.available is not None for plan in self.plans)
        jobs = jobs_of([self.plans[plan] for plan in chosen], self.agent.spec, masked)
        return shared_out(jobs, self._mesh)

    def _reports(
        self, row: Row, burnt_in: Trace | None, trace: Trace | None, lanes: Lane, clock: Clock
    ) -> list[Report]:
        """What burn-in and chunk brought; without a trace there was no chunk.

        A lane whose loss was not finite, or whose run had ended in its burn-in, stays as it was
        before the chunk.
        """
        running = row.running
        losses = np.zeros((row.num_lanes, 1)) if trace is None else trace.metrics["loss"]
        sound: np.ndarray = np.isfinite(np.asarray(losses)).all(axis=1)
        early = {lane for p, lane in running.items() if self._ended_early(row, p, lane)}
        broken = {lane for lane in running.values() if not sound[lane]} - early
        if (early or broken) and trace is not None:
            kept = np.isin(np.arange(row.num_lanes), [*early, *broken])
            lanes = shared_out(device.chosen(kept, row.lanes, lanes), self._mesh)
            clock = jax.tree.map(lambda old, new: np.where(kept, old, new), row.clock, clock)
        row.lanes, row.clock = lanes, clock
        moved = Moved(
            running=running,
            clock=clock,
            burnt_in=burnt_in,
            trace=trace,
            early=frozenset(early),
            broken=frozenset(broken),
        )
        return reports_of(self.plans, moved, countable=lanes.visits.shape[1] > 0)

    def _ended_early(self, row: Row, plan: int, lane: int) -> bool:
        return reached(self.plans[plan].end, row.clock, lane)

    def _regroup(self) -> None:
        """Where nothing waits: settled agents rest, and idle lanes are left out."""
        if self._queue or not self.running:
            return
        self.rows = self._regrouping.regrouped(self.rows, self.plans)
        self.num_lanes = sum(row.num_lanes for row in self.rows)

    def _halve(self) -> None:
        """Go on in half as many lanes, runs that had one first: from the host, where they wait."""
        first = self.plans[0]
        need = lane_bytes(self.agent, self.env, first.params, first.hyper) / 2**20
        if self.num_lanes == self.devices:
            raise InputError(
                f"out of memory: a single lane needs about {need:,.0f} MiB; "
                "need a smaller batch_size, capacity, num_atoms or hidden"
            )
        running = list(self.running)
        for row in self.rows:
            if row.running:
                state = jax.device_get(row.lanes)
                for plan, lane in row.running.items():
                    self._saved[plan] = jax.tree.map(lambda x, lane=lane: x[lane], state)
        self._queue.extendleft(reversed(running))
        before = self.num_lanes
        self.num_lanes = before // self.devices // 2 * self.devices
        self.rows = [Row(self.agent, [None] * self.num_lanes)]
        self.notice(
            f"out of memory with {before} lanes of about {need:,.0f} MiB each: "
            f"going on with {self.num_lanes}"
        )
