"""Programs over lanes, and the memory that lanes need.

Arrays have a leading axis of lanes. A program that is compiled in the background is found in JAX's
own cache by the call that needs it.
"""

import contextlib
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from winkel.agents.base import Agent
from winkel.errors import InputError
from winkel.training.steps import Job
from winkel.types import Clock, RunState

BACKGROUND_THREADS = 4
"""Programs compiled at a time in the background."""
CUDA_GRAPHS: dict[str, str] = {
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONVOLUTION"
    ),
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}
"""What XLA records into CUDA graphs by default, and convolutions; branches run side by side."""
COPIES = 3
"""Copies of the states that exist at once: before a chunk, after it, one more while runs change."""
STEP_BYTES = 64
"""Bytes of the results of one step: facts about the episode, and metrics of the update."""
SIZES = "environment, batch_size, capacity, num_atoms, hidden, chunk_steps and evaluations"
"""What makes a lane large."""
CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
)
"""Folder and file of the limits of Linux, version 2 and 1."""

Arrays = dict[str, np.ndarray]
ChunkResults = tuple[Clock, Arrays, Arrays]
"""Results of a chunk, on the host: clocks of all lanes; a table of the episodes that ended, with
their `lane`; the metrics of the updates `[lanes, updates]`, empty without learning."""

_compilations = Counter[int]()
"""Programs compiled so far, by thread."""


def _count_compilation(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event == "/jax/core/compile/backend_compile_duration":  # in the thread that compiles
        _compilations[threading.get_ident()] += 1


jax.monitoring.register_event_duration_secs_listener(_count_compilation)


@dataclass
class Programs:
    """Calls programs; counts those compiled (in the background too), and seconds of calls.

    Calls that compiled a program count as `compiling`, all others as `running`.
    """

    count: int = 0
    compiling: float = 0.0
    running: float = 0.0
    _threads: ThreadPoolExecutor = field(
        default_factory=partial(ThreadPoolExecutor, BACKGROUND_THREADS, "compiling"), repr=False
    )

    def compile_in_background(self, function: Any, *arguments: Any, **named: Any) -> Future[Any]:
        """Compile a program for the shapes of these arguments."""
        shapes = jax.tree.map(_shape_of, arguments)
        self.count += 1
        return self._threads.submit(lambda: function.lower(*shapes, **named).compile())

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function that is compiled or waits for a device, and count its time."""
        thread, begin = threading.get_ident(), time.perf_counter()
        before = _compilations[thread]
        result = function(*arguments, **named)
        seconds = time.perf_counter() - begin
        if _compilations[thread] > before:
            self.count, self.compiling = self.count + 1, self.compiling + seconds
        else:
            self.running += seconds
        return result

    def fetch(self, tree: Any) -> Any:
        """Wait for results and copy them to the host."""
        return self.call(jax.device_get, tree)


@dataclass
class Row:
    """Lanes that one call of one program advances; `states` is None before the first run."""

    agent: Agent
    """The algorithm, or the same with a frozen bonus."""
    run_of: list[int | None]
    """Number of the run of each lane, None where it is idle: that repeats the job of another."""
    jobs: Any = None
    states: Any = None
    clock: Any = None
    """The clocks of all lanes, on the host."""

    @property
    def num_lanes(self) -> int:
        """Number of lanes, with idle ones."""
        return len(self.run_of)

    @property
    def running(self) -> dict[int, int]:
        """Lane of each run under way."""
        return {run: lane for lane, run in enumerate(self.run_of) if run is not None}

    @property
    def inputs(self) -> tuple[Job, RunState]:
        """Jobs and states, as programs take them."""
        return self.jobs, self.states


def per_lane(function: Callable[..., Any], static: Sequence[str] = (), **options: Any) -> Any:
    """Turn a function of one lane into a compiled program over all lanes.

    The program takes the agent, the environment and arrays of all lanes, and by name the `static`
    arguments. `options` are those of `jax.jit`.
    """

    def program(agent: Any, env: Any, *arrays: Any, **named: Any) -> Any:
        return jax.vmap(lambda *one: function(agent, env, *one, **named))(*arrays)

    program.__name__ = function.__name__.strip("_")
    return jax.jit(program, static_argnames=("agent", *static), **options)


def resized(tree: Any, num_lanes: int) -> Any:
    """Shapes and types of the same arrays with another number of lanes."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((num_lanes, *x.shape[1:]), x.dtype), tree)


@jax.jit
def take_lanes(tree: Any, which: Int[Array, "*N"] | int) -> Any:
    """One of many lanes, or several."""
    return jax.tree.map(lambda x: x[which], tree)


@jax.jit
def replace_lane(tree: Any, lane: Int[Array, ""] | int, one: Any) -> Any:
    """Many lanes, with another one in its place."""
    return jax.tree.map(lambda stacked, x: stacked.at[lane].set(x), tree, one)


@jax.jit
def where_lanes(which: Bool[Array, "S"], yes: Any, no: Any) -> Any:
    """Take a lane from `yes` where `which` is true, else from `no`."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(which.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, yes, no)


def cuda_graphs() -> dict[str, str] | None:
    """Compiler options for programs that the host calls at every step; None for XLA's defaults.

    An update on images is some hundred short kernels, and launching them one by one takes the host
    longer than the GPU takes to run them. XLA can record them as a CUDA graph, which is one launch,
    but records convolutions only with these options. Only for NVIDIA's GPUs and versions of XLA
    that know them; users who set flags of command buffers decide for themselves. Recorded
    convolutions that come from JAX's persistent cache fail: no options with that cache.
    """
    recorded = (
        jax.default_backend() == "gpu"
        and "cuda" in jax.devices()[0].client.platform_version.lower()
        and "command_buffer" not in os.environ.get("XLA_FLAGS", "")
        and not getattr(jax.config, "jax_compilation_cache_dir", None)
        and knows_cuda_graphs()
    )
    return CUDA_GRAPHS if recorded else None


def knows_cuda_graphs() -> bool:
    """Whether this version of XLA has the options."""
    try:
        jax.jit(lambda: 0, compiler_options=CUDA_GRAPHS).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def start_jax() -> None:
    """Start JAX; raise if it cannot, as without the kind of device that JAX_PLATFORMS names."""
    try:
        jax.devices()
    except Exception as error:  # a failed assertion if the driver of a GPU is missing
        reason = " ".join(str(error).split()) or "there is no such device"
        asked = os.environ.get("JAX_PLATFORMS", "")
        raise InputError(f"cannot start JAX with JAX_PLATFORMS={asked!r}: {reason}") from error


def out_of_memory(error: BaseException) -> bool:
    """Whether JAX failed for want of memory, when it compiled or when it ran."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def check_memory(
    agent: Agent,
    shapes: RunState,
    params: Any,
    num_lanes: int,
    num_steps: int,
    other_bytes: int = 0,
) -> None:
    """Raise unless there is memory for so many lanes of a run with chunks of so many steps.

    On a device that says how much it has, one lane must fit: `Lanes` continues with fewer lanes.
    `other_bytes` are those of other arrays of a lane, beside those that `lane_bytes` counts.
    """
    need = lane_bytes(agent, shapes, params) + other_bytes
    need += STEP_BYTES * max(num_steps, agent.config.burn_in)
    if (limit := device_memory()) is not None:
        require_memory(need, f"a lane with this {SIZES}", limit)
    else:
        lanes = f"{num_lanes:,} lane{'s' * (num_lanes > 1)}"
        require_memory(need * num_lanes, f"{lanes} with this {SIZES}")


def require_memory(need: int, what: str, limit: int | None = None) -> None:
    """Raise unless so many bytes fit into a memory, by default that of this machine."""
    limit = machine_memory() if limit is None else limit
    if need > limit:
        wanted, there = (f"{count / 2**20:,.0f} MiB" for count in (need, limit))
        raise InputError(f"need about {wanted} of memory for {what}, got {there}")


def lane_bytes(agent: Agent, shapes: RunState, params: Any) -> int:
    """Memory that one lane needs while it learns.

    Copies of its state, and four bytes for each output of every layer of every network for a batch,
    forward and backward. Matrices of target networks and of the optimizer are counted like those of
    networks, which roughly covers the passes through target networks.
    """
    widths = sum(
        math.prod(leaf.shape) // leaf.shape[-2]
        for leaf in jax.tree.leaves(shapes.learner)
        if leaf.ndim >= 2
    )
    state = sum(map(array_bytes, jax.tree.leaves((shapes, params))))
    return COPIES * state + 2 * 4 * agent.config.batch_size * widths


def device_memory() -> int | None:
    """Memory of the first device; None if unknown."""
    return (jax.devices()[0].memory_stats() or {}).get("bytes_limit")


def machine_memory() -> int:
    """Memory of this machine, or of the container or job that this process is part of."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            root, name = CGROUPS[controllers == "memory"]
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


def _shape_of(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf
