"""How much memory lanes need and there is, found out before anything is allocated."""

import contextlib
import math
import os
from pathlib import Path
from typing import Any

import jax

from winkel.agents.base import Agent
from winkel.errors import InputError
from winkel.training.programs import World
from winkel.training.steps import Plan
from winkel.types import RunState

COPIES = 3
"""Copies of the states that exist at once: before a chunk, after it, one more while runs change."""
USABLE = 0.9
"""Share of the memory that may be planned with; the rest is lost to fragmentation."""
SIZES = "environment, batch_size, capacity, num_atoms, hidden, chunk_steps and evaluations"
"""What makes a lane large."""
STEP_BYTES = 64
"""Of the results of one step: facts about the episode, and metrics of the update."""

_CGROUPS = {
    "": (Path("/sys/fs/cgroup"), "memory.max"),
    "memory": (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
}
"""Folder and file of the limits of Linux, version 2 and 1, by the controllers of a group."""


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
