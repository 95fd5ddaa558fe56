"""Environments that JAX cannot compile, stepped in worker processes that never import it.

`names.parse` turns 'gym:CartPole-v1' into a maker; `pool.Pool` runs copies of what it makes.
"""

from winkel.simulators.base import Layout, Moved, Simulator, SimulatorDied
from winkel.simulators.pool import Moves, Pool

__all__ = ["Layout", "Moved", "Moves", "Pool", "Simulator", "SimulatorDied"]
