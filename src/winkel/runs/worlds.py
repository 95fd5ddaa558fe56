"""What steps the environments of runs: worlds, lanes, and the memory that they need."""

from collections.abc import Callable, Sequence

from winkel.agents.base import Agent
from winkel.envs.base import Task
from winkel.envs.simulator_task import SimulatorTask
from winkel.runs.spec import Options, RunSpec
from winkel.simulators import StepBatch
from winkel.training.compaction import Compaction
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes
from winkel.training.memory import check_memory
from winkel.training.programs import Programs, World, start_jax
from winkel.training.simulated import SimulatorWorld
from winkel.training.steps import Plan
from winkel.types import RunState

Watch = Callable[[StepBatch, int], None]
"""Called with every step of simulators, and how many steps each run has made."""


def make_world(
    task: Task, notice: Callable[[str], None] = lambda _: None, watch: Watch | None = None
) -> World:
    """Make what steps the environments of a task: simulators, or an environment in JAX."""
    start_jax()
    if isinstance(task, SimulatorTask):
        return SimulatorWorld(lambda seeds: task.pool(seeds, notice), task.num_envs, watch)
    return CompiledWorld(task.env)


def make_lanes(
    agent: Agent,
    task: Task,
    plans: Sequence[Plan],
    num_lanes: int,
    options: Options,
    notice: Callable[[str], None] = lambda _: None,
    programs: Programs | None = None,
    watch: Watch | None = None,
) -> Lanes:
    """Make lanes for runs of one agent and one shape of environment."""
    rearrange = None
    if options.compact_lanes is not None or options.freeze_bonus:
        rearrange = Compaction(
            options.compact_lanes, options.freeze_bonus, options.compile_in_background
        ).rearrange
    return Lanes(
        agent,
        make_world(task, notice, watch),
        plans,
        num_lanes,
        options.chunk_steps,
        rearrange=rearrange,
        notice=notice,
        programs=programs or Programs(),
        devices=options.devices,
    )


def state_shapes(spec: RunSpec) -> RunState:
    """Shapes and types of a run's state, without computing it."""
    return make_world(spec.task).shapes(spec.agent, spec.plan())


def check_run_memory(spec: RunSpec, num_lanes: int) -> None:
    """Raise unless there is memory for so many runs like this one, side by side."""
    world, steps = make_world(spec.task), spec.options.chunk_steps
    check_memory(world, spec.agent, spec.plan(), num_lanes, steps, spec.record_bytes)
