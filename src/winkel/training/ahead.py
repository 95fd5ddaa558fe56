"""Programs that lanes will change to, compiled while they go on with the one that they have.

Lanes change when runs have ended (to a program of fewer lanes) and when agents have settled (to
that of the agent at rest).
"""

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import jax

from winkel.agents.base import Agent
from winkel.training import device
from winkel.training.mesh import described
from winkel.training.programs import Programs

WORTH_COMPILING = 50_000
"""Steps that the longest run must still have for a program of fewer lanes to be worth its time."""
WORTH_MOVING = 10_000
"""The same where it is compiled in the background, while lanes go on as they are."""


def fewer_lanes(num_lanes: int, running: int, unit: int, at_once: bool) -> int:
    """Lanes for the runs under way, in steps of `unit`; as many as there are if too few are idle.

    Half of them must be where all wait for the compilation, an eighth where nobody does.
    """
    needed = -(-running // unit) * unit
    return needed if num_lanes - needed >= num_lanes / (2 if at_once else 8) else num_lanes


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

    def is_ready(self, agent: Agent, num_lanes: int, state: Any) -> bool:
        """Whether lanes can move without waiting; where not, compiling has begun.

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

    def fewest(
        self, agent: Agent, wanted: int, running: int, num_lanes: int, state: Any
    ) -> int | None:
        """Lanes of the smallest program that is ready and has room for all runs, if any.

        What is wanted changes as runs end: another is begun only when none is being compiled.
        """
        if not self.in_background:
            return wanted
        fitting = {
            count: begun
            for (whose, count), begun in self._begun.items()
            if whose == agent and running <= count < num_lanes
        }
        ready = [count for count, begun in fitting.items() if begun.done()]
        if wanted not in fitting and len(ready) == len(fitting):
            self.is_ready(agent, wanted, state)
        return min(ready, default=None)
