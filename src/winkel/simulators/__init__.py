"""Environments that JAX cannot compile, stepped in worker processes that never import it.

`names.parse` turns 'gym:CartPole-v1' into a maker; `Pool` runs copies of what it makes.
"""

from winkel.simulators.base import Layout, Simulator, SimulatorDied, Step
from winkel.simulators.pool import Pool, StepBatch

__all__ = ["Layout", "Pool", "Simulator", "SimulatorDied", "Step", "StepBatch"]
