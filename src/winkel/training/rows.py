"""Which lanes share a program: compaction of idle lanes, and lanes whose bonus is frozen.

Lanes are grouped in rows (`world.Row`). A row is one call of one program, whose cost grows with its
number of lanes. All runs begin in one row. Once no run waits for a lane, two things change rows:

- *Runs end.* Their lanes are idle but cost as much as others. When an eighth of a row is idle, its
  runs are gathered into a row of fewer lanes.
- *A bonus is frozen.* When β of PE-DQN is 0 for good (`can_freeze_bonus`), the bonus changes
  nothing any more, and the agent `with_frozen_bonus` does not learn it: a cheaper program. The only
  row changes its program when all its runs are frozen. Before that, frozen runs move to a row of
  their own as soon as they are an eighth of the lanes.

Each number of lanes is another program to compile. So rows grow and shrink by `unit` lanes, and
lanes move only if runs are long enough to repay it. With `compile_in_background` rows stay as they
are until the next program is ready; without it all lanes wait, so half of a row must be idle, and
frozen runs do not get a row of their own.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from winkel.agents.base import Agent
from winkel.training.mesh import gather_lanes, shard_lanes
from winkel.training.programs import Programs
from winkel.training.records import Plan, progress
from winkel.training.world import Row, World

Parts = list[tuple[Row, list[int]]]
"""Rows, and which of their runs."""
STEPS_TO_WAIT = 50_000
"""Steps that the longest run must have left if all lanes wait for a compilation."""
STEPS_TO_MOVE = 10_000
"""Steps that it must have left if the program is compiled in the background."""
SOON = 0.02
"""Share of a run before all bonuses are frozen in which the program without them is compiled."""


def round_up(count: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-count // unit) * unit


def fewer_lanes(num_lanes: int, running: int, unit: int, waits: bool) -> int:
    """Lanes for the runs under way, a multiple of `unit`; `num_lanes` if too few are idle.

    An eighth must be idle, or half of them if all lanes wait for the compilation.
    """
    needed = round_up(running, unit)
    return needed if num_lanes - needed >= num_lanes / (2 if waits else 8) else num_lanes


@dataclass
class LaneMover:
    """Makes new rows of the runs under way.

    Attributes:
        agent: the algorithm, which learns the bonus.
        world: compiles the program of a row.
        programs: compiles in the background.
        mesh: of the devices, None for one.
        chunk_steps: steps of a chunk.
        unit: rows grow and shrink by so many lanes; None to keep all lanes.
        freeze_bonus: use the agent with a frozen bonus where that changes nothing.
        in_background: compile programs in the background.
    """

    agent: Agent
    world: World
    programs: Programs
    mesh: Mesh | None
    chunk_steps: int
    unit: int | None
    freeze_bonus: bool
    in_background: bool
    _started: dict[Any, list[Future[None]]] = field(init=False, default_factory=dict)
    """Programs that are compiled in the background, or have been."""

    def rearrange(self, rows: list[Row], plans: Sequence[Plan]) -> list[Row]:
        """Rows of the same runs: those that learn the bonus first, then the frozen ones."""
        rows = [row for row in rows if row.running]
        if self.freeze_bonus:
            rows = self._freeze(rows, plans)
        if self.unit is not None:
            rows = [self._compact(row, plans, self.unit) for row in rows]
        return rows

    def _freeze(self, rows: list[Row], plans: Sequence[Plan]) -> list[Row]:
        """Let frozen runs use the program that does not learn the bonus."""
        row, unit = next((row for row in rows if row.agent == self.agent), None), self.unit
        if row is None:
            return rows
        runs, frozen = [*row.running], self._frozen_runs(row, plans)
        if len(rows) == 1 and self._frozen_runs(row, plans, within=SOON) == runs:
            agent = self.agent.with_frozen_bonus()
            if self._is_ready(agent, row.num_lanes, row) and frozen == runs:
                row.agent = agent
            return rows
        if unit is None or not self.in_background:
            return rows
        enough = frozen == runs or len(frozen) >= max(unit, row.num_lanes / 8)
        if not enough or _steps_left(row, frozen, plans) < STEPS_TO_MOVE:
            return rows
        left = fewer_lanes(row.num_lanes, len(runs) - len(frozen), unit, waits=False)
        if 0 < left < row.num_lanes:
            self._is_ready(self.agent, left, row)  # the row that stays will need it
        return self._move_frozen(rows, row, frozen, unit)

    def _move_frozen(self, rows: list[Row], row: Row, frozen: list[int], unit: int) -> list[Row]:
        """Move frozen runs out of a row, as many as a program that is ready has lanes for."""
        others = [(one, [*one.running]) for one in rows if one is not row]
        there = sum(len(runs) for _, runs in others)
        wanted = round_up(there + len(frozen), unit)
        most = wanted * 8 // 7  # with more, an eighth would be idle
        sizes = range(min(there + unit, wanted), most + 1)
        agent = self.agent.with_frozen_bonus()
        size = self._ready_size(agent, wanted, sizes, row)
        moved = frozen[: (size or 0) - there]
        joined = self._gather(agent, [*others, (row, moved)], size)
        if joined is None:
            return rows
        staying = replace(row, plan_of=[None if plan in moved else plan for plan in row.plan_of])
        return [staying, joined] if staying.running else [joined]

    def _compact(self, row: Row, plans: Sequence[Plan], unit: int) -> Row:
        """The row without idle lanes, if there are enough of them and a program is ready."""
        runs, waits = [*row.running], not self.in_background
        wanted = fewer_lanes(row.num_lanes, len(runs), unit, waits)
        least = STEPS_TO_WAIT if waits else STEPS_TO_MOVE
        if wanted == row.num_lanes or _steps_left(row, runs, plans) < least:
            return row
        agent = row.agent
        if self.freeze_bonus and self._frozen_runs(row, plans) == runs:
            agent = agent.with_frozen_bonus()
        size = self._ready_size(agent, wanted, range(len(runs), row.num_lanes), row)
        return self._gather(agent, [(row, runs)], size) or row

    def _frozen_runs(self, row: Row, plans: Sequence[Plan], within: float = 0.0) -> list[int]:
        """Runs whose bonus is frozen, or will be within a share of their length."""
        agent, done = self.agent, row.clock.progress
        return [
            plan
            for plan, lane in row.running.items()
            if agent.can_freeze_bonus(float(done[lane]) + within, plans[plan].hyper)
        ]

    def _is_ready(self, agent: Agent, num_lanes: int, row: Row) -> bool:
        """Whether this agent's program for so many lanes is compiled; if not, start that."""

        def start() -> list[Future[None]]:
            return self.world.compile_row(agent, num_lanes, row.state, self.chunk_steps)

        return self._is_compiled((agent, num_lanes), start)

    def _is_compiled(self, key: Any, start: Callable[[], list[Future[None]]]) -> bool:
        if not self.in_background:
            return True  # it is compiled when it is called
        if key not in self._started:
            self._started[key] = start()
        return all(future.done() for future in self._started[key])

    def _ready_size(self, agent: Agent, wanted: int, sizes: range, row: Row) -> int | None:
        """Lanes of a program that is ready: the fewest from `wanted` on, else the most below.

        Only `sizes` count; None if no program of these sizes is ready. What is wanted changes as
        runs end: another program is started only when none of these sizes is being compiled.
        """
        if not self.in_background:
            return wanted
        started = [size for size in sizes if (agent, size) in self._started]
        ready = [size for size in started if self._is_ready(agent, size, row)]
        if wanted not in started and ready == started:
            self._is_ready(agent, wanted, row)
        return next((size for size in ready if size >= wanted), max(ready, default=None))

    def _gather(self, agent: Agent, parts: Parts, num_lanes: int | None) -> Row | None:
        """A row of these runs; None without a size, or while the program is being compiled."""

        def start() -> list[Future[None]]:
            states, which = [row.state for row, _ in parts], np.zeros(num_lanes or 0, np.int32)
            return [self.programs.compile_in_background(gather_lanes, states, which)]

        sizes = *(row.num_lanes for row, _ in parts), num_lanes
        if num_lanes is None or not self._is_compiled(sizes, start):
            return None
        return gather_runs(agent, parts, num_lanes, self.mesh)


def gather_runs(agent: Agent, parts: Parts, num_lanes: int, mesh: Mesh | None = None) -> Row:
    """A row of selected runs of other rows, in this order; lanes beyond them are idle."""
    offsets = np.cumsum([0, *(row.num_lanes for row, _ in parts)])
    which = [
        int(offset) + row.running[plan]
        for offset, (row, plans) in zip(offsets, parts, strict=False)
        for plan in plans
    ]
    idle = num_lanes - len(which)
    indices = np.array([*which, *which[:1] * idle], np.int32)
    jobs, lanes = shard_lanes(gather_lanes([row.state for row, _ in parts], indices), mesh)
    clocks = [row.clock for row, _ in parts]
    return Row(
        agent=agent,
        plan_of=[*(plan for _, plans in parts for plan in plans), *[None] * idle],
        jobs=jobs,
        lanes=lanes,
        clock=jax.tree.map(lambda *columns: np.concatenate(columns)[indices], *clocks),
    )


def _steps_left(row: Row, runs: list[int], plans: Sequence[Plan]) -> float:
    """Steps that the longest of some runs can still have."""
    left = [0.0]
    for plan in runs:
        most, done = plans[plan].most_steps, progress(plans[plan].end, row.clock, row.running[plan])
        left.append(np.inf if most is None else most * (1.0 - done))
    return max(left)
