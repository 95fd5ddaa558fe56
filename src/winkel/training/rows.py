"""Lanes that one program moves, and how they come out of others."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from winkel.agents.base import Agent
from winkel.training import device
from winkel.training.mesh import shared_out


@dataclass
class Row:
    """Some lanes side by side.

    Attributes:
        agent: the algorithm, or the same at rest.
        plan_of: the run of each lane, None where it is idle.
        jobs: of all lanes; those of idle ones repeat another's, and nobody looks.
        lanes: their states, None before the first has begun.
        clock: their clocks, on the host.
    """

    agent: Agent
    plan_of: list[int | None]
    jobs: Any = None
    lanes: Any = None
    clock: Any = None

    @property
    def num_lanes(self) -> int:
        """How many there are."""
        return len(self.plan_of)

    @property
    def running(self) -> dict[int, int]:
        """Lane of each run under way."""
        return {plan: lane for lane, plan in enumerate(self.plan_of) if plan is not None}

    @property
    def state(self) -> tuple[Any, Any]:
        """Jobs and lanes, as programs take them."""
        return self.jobs, self.lanes

    def without(self, plans: list[int]) -> "Row":
        """The same row, in which these runs' lanes are idle."""
        left = [None if plan in plans else plan for plan in self.plan_of]
        return Row(self.agent, left, self.jobs, self.lanes, self.clock)


def gathered(
    agent: Agent, parts: list[tuple[Row, list[int]]], num_lanes: int, mesh: Any = None
) -> Row:
    """A row of some runs out of others, in order; lanes beyond them are idle.

    Args:
        agent: that moves them from now on.
        parts: rows, and which of their runs.
        num_lanes: at least as many as runs.
        mesh: of the devices, None for one.
    """
    offsets = np.cumsum([0, *(row.num_lanes for row, _ in parts)])
    which = [
        int(offset) + row.running[plan]
        for offset, (row, plans) in zip(offsets, parts, strict=False)
        for plan in plans
    ]
    plan_of: list[int | None] = [plan for _, plans in parts for plan in plans]
    idle = num_lanes - len(plan_of)
    indices = np.array([*which, *which[:1] * idle], np.int32)
    state = device.gathered_of([row.state for row, _ in parts], indices)
    jobs, lanes = shared_out(state, mesh)
    return Row(
        agent=agent,
        plan_of=[*plan_of, *[None] * idle],
        jobs=jobs,
        lanes=lanes,
        clock=jax.tree.map(
            lambda *columns: np.concatenate(columns)[indices], *(row.clock for row, _ in parts)
        ),
    )
