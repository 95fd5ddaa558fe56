"""Fewer lanes and cheaper programs for the runs that are left: compaction, and frozen bonuses.

The cost of a row (`programs.Row`) grows with its number of lanes. When no run waits for a lane and
an eighth of the lanes is idle, since their runs have ended, the others are gathered into a row of
fewer lanes. When β of PE-DQN is 0 for good (`can_freeze_bonus`) in all runs of a row, it gets the
cheaper program of the agent `with_frozen_bonus`. Programs are compiled in the background: the row
stays as it is until the next one is ready (decision 017).
"""

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
    _started: dict[tuple[Agent, int], list[Future[Any]]] = field(init=False, default_factory=dict)
    """By agent and number of lanes, what is compiled in the background, or has been."""
    _next: tuple[Agent, int] | None = field(init=False, default=None)
    """Of these, what a row with fewer lanes waits for."""

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
        # What is wanted changes as runs end; only one such program is compiled at a time.
        if self._next is None or self._next[0] != row.agent or self._next[1] >= row.num_lanes:
            self._next = row.agent, wanted
        size = self._next[1]
        if not self._is_ready(lanes, row.agent, size):
            return row
        idle = size - len(runs)
        which = np.array([row.running[run] for run in (*runs, *runs[:1] * idle)], np.int32)
        jobs, states = take_lanes(row.inputs, which)
        clock = jax.tree.map(lambda column: column[which], row.clock)
        return Row(row.agent, [*runs, *[None] * idle], jobs, states, clock)

    def _is_ready(self, lanes: Lanes, agent: Agent, num_lanes: int) -> bool:
        """Whether this agent's program for so many lanes is compiled; if not, start that."""
        if (agent, num_lanes) not in self._started:
            inputs = lanes.row.inputs
            shapes = resized(inputs, num_lanes)
            started = lanes.world.compile_ahead(agent, lanes.chunk_steps, *shapes)
            if num_lanes < lanes.row.num_lanes:
                which = np.zeros(num_lanes, np.int32)
                started.append(lanes.programs.compile_in_background(take_lanes, inputs, which))
            self._started[agent, num_lanes] = started
        return all(future.done() for future in self._started[agent, num_lanes])


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
