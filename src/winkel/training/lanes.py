"""Many runs through few lanes: a lane whose run has ended takes the next one from the queue.

The host's side of the loop on the accelerator. Nothing here touches a disk or a screen: `Lanes`
tells after every chunk of steps what happened, and hands out or takes in the state of a lane.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winkel.agents.base import Agent, Settling
from winkel.errors import InputError
from winkel.training import device
from winkel.training.ahead import WORTH_COMPILING, WORTH_MOVING, Ahead, fewer_lanes
from winkel.training.device import Job, Lane, Trace
from winkel.training.jobs import jobs_of
from winkel.training.mesh import copied, described, mesh_of, shared_out
from winkel.training.programs import Programs, lane_bytes, out_of_memory
from winkel.training.reports import (
    Arrays,
    Moved,
    Plan,
    Report,
    only,
    progress,
    reached,
    reports_of,
)
from winkel.types import Clock

__all__ = ["Arrays", "Lanes", "Plan", "Report"]

SOON = 0.02
"""Share of a run before agents have settled in which their program at rest is compiled."""


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
        num_lanes: how many there are now.
        chunk_steps: steps that all move between two reports.
        shrink: when nothing waits and enough lanes are idle (`fewer_lanes`), the others move into a
            program of fewer, in steps of this many; None: never.
        rest: when all agents have settled (`Settling`), leave out what they need not learn.
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
    _jobs: Any = field(init=False, default=None)
    _lanes: Any = field(init=False, default=None)
    _clock: Any = field(init=False, default=None)
    _plan_of: list[int | None] = field(init=False)
    _queue: deque[int] = field(init=False)
    _saved: dict[int, Lane] = field(init=False)
    _ahead: Ahead = field(init=False)

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
        self._ahead = Ahead(self.programs, self.env, self.chunk_steps, self._mesh, self.ahead)
        self._plan_of = [None] * self.num_lanes
        self._queue = deque(range(len(self.plans)))
        self._saved = {i: plan.saved for i, plan in enumerate(self.plans) if plan.saved is not None}

    def _for_all_devices(self, count: int) -> int:
        """So many, or a few more: a multiple of the devices."""
        return -(-count // self.devices) * self.devices

    @property
    def running(self) -> dict[int, int]:
        """Lane of each run under way."""
        return {plan: lane for lane, plan in enumerate(self._plan_of) if plan is not None}

    def advance(self) -> list[Report]:
        """Fill idle lanes from the queue, then move all by a chunk. Empty when all is done.

        What a new lane's burn-in brought is reported together with its first chunk. A run that is
        reported as finished or failed keeps its lane until it is released. Where memory does not
        suffice, all is as it was before the chunk, in half as many lanes, and tried again.
        """
        while True:
            self._shrink()
            plan_of, queue, saved = list(self._plan_of), deque(self._queue), dict(self._saved)
            before = self._jobs, self._lanes, self._clock
            try:
                return self._advance()
            except jax.errors.JaxRuntimeError as error:
                if not out_of_memory(error):
                    raise
            self._plan_of, self._queue, self._saved = plan_of, queue, saved
            self._jobs, self._lanes, self._clock = before
            del before  # or it would keep the memory that is wanting
            self._halve()

    def _advance(self) -> list[Report]:
        burnt_in = self._fill()
        if not self.running:
            return []
        if burnt_in is not None and self._all_reached():
            return self._reports(burnt_in, None, self._lanes, self._clock)
        lanes, trace = self.programs.call(
            device.advance,
            self._agent_now(),
            self.env,
            self._jobs,
            self._lanes,
            self.chunk_steps,
            learning=True,
            **self._on,
        )
        trace, clock = self.programs.fetch((trace, lanes.run.clock))
        return self._reports(burnt_in, trace, lanes, clock)

    def _agent_now(self) -> Agent:
        """The agent, at rest where that changes nothing in any lane and its program is ready."""
        rested = self._at_rest(within=SOON)
        if rested is None or not self._ahead.is_ready(rested, self.num_lanes, self._state):
            return self.agent
        return self._at_rest() or self.agent

    def _at_rest(self, within: float = 0.0) -> Agent | None:
        """The agent at rest, if all have settled, or will within a share of their runs."""
        agent = self.agent
        if not self.rest or not isinstance(agent, Settling):
            return None
        settled = all(
            agent.settled(float(self._clock.progress[lane]) + within, self.plans[plan].hyper)
            for plan, lane in self.running.items()
        )
        return agent.at_rest() if settled else None

    @property
    def _state(self) -> tuple[Any, Any]:
        return self._jobs, self._lanes

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

    def _all_reached(self) -> bool:
        """Whether all runs ended within their burn-in, so that there is nothing to learn for."""
        return all(
            reached(self.plans[p].end, self._clock, lane) for p, lane in self.running.items()
        )

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
            self._plan_of[self.running[plan]] = None

    def state(self, lane: int) -> Lane:
        """Everything of one lane, on the host (keys stay JAX's)."""
        return jax.device_get(device.picked(self._lanes, lane))

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
        try:
            found = self.programs.fetch(look(self._jobs, self._lanes))
            return [jax.tree.map(lambda x, lane=lane: x[lane], found) for lane in lanes]
        except jax.errors.JaxRuntimeError as error:
            if not out_of_memory(error):
                raise
        shown = []
        for lane in lanes:
            one = device.gathered((self._jobs, self._lanes), np.array([lane] * self.devices))
            jobs, states = shared_out(one, self._mesh)
            shown.append(jax.tree.map(lambda x: x[0], self.programs.fetch(look(jobs, states))))
        return shown

    def _fill(self) -> Trace | None:
        """Start queued runs in idle lanes; the trace of their burn-in."""
        fresh: list[int] = []
        restored: list[int] = []
        for lane, plan in enumerate(self._plan_of):
            if plan is None and self._queue:
                plan = self._plan_of[lane] = self._queue.popleft()
                (restored if plan in self._saved else fresh).append(lane)
        if not fresh and not restored:
            return None
        self._place_jobs()
        begun = self.programs.call(device.begin, self.agent, self.env, self._jobs, **self._on)
        burnt_in = None
        if fresh:
            begun, trace = self.programs.call(
                device.advance,
                self.agent,
                self.env,
                self._jobs,
                begun,
                self.agent.config.burn_in,
                learning=False,
                **self._on,
            )
            burnt_in = only(self.programs.fetch(trace), fresh)
        if self._lanes is not None:
            begun = device.chosen(np.isin(np.arange(self.num_lanes), fresh), begun, self._lanes)
        for plan, lane in self.running.items():
            if lane in restored:
                begun = device.placed(begun, lane, self._saved.pop(plan))
        self._lanes = shared_out(begun, self._mesh)
        self._clock = self.programs.fetch(begun.run.clock)
        return burnt_in

    def _place_jobs(self) -> None:
        """The jobs of all lanes; an idle lane repeats another's, and nobody looks."""
        spare = next(plan for plan in self._plan_of if plan is not None)
        self._jobs = self._jobs_of([spare if plan is None else plan for plan in self._plan_of])

    def _jobs_of(self, chosen: list[int]) -> Job:
        masked = any(plan.available is not None for plan in self.plans)
        jobs = jobs_of([self.plans[plan] for plan in chosen], self.agent.spec, masked)
        return shared_out(jobs, self._mesh)

    def _reports(
        self, burnt_in: Trace | None, trace: Trace | None, lanes: Lane, clock: Clock
    ) -> list[Report]:
        """What burn-in and chunk brought; without a trace there was no chunk.

        A lane whose loss was not finite, or whose run had ended in its burn-in, stays as it was
        before the chunk.
        """
        running = self.running
        losses = np.zeros((self.num_lanes, 1)) if trace is None else trace.metrics["loss"]
        sound: np.ndarray = np.isfinite(np.asarray(losses)).all(axis=1)
        early = {lane for p, lane in running.items() if self._ended_early(p, lane)}
        broken = {lane for lane in running.values() if not sound[lane]} - early
        if (early or broken) and trace is not None:
            kept = np.isin(np.arange(self.num_lanes), [*early, *broken])
            lanes = shared_out(device.chosen(kept, self._lanes, lanes), self._mesh)
            clock = jax.tree.map(lambda old, new: np.where(kept, old, new), self._clock, clock)
        self._lanes, self._clock = lanes, clock
        moved = Moved(
            running=running,
            clock=clock,
            burnt_in=burnt_in,
            trace=trace,
            early=frozenset(early),
            broken=frozenset(broken),
        )
        return reports_of(self.plans, moved, countable=lanes.visits.shape[1] > 0)

    def _ended_early(self, plan: int, lane: int) -> bool:
        return reached(self.plans[plan].end, self._clock, lane)

    def _shrink(self) -> None:
        """Leave out idle lanes, where nothing waits and what is left is worth another program."""
        running = self.running
        if self.shrink is None or self._queue or not running:
            return
        count = self.num_lanes
        wanted = fewer_lanes(count, len(running), self.shrink, at_once=not self.ahead)
        left = max(self._steps_left(plan, lane) for plan, lane in running.items())
        if wanted == count or left < (WORTH_MOVING if self.ahead else WORTH_COMPILING):
            return
        agent = self._at_rest() or self.agent
        fewer = self._ahead.fewest(agent, wanted, len(running), count, self._state)
        if fewer is None:
            return
        which = [*running.values()] + [next(iter(running.values()))] * (fewer - len(running))
        self._lanes = shared_out(device.gathered(self._lanes, np.array(which)), self._mesh)
        self._clock = jax.tree.map(lambda part: part[which], self._clock)
        self._plan_of = [*running] + [None] * (fewer - len(running))
        self.num_lanes = fewer
        self._place_jobs()

    def _steps_left(self, plan: int, lane: int) -> float:
        most = self.plans[plan].most_steps
        done = progress(self.plans[plan].end, self._clock, lane)
        return np.inf if most is None else most * (1.0 - done)

    def _halve(self) -> None:
        """Go on in half as many lanes, runs that had one first: from the host, where they wait."""
        first = self.plans[0]
        need = lane_bytes(self.agent, self.env, first.params, first.hyper) / 2**20
        if self.num_lanes == self.devices:
            raise InputError(
                f"out of memory: a single lane needs about {need:,.0f} MiB; "
                "need a smaller batch_size, capacity, num_atoms or hidden"
            )
        running = self.running
        if running:
            state = jax.device_get(self._lanes)
            for plan, lane in running.items():
                self._saved[plan] = jax.tree.map(lambda x, lane=lane: x[lane], state)
        self._queue.extendleft(reversed(running))
        before, fewer = self.num_lanes, self.num_lanes // self.devices // 2 * self.devices
        self.num_lanes = fewer
        self._jobs = self._lanes = self._clock = None
        self._plan_of = [None] * self.num_lanes
        self.notice(
            f"out of memory with {before} lanes of about {need:,.0f} MiB each: "
            f"going on with {self.num_lanes}"
        )
