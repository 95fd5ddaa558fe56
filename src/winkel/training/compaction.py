"""Fewer lanes and cheaper programs for the runs that are left: compaction, and frozen bonuses.

The cost of a row (`programs.Row`) grows with its number of lanes. All runs begin in one row. When
no run waits for a lane, two things change rows:

- *Runs end.* Their lanes are idle but cost as much as others. When an eighth of a row is idle, its
  runs are gathered into a row of fewer lanes.
- *A bonus is frozen.* When β of PE-DQN is 0 for good (`can_freeze_bonus`), the bonus changes
  nothing any more, and the agent `with_frozen_bonus` does not learn it: a cheaper program. The only
  row changes its program when all its runs are frozen. Before that, frozen runs move to a row of
  their own as soon as they are an eighth of the lanes.

Each number of lanes is another program to compile. So rows grow and shrink by `unit` lanes, and
lanes move only if runs are long enough to repay it. Programs are compiled in the background: rows
stay as they are until the next program is ready.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from winkel.agents.base import Agent
from winkel.training.lanes import Lanes
from winkel.training.programs import Row, gather_lanes, resized

STEPS_TO_MOVE = 10_000
"""Steps that the longest run must have left."""
COMPILE_AHEAD_SHARE = 0.02
"""So long before all bonuses are frozen, the program for that is compiled; a share of a run."""


@dataclass
class Compaction:
    """Makes new rows of the runs under way; `Lanes` takes its method `rearrange`."""

    unit: int | None = None
    """Rows grow and shrink by so many lanes; None to keep all lanes."""
    freeze_bonus: bool = False
    """Do not learn a bonus that changes nothing any more."""
    _started: dict[Any, list[Future[Any]]] = field(init=False, default_factory=dict)
    """Programs that are compiled in the background, or have been."""

    def rearrange(self, lanes: Lanes) -> list[Row]:
        """Rows of the same runs: those that learn the bonus first, then the frozen ones."""
        rows = [row for row in lanes.rows if row.running]
        if self.freeze_bonus:
            rows = self._freeze(lanes, rows)
        if self.unit is not None:
            rows = [self._compact(lanes, row, self.unit) for row in rows]
        return rows

    def _freeze(self, lanes: Lanes, rows: list[Row]) -> list[Row]:
        """Let frozen runs use the program that does not learn the bonus."""
        row, agent, unit = rows[0], lanes.agent, self.unit
        frozen_agent = agent.with_frozen_bonus()
        if row.agent != agent:
            return rows

        def frozen_within(share: float) -> list[int]:
            def is_frozen(run: int, lane: int) -> bool:
                done = float(row.clock.progress[lane]) + share
                return agent.can_freeze_bonus(done, lanes.plans[run].hyper)

            return [run for run, lane in row.running.items() if is_frozen(run, lane)]

        runs, frozen = [*row.running], frozen_within(0.0)
        if len(rows) == 1 and frozen_within(COMPILE_AHEAD_SHARE) == runs:
            if self._is_ready(lanes, frozen_agent, row.num_lanes) and frozen == runs:
                row.agent = frozen_agent
            return rows
        if unit is None:
            return rows
        enough = frozen == runs or len(frozen) >= max(unit, row.num_lanes / 8)
        if not enough or steps_left(lanes, row, frozen) < STEPS_TO_MOVE:
            return rows
        left = fewer_lanes(row.num_lanes, len(runs) - len(frozen), unit)
        if 0 < left < row.num_lanes:
            self._is_ready(lanes, row.agent, left)  # the row that stays will need it
        there = sum(len(other.running) for other in rows[1:])
        wanted = round_up(there + len(frozen), unit)
        sizes = range(min(there + unit, wanted), wanted * 8 // 7 + 1)  # more: an eighth is idle
        parts = [*((other, [*other.running]) for other in rows[1:]), (row, frozen)]
        joined = self._gather(lanes, frozen_agent, parts, wanted, sizes)
        if joined is None:
            return rows
        run_of = [None if run in joined.run_of else run for run in row.run_of]
        staying = replace(row, run_of=run_of)
        return [staying, joined] if staying.running else [joined]

    def _compact(self, lanes: Lanes, row: Row, unit: int) -> Row:
        """The row without idle lanes, if there are enough of them and a program is ready."""
        runs = [*row.running]
        wanted = fewer_lanes(row.num_lanes, len(runs), unit)
        if wanted == row.num_lanes or steps_left(lanes, row, runs) < STEPS_TO_MOVE:
            return row
        sizes = range(len(runs), row.num_lanes)
        return self._gather(lanes, row.agent, [(row, runs)], wanted, sizes) or row

    def _gather(
        self,
        lanes: Lanes,
        agent: Agent,
        parts: list[tuple[Row, list[int]]],
        wanted: int,
        sizes: range,
    ) -> Row | None:
        """A row of some runs of other rows, as many as fit; None while no program is ready."""
        size = self.ready_size(lanes, agent, wanted, sizes)
        if size is None:
            return None
        states = [row.inputs for row, _ in parts]

        def compile_it() -> list[Future[Any]]:
            which = np.zeros(size, np.int32)
            return [lanes.programs.compile_in_background(gather_lanes, states, which)]

        if not self._is_compiled((*(row.num_lanes for row, _ in parts), size), compile_it):
            return None
        offsets = np.cumsum([0, *(row.num_lanes for row, _ in parts)])
        lane_of = {
            run: int(offset) + row.running[run]
            for offset, (row, runs) in zip(offsets, parts, strict=False)
            for run in runs
        }
        moved = [*lane_of][:size]
        idle = size - len(moved)
        which = np.array([lane_of[run] for run in (*moved, *moved[:1] * idle)], np.int32)
        jobs, states = gather_lanes(states, which)
        clocks = [row.clock for row, _ in parts]
        clock = jax.tree.map(lambda *columns: np.concatenate(columns)[which], *clocks)
        return Row(agent, [*moved, *[None] * idle], jobs, states, clock)

    def ready_size(self, lanes: Lanes, agent: Agent, wanted: int, sizes: range) -> int | None:
        """Lanes of a program that is ready: the fewest from `wanted` on, else the most below.

        Only `sizes` count; None if no program of these sizes is ready. What is wanted changes as
        runs end: another program is started only when none of these sizes is being compiled.
        """
        started = [size for size in sizes if (agent, size) in self._started]
        ready = [size for size in started if self._is_ready(lanes, agent, size)]
        if wanted not in started and ready == started:
            self._is_ready(lanes, agent, wanted)
        return next((size for size in ready if size >= wanted), max(ready, default=None))

    def _is_ready(self, lanes: Lanes, agent: Agent, num_lanes: int) -> bool:
        """Whether this agent's program for so many lanes is compiled; if not, start that."""

        def compile_it() -> list[Future[Any]]:
            shapes = resized(lanes.rows[0].inputs, num_lanes)
            return lanes.world.compile_ahead(agent, lanes.chunk_steps, *shapes)

        return self._is_compiled((agent, num_lanes), compile_it)

    def _is_compiled(self, key: Any, compile_it: Callable[[], list[Future[Any]]]) -> bool:
        if key not in self._started:
            self._started[key] = compile_it()
        return all(future.done() for future in self._started[key])


def round_up(count: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-count // unit) * unit


def fewer_lanes(num_lanes: int, running: int, unit: int) -> int:
    """Lanes for the runs under way, a multiple of `unit`; `num_lanes` if less than 1/8 is idle."""
    needed = round_up(running, unit)
    return needed if num_lanes - needed >= num_lanes / 8 else num_lanes


def steps_left(lanes: Lanes, row: Row, runs: list[int]) -> float:
    """Steps that the longest of some runs can still have."""
    left = [0.0]
    for run in runs:
        plan, lane = lanes.plans[run], row.running[run]
        done = plan.share_done(row.clock.episodes[lane], row.clock.env_steps[lane])
        left.append(np.inf if plan.most_steps is None else plan.most_steps * (1.0 - done))
    return max(left)
