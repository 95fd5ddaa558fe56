"""Who steps the environments of a task: the one place that tells simulators from JAX."""

from collections.abc import Callable

from winkel.envs.simulator_task import SimulatorTask
from winkel.envs.task import Task
from winkel.runs.spec import Configured
from winkel.simulators import StepBatch
from winkel.training.compiled import CompiledWorld
from winkel.training.simulated import SimulatorWorld
from winkel.training.steps import Horizon
from winkel.training.world import World
from winkel.types import RunState


def world_of(
    task: Task,
    notice: Callable[[str], None] = lambda _: None,
    watch: Callable[[StepBatch, int], None] | None = None,
) -> World:
    """The world of a task.

    Args:
        task: the environment.
        notice: called with a sentence when a simulator dies.
        watch: called with every step of simulators, and how many steps each run has made.
    """
    if isinstance(task, SimulatorTask):
        return SimulatorWorld(lambda seeds: task.pool(seeds, notice), task.num_envs, watch)
    return CompiledWorld(task.env)


def shapes_of(task: Task, configured: Configured, horizon: Horizon) -> RunState:
    """Shapes and types of the state of a run, without computing it."""
    return world_of(task).shapes(configured.agent, task.params, configured.hyper)
