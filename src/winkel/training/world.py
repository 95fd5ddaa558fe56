"""Who steps the environments of lanes: a compiled program, or simulators in processes.

`Lanes` runs the same algorithm in both. `compiled.CompiledWorld` and `simulated.SimulatorWorld`
implement `World`; nothing else in this package depends on which of them it is.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jax.sharding import Mesh

from winkel.agents.base import Agent, Spec
from winkel.training.programs import Programs
from winkel.training.records import Arrays, Chunk, Plan
from winkel.training.steps import Job
from winkel.types import Clock, RunState


@dataclass
class Row:
    """Lanes that one call of one program advances.

    Attributes:
        agent: the algorithm, or the same with a frozen bonus.
        plan_of: the run of each lane, None where it is idle.
        jobs: of all lanes; idle lanes repeat the job of another.
        lanes: the states of all lanes, None before the first run has begun.
        clock: the clocks of all lanes, on the host.
    """

    agent: Agent
    plan_of: list[int | None]
    jobs: Any = None
    lanes: Any = None
    clock: Any = None

    @property
    def num_lanes(self) -> int:
        """Number of lanes, idle ones included."""
        return len(self.plan_of)

    @property
    def running(self) -> dict[int, int]:
        """Lane of each run under way."""
        return {plan: lane for lane, plan in enumerate(self.plan_of) if plan is not None}

    @property
    def state(self) -> tuple[Job, RunState]:
        """Jobs and states, as programs take them."""
        return self.jobs, self.lanes


@runtime_checkable
class World(Protocol):
    """Who steps the environments of a row of lanes.

    Attributes:
        refills: whether a free lane can take another run, and whether lanes can move between rows.
    """

    refills: bool

    def open(self, programs: Programs, mesh: Mesh | None) -> None:
        """Use these programs and devices from now on."""
        ...

    def make_jobs(self, plans: Sequence[Plan], spec: Spec, masked: bool) -> Job:
        """One job for each plan; `masked` if some runs have fewer actions than others."""
        ...

    def begin(
        self, row: Row, plans: Sequence[Plan], fresh: Sequence[int], saved: Mapping[int, RunState]
    ) -> tuple[RunState, Chunk | None]:
        """Start runs in some lanes of a row.

        Args:
            row: with the jobs of all lanes.
            plans: of the run in each lane.
            fresh: lanes whose runs begin.
            saved: states of runs that continue, by lane.

        Returns:
            The states of all lanes, and the results of burn-in where it is done at once.
        """
        ...

    def advance(self, row: Row, num_steps: int) -> tuple[RunState, Any]:
        """Make a chunk of steps. Returns new states, and results for `read`."""
        ...

    def read(self, runs: RunState, trace: Any) -> tuple[Clock, Chunk]:
        """Wait for what `advance` returned, and fetch it."""
        ...

    def evaluate(
        self, agent: Agent, row: Row, lanes: Sequence[int], index: int, num_episodes: int
    ) -> list[np.ndarray]:
        """Undiscounted returns of greedy episodes of some lanes, in environments of their own.

        `index` is the number of the evaluation, on which their random numbers depend.
        """
        ...

    def shapes(self, agent: Agent, params: Any, hyper: Any) -> RunState:
        """Shapes and types of the state of one run, without computing it."""
        ...

    def survey(self, agent: Agent, row: Row, lanes: Sequence[int]) -> list[Arrays]:
        """Visits, value, disagreement and bonus of some lanes at every countable observation."""
        return [{} for _ in lanes]

    def left_support(self, lane: int) -> str | None:
        """A sentence on returns outside of the support, None without any."""
        return None

    def compile_first(self, agent: Agent, jobs: Job, num_steps: int) -> list[Future[None]]:
        """Compile in the background what the first chunks need, where that is known."""
        return []

    def compile_row(
        self, agent: Agent, num_lanes: int, state: tuple[Job, RunState], num_steps: int
    ) -> list[Future[None]]:
        """Compile in the background what a row of this agent and so many lanes needs.

        `state` holds the jobs and states of any other row.
        """
        return []

    def close(self) -> None:
        """End all processes."""
        return
