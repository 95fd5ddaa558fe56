"""Fewer lanes and cheaper programs for the runs that are left: compaction, and frozen bonuses.

The cost of a row (`programs.Row`) grows with its number of lanes. When no run waits for a lane, two
things change it:

- *Runs end.* Their lanes are idle but cost as much as others. When an eighth of the lanes is idle,
  the runs are gathered into a row of fewer lanes.
- *Bonuses are frozen.* When β of PE-DQN is 0 for good (`can_freeze_bonus`), the bonus changes
  nothing any more, and the agent `with_frozen_bonus` does not learn it: a cheaper program, which
  the row gets when that is so for all its runs.

Each number of lanes is another program to compile. So rows shrink by `unit` lanes, and only if runs
are long enough to repay it. Programs are compiled in the background: the row stays as it is until
the next program is ready.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from winkel.agents.base import Agent
from winkel.training.lanes import Lanes
from winkel.training.programs import Row, resized, take_lanes

STEPS_TO_MOVE = 10_000
"""Steps that the longest run must have left."""
COMPILE_AHEAD_SHARE = 0.02
"""So long before all bonuses are frozen, the program for that is compiled; a share of a run."""


@dataclass
class Compaction:
    """Makes a new row of the runs under way; `Lanes` takes its method `rearrange`."""

    unit: int | None = None
    """Rows shrink by so many lanes; None to keep all lanes."""
    freeze_bonus: bool = False
    """Do not learn bonuses that change nothing any more."""
    _started: dict[Any, list[Future[Any]]] = field(init=False, default_factory=dict)
    """Programs that are compiled in the background, or have been."""

    def rearrange(self, lanes: Lanes) -> Row:
        """A row of the same runs."""
        if self.freeze_bonus:
            self._freeze(lanes)
        return lanes.row if self.unit is None else self._compact(lanes, self.unit)

    def _freeze(self, lanes: Lanes) -> None:
        """Use the program that does not learn the bonus, if all bonuses are frozen."""
        row, agent, plans, progress = lanes.row, lanes.agent, lanes.plans, lanes.row.clock.progress

        def are_frozen(share: float) -> bool:
            """Whether all will be after a further share of their runs."""
            return all(
                agent.can_freeze_bonus(float(progress[lane]) + share, plans[run].hyper)
                for run, lane in row.running.items()
            )

        if row.agent == agent and are_frozen(COMPILE_AHEAD_SHARE):
            frozen_agent = agent.with_frozen_bonus()
            if self._is_ready(lanes, frozen_agent, row.num_lanes) and are_frozen(0.0):
                row.agent = frozen_agent

    def _compact(self, lanes: Lanes, unit: int) -> Row:
        """The row without idle lanes, if there are enough of them and a program is ready."""
        row, runs = lanes.row, [*lanes.row.running]
        wanted = fewer_lanes(row.num_lanes, len(runs), unit)
        if wanted == row.num_lanes or steps_left(lanes) < STEPS_TO_MOVE:
            return row
        size = self.ready_size(lanes, row.agent, wanted, range(len(runs), row.num_lanes))
        if size is None:
            return row
        idle = size - len(runs)
        which = np.array([row.running[run] for run in (*runs, *runs[:1] * idle)], np.int32)

        def compile_it() -> list[Future[Any]]:
            return [lanes.programs.compile_in_background(take_lanes, row.inputs, which)]

        if not self._is_compiled((row.num_lanes, size), compile_it):
            return row
        jobs, states = take_lanes(row.inputs, which)
        clock = jax.tree.map(lambda column: column[which], row.clock)
        return Row(row.agent, [*runs, *[None] * idle], jobs, states, clock)

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
            shapes = resized(lanes.row.inputs, num_lanes)
            return lanes.world.compile_ahead(agent, lanes.chunk_steps, *shapes)

        return self._is_compiled((agent, num_lanes), compile_it)

    def _is_compiled(self, key: Any, compile_it: Callable[[], list[Future[Any]]]) -> bool:
        if key not in self._started:
            self._started[key] = compile_it()
        return all(future.done() for future in self._started[key])


def fewer_lanes(num_lanes: int, running: int, unit: int) -> int:
    """Lanes for the runs under way, a multiple of `unit`; `num_lanes` if less than 1/8 is idle."""
    needed = -(-running // unit) * unit
    return needed if num_lanes - needed >= num_lanes / 8 else num_lanes


def steps_left(lanes: Lanes) -> float:
    """Steps that the longest run can still have."""
    left, clock = [0.0], lanes.row.clock
    for run, lane in lanes.row.running.items():
        plan = lanes.plans[run]
        done = plan.share_done(clock.episodes[lane], clock.env_steps[lane])
        left.append(np.inf if plan.most_steps is None else plan.most_steps * (1.0 - done))
    return max(left)
