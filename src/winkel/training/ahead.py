"""Programs that lanes will change to, compiled while they go on with the one that they have.

Lanes change when runs have ended (to a program of fewer lanes) and when agents have settled (to
that of the agent at rest).
"""

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from winkel.agents.base import Agent
from winkel.training import device
from winkel.training.mesh import described
from winkel.training.programs import Programs


def rounded_up(count: int, unit: int) -> int:
    """The next multiple."""
    return -(-count // unit) * unit


@dataclass
class Ahead:
    """Programs by agent and number of lanes.

    Attributes:
        programs: that compiles them.
        env: the environment's functions.
        chunk_steps: steps of a chunk.
        mesh: of the devices, None for one.
        in_background: else each is ready at once, and compiled when it is called.
    """

    programs: Programs
    env: Any
    chunk_steps: int
    mesh: Any
    in_background: bool
    _begun: dict[tuple[Agent, int], Future[None]] = field(init=False, default_factory=dict)
    _gathers: dict[tuple[tuple[int, ...], int], Future[None]] = field(
        init=False, default_factory=dict
    )

    def is_ready(self, agent: Agent, num_lanes: int, state: Any) -> bool:
        """Whether lanes can go on so without waiting; where not, compiling has begun.

        Args:
            agent: as it will be.
            num_lanes: as many as there will be.
            state: jobs and lanes, of any number.
        """
        if not self.in_background:
            return True
        if (agent, num_lanes) not in self._begun:
            shapes = jax.tree.map(
                lambda x: described((num_lanes, *x.shape[1:]), x.dtype, self.mesh), state
            )
            self._begun[agent, num_lanes] = self.programs.ahead(
                device.advance,
                agent,
                self.env,
                *shapes,
                self.chunk_steps,
                learning=True,
                **({} if self.mesh is None else {"mesh": self.mesh}),
            )
        return self._begun[agent, num_lanes].done()

    def can_gather(self, states: list[Any], num_lanes: int) -> bool:
        """Whether so many lanes can be taken out of rows without waiting; else it is compiled.

        Args:
            states: jobs and lanes of each row.
            num_lanes: that there will be.
        """
        if not self.in_background:
            return True
        counts = tuple(len(jax.tree.leaves(state)[0]) for state in states)
        if (counts, num_lanes) not in self._gathers:
            self._gathers[counts, num_lanes] = self.programs.ahead(
                device.gathered_of, states, np.zeros(num_lanes, np.int32)
            )
        return self._gathers[counts, num_lanes].done()

    def fewest(
        self, agent: Agent, wanted: int, running: int, num_lanes: int, state: Any
    ) -> int | None:
        """Lanes of the smallest program that is ready and has room for all runs, if any.

        What is wanted changes as runs end: another is begun only when none is being compiled.
        """
        if not self.in_background:
            return wanted
        ready = self._ready(agent, wanted, range(running, num_lanes), state)
        return min(ready, default=None)

    def roomiest(self, agent: Agent, wanted: int, counts: range, state: Any) -> int | None:
        """Lanes of the smallest program that is ready and has the lanes wanted, if any.

        Or of the largest with fewer. Others than `counts` are none; another is begun only when
        none of them is being compiled.
        """
        ready = self._ready(agent, wanted, counts, state)
        fitting = [count for count in ready if count >= wanted]
        return min(fitting) if fitting else max(ready, default=None)

    def _ready(self, agent: Agent, wanted: int, counts: range, state: Any) -> list[int]:
        """Those numbers of lanes for which there is a program; begins one that is wanted."""
        begun = {
            count: future
            for (whose, count), future in self._begun.items()
            if whose == agent and count in counts
        }
        ready = [count for count, future in begun.items() if future.done()]
        if wanted not in begun and len(ready) == len(begun):
            self.is_ready(agent, wanted, state)
        return ready
