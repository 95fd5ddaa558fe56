"""Lanes for the trials of one environment and one static shape: one compiled program."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from winkel.agents.base import Agent
from winkel.envs.host import HostTask
from winkel.runs.shapes import world_of
from winkel.search.flights import Course, Flight
from winkel.search.problem import Problem
from winkel.training.lanes import Lanes, Plan, Report


class Shape(NamedTuple):
    """What trials must agree in to share a program.

    Attributes:
        environment: its number among the search's.
        agent: with its static settings.
        alone: the trial's number in simulators, whose runs begin together; None on the device.
    """

    environment: int
    agent: Agent
    alone: int | None = None


@dataclass
class Pool:
    """Lanes, and whose run each plan is."""

    lanes: Lanes
    owners: dict[int, tuple[Flight, Course]] = field(default_factory=dict)

    def advance(self) -> list[tuple[Flight, Report]]:
        """Move by a chunk; runs that have ended leave their lanes."""
        moved = []
        for report in self.lanes.advance():
            flight, course = self.owners[report.plan]
            course.add(report)
            moved.append((flight, report))
            if report.finished or report.failure is not None:
                self._drop(report.plan)
        return moved

    def leave(self, flight: Flight) -> None:
        """Free all lanes of a trial."""
        for plan in [plan for plan, (owner, _) in self.owners.items() if owner is flight]:
            self._drop(plan)

    def close(self) -> None:
        """End simulators."""
        self.lanes.close()

    def _drop(self, plan: int) -> None:
        del self.owners[plan]
        self.lanes.release(plan)


@dataclass
class Pools:
    """All of them, made when a trial needs one and dropped when none does."""

    problem: Problem
    most_lanes: int
    chunk_steps: int
    notice: Callable[[str], None] = lambda _: None
    open: dict[Shape, Pool] = field(default_factory=dict)
    programs: set[Shape] = field(default_factory=set)
    """Shapes that there were."""

    def enter(self, flight: Flight, others: list[Flight]) -> None:
        """Queue a trial's runs in its environment; `others` may come to the same program."""
        configured = flight.configured(self.problem)
        plans = self.problem.plans(flight.environment, configured)
        flight.courses = [Course() for _ in plans]
        shape = self._shape(flight, configured.agent)
        self.programs.add(shape)
        if shape in self.open:
            lanes = self.open[shape].lanes
            numbers = [lanes.add(plan) for plan in plans]
        else:
            alike = sum(self._agent(o) == configured.agent for o in others if o is not flight)
            self.open[shape] = Pool(self._lanes(shape, plans, (1 + alike) * len(plans)))
            numbers = list(range(len(plans)))
        for number, course in zip(numbers, flight.courses, strict=True):
            self.open[shape].owners[number] = flight, course

    def leave(self, flight: Flight) -> None:
        """Free all lanes of a trial."""
        for pool in self.open.values():
            pool.leave(flight)

    def tidy(self) -> None:
        """Drop pools without a run, and their memory."""
        for shape, pool in list(self.open.items()):
            if not pool.owners:
                self.open.pop(shape).close()

    def close(self) -> None:
        """Drop all."""
        for pool in self.open.values():
            pool.close()
        self.open.clear()

    def _agent(self, flight: Flight) -> Agent:
        return flight.configured(self.problem).agent

    def _shape(self, flight: Flight, agent: Agent) -> Shape:
        host = isinstance(self.problem.tasks[flight.environment], HostTask)
        return Shape(flight.environment, agent, flight.number if host else None)

    def _lanes(self, shape: Shape, plans: list[Plan], expected: int) -> Lanes:
        """As many lanes as runs are expected, a power of two: few programs differ in it alone."""
        world = world_of(self.problem.tasks[shape.environment], self.notice)
        count = min(self.most_lanes, 1 << (max(expected, len(plans)) - 1).bit_length())
        return Lanes(shape.agent, world, plans, count, self.chunk_steps, notice=self.notice)
