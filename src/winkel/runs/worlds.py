"""What steps the environments of runs: worlds, lanes, and the memory that they need."""

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
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
from winkel.training.lanes import SIZES, Lanes
from winkel.training.programs import Programs, World, start_jax
from winkel.training.simulated import SimulatorWorld
from winkel.training.steps import Plan, start_clock
from winkel.types import RunState

COPIES = 3
"""Copies of the states that exist at once: before a chunk, after it, one more while runs change."""
USABLE = 0.9
"""Share of the memory that may be planned with; the rest is lost to fragmentation."""
STEP_BYTES = 64
"""Of the results of one step: facts about the episode, and metrics of the update."""

_CGROUPS = {
    "": (Path("/sys/fs/cgroup"), "memory.max"),
    "memory": (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
}
"""Folder and file of the limits of Linux, version 2 and 1, by the controllers of a group."""

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
    spec: RunSpec,
    plans: Sequence[Plan],
    num_lanes: int,
    options: Options,
    *,
    notice: Callable[[str], None] = lambda _: None,
    programs: Programs | None = None,
    watch: Watch | None = None,
) -> Lanes:
    """Make lanes for runs with the agent and the shapes of one of them, `spec`."""
    rearrange = None
    if options.compact_lanes is not None or options.freeze_bonus:
        rearrange = Compaction(
            options.compact_lanes, options.freeze_bonus, options.compile_in_background
        ).rearrange
    world = make_world(spec.task, notice, watch)
    check_memory(world, spec.agent, plans[0], num_lanes, options.chunk_steps)
    return Lanes(
        spec.agent,
        world,
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


def check_memory(
    world: World, agent: Agent, plan: Plan, num_lanes: int, num_steps: int, other_bytes: int = 0
) -> None:
    """Raise unless there is memory for so many lanes of a run with chunks of so many steps.

    On a device that says how much it has, one lane must fit: `Lanes` continues with fewer lanes.
    `other_bytes` are those of other arrays of a lane.
    """
    need = lane_bytes(agent, world.shapes(agent, plan), plan.params) + other_bytes
    need += STEP_BYTES * max(num_steps, agent.config.burn_in)
    limit = device_memory()
    if limit is None:
        lanes = f"{num_lanes:,} lane{'s' * (num_lanes > 1)}"
        require_memory(need * num_lanes, f"{lanes} with this {SIZES}")
    else:
        require_memory(need, f"a lane with this {SIZES}", limit)


def require_memory(need: int, what: str, limit: int | None = None) -> None:
    """Raise unless something fits into a memory, by default that of this machine."""
    limit = machine_memory() if limit is None else limit
    if need > limit:
        raise InputError(
            f"need about {show_bytes(need)} of memory for {what}, got {show_bytes(limit)}"
        )


def lane_bytes(agent: Agent, shapes: RunState, params: Any) -> int:
    """Memory that one lane needs while it learns.

    Copies of its state, and four bytes for each output of every layer of every network for a batch,
    forward and backward. Matrices of target networks and of the optimizer are counted like those of
    networks, which roughly covers the passes through target networks. `Lanes` continues with fewer
    lanes where this is too low.
    """
    state = sum(array_bytes(leaf) for leaf in jax.tree.leaves((shapes, params)))
    widths = sum(
        math.prod(leaf.shape) // leaf.shape[-2]
        for leaf in jax.tree.leaves(shapes.learner)
        if leaf.ndim >= 2
    )
    return COPIES * state + 2 * 4 * agent.config.batch_size * widths


def lanes_that_fit(bytes_of_lane: int) -> int | None:
    """How many lanes the first device has memory for, at least 1; None if unknown."""
    limit = device_memory()
    return None if limit is None else max(int(USABLE * limit) // bytes_of_lane, 1)


def device_memory() -> int | None:
    """Memory of the first device; None if unknown."""
    return (jax.devices()[0].memory_stats() or {}).get("bytes_limit")


def machine_memory() -> int:
    """Memory of this machine, or of the container or job that this process is part of."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers in _CGROUPS:
                root, name = _CGROUPS[controllers]
                folder = root / group.lstrip("/")
                for place in (folder, *folder.parents):
                    with contextlib.suppress(OSError, ValueError):  # no such file, or no limit
                        limits.append(int((place / name).read_text()))
    return min(limits)


def array_bytes(leaf: Any) -> int:
    """Memory of an array, or of one with that shape and type."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return math.prod(leaf.shape) * leaf.dtype.itemsize


def show_bytes(count: int) -> str:
    """Write a number of bytes for a reader."""
    return f"{count / 2**20:,.0f} MiB"
