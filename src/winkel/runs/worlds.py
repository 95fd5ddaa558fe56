"""What steps the environments of runs: worlds, lanes, and the memory that they need."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from winkel.agents import AGENTS, VARIANTS
from winkel.agents.base import Agent
from winkel.envs.base import Task
from winkel.envs.outside import SimulatorTask
from winkel.errors import InputError
from winkel.extensions import wrap_error
from winkel.projections import PROJECTIONS
from winkel.runs.spec import Options, RunSpec, first_difference
from winkel.simulators import StepBatch
from winkel.training import steps
from winkel.training.compaction import Compaction
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes
from winkel.training.memory import check_memory
from winkel.training.programs import Programs, World, start_jax
from winkel.training.simulated import SimulatorWorld
from winkel.training.steps import Plan, start_clock
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


def learner_shapes(spec: RunSpec) -> dict[str, Any]:
    """Shapes and types of a run's learner and clock alone, which do not need its environment."""
    learner = jax.eval_shape(lambda key: spec.agent.init(key, spec.hyper), jax.random.key(0))
    return {"learner": learner, "clock": jax.eval_shape(start_clock)}


def check_run(spec: RunSpec, num_lanes: int) -> None:
    """Raise unless the agent's functions fit together, and there is memory for so many runs."""
    _check_agent(spec)
    chunk = spec.options.chunk_steps
    check_memory(
        make_world(spec.task), spec.agent, spec.plan(), num_lanes, chunk, spec.record_bytes
    )


def _check_agent(spec: RunSpec) -> None:
    """Trace the functions of code from outside once, so that a mistake in it is one line."""
    agent, hyper = spec.agent, spec.hyper
    names = [spec.algorithm, *getattr(agent.config, "projections", ())]
    if all(name in (*AGENTS, *VARIANTS, *PROJECTIONS) for name in names):
        return

    def learn(run: RunState) -> tuple[Any, Any]:
        observations = run.obs[0] if run.first.ndim else run.obs
        estimates = agent.estimates(run.learner, observations, hyper)
        return steps.learn(agent, run, hyper, run.key)[0].learner, estimates

    try:
        before = state_shapes(spec)
        after, _ = jax.eval_shape(learn, before)
    except Exception as error:
        raise wrap_error(error, f"agent {spec.algorithm}") from error
    old, new = (
        {
            jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}"
            for path, leaf in jax.tree_util.tree_leaves_with_path(learner)
        }
        for learner in (before.learner, after)
    )
    if old != new:
        path, theirs, ours = first_difference(new, old)
        raise InputError(
            f"need the learner that update of {spec.algorithm} returns in the form of init's: "
            f"learner{path} is {theirs} in init's, {ours} in update's"
        )
