"""Which lanes move into another row: away from idle ones, and settled ones away from explorers.

An agent at rest learns less, so that its lanes cost less; but a row costs something for itself, and
each number of lanes is another program to compile. So lanes move by the eighth.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from winkel.agents.base import Agent, Settling
from winkel.training.ahead import Ahead, rounded_up
from winkel.training.reports import Plan, progress
from winkel.training.rows import Row, gathered

WORTH_COMPILING = 50_000
"""Steps that the longest run must still have for a program of fewer lanes to be worth its time."""
WORTH_MOVING = 10_000
"""The same where it is compiled in the background, while lanes go on as they are."""
SOON = 0.02
"""Share of a run before all agents have settled in which their program at rest is compiled."""


def fewer_lanes(num_lanes: int, running: int, unit: int, at_once: bool) -> int:
    """Lanes for the runs under way, in steps of `unit`; as many as there are if too few are idle.

    Half of them must be where all wait for the compilation, an eighth where nobody does.
    """
    needed = rounded_up(running, unit)
    return needed if num_lanes - needed >= num_lanes / (2 if at_once else 8) else num_lanes


@dataclass
class Regrouping:
    """Makes rows out of rows, when nothing waits for a lane.

    Attributes:
        agent: the algorithm, as it explores.
        ahead: its programs.
        unit: rows grow and shrink by so many lanes; None: never.
        rest: let agents rest that have settled.
    """

    agent: Agent
    ahead: Ahead
    unit: int | None
    rest: bool

    def regrouped(self, rows: list[Row], plans: Sequence[Plan]) -> list[Row]:
        """Rows of the same runs: explorers first, then those at rest."""
        rows = [row for row in rows if row.running]
        if self.rest:
            rows = self._parted(rows, plans)
        unit = self.unit
        return rows if unit is None else [self._with_fewer(row, plans, unit) for row in rows]

    def _parted(self, rows: list[Row], plans: Sequence[Plan]) -> list[Row]:
        """Settled runs in a row of agents at rest: all, or enough of them and what they join."""
        agent = self.agent
        row = next((row for row in rows if row.agent == agent), None)
        if row is None or not isinstance(agent, Settling):
            return rows
        rested, settled = agent.at_rest(), self._settled(row, plans)
        if len(rows) == 1 and len(self._settled(row, plans, within=SOON)) == len(row.running):
            ready = self.ahead.is_ready(rested, row.num_lanes, row.state)
            row.agent = rested if ready and len(settled) == len(row.running) else agent
            return rows
        unit = self.unit if self.ahead.in_background else None
        if unit is None or not self._pays(row, settled, plans, unit):
            return rows
        resting = [(one, [*one.running]) for one in rows if one.agent == rested]
        there = sum(len(runs) for _, runs in resting)
        left = fewer_lanes(row.num_lanes, len(row.running) - len(settled), unit, at_once=False)
        if 0 < left < row.num_lanes:
            self.ahead.is_ready(agent, left, row.state)
        wanted = rounded_up(there + len(settled), unit)
        at_most = wanted * 8 // 7  # more would leave an eighth idle
        counts = range(min(there + unit, wanted), at_most + 1)
        count = self.ahead.roomiest(rested, wanted, counts, row.state)
        chosen = settled[: (count or 0) - there]
        joined = self._gathered(rested, [*resting, (row, chosen)], count)
        if joined is None:
            return rows
        exploring = row.without(chosen)
        return [exploring, joined] if exploring.running else [joined]

    def _settled(self, row: Row, plans: Sequence[Plan], within: float = 0.0) -> list[int]:
        """Runs that have settled, or will within a share of their length."""
        agent = self.agent
        if not isinstance(agent, Settling):
            return []
        return [
            plan
            for plan, lane in row.running.items()
            if agent.settled(float(row.clock.progress[lane]) + within, plans[plan].hyper)
        ]

    def _pays(self, row: Row, settled: list[int], plans: Sequence[Plan], unit: int) -> bool:
        """Whether enough runs have settled, and have enough before them, to rest on their own."""
        enough = len(settled) >= max(unit, row.num_lanes / 8) or len(settled) == len(row.running)
        return enough and _steps_left(row, settled, plans) >= WORTH_MOVING

    def _with_fewer(self, row: Row, plans: Sequence[Plan], unit: int) -> Row:
        """The row without idle lanes, if there are enough, and a program is ready."""
        runs, at_once = [*row.running], not self.ahead.in_background
        wanted = fewer_lanes(row.num_lanes, len(runs), unit, at_once)
        worth = WORTH_COMPILING if at_once else WORTH_MOVING
        if wanted == row.num_lanes or _steps_left(row, runs, plans) < worth:
            return row
        agent = row.agent
        if self.rest and isinstance(agent, Settling) and self._settled(row, plans) == runs:
            agent = agent.at_rest()
        fewer = self.ahead.fewest(agent, wanted, len(runs), row.num_lanes, row.state)
        return self._gathered(agent, [(row, runs)], fewer) or row

    def _gathered(
        self, agent: Agent, parts: list[tuple[Row, list[int]]], num_lanes: int | None
    ) -> Row | None:
        """The row that these runs make, None while it would have to be waited for."""
        states = [row.state for row, _ in parts]
        if num_lanes is None or not self.ahead.can_gather(states, num_lanes):
            return None
        return gathered(agent, parts, num_lanes, self.ahead.mesh)


def _steps_left(row: Row, runs: list[int], plans: Sequence[Plan]) -> float:
    """Steps that the longest of some runs can still have."""
    left = [0.0]
    for plan in runs:
        most, done = plans[plan].most_steps, progress(plans[plan].end, row.clock, row.running[plan])
        left.append(np.inf if most is None else most * (1.0 - done))
    return max(left)
