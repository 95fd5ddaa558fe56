"""Compiled programs: how many there are, what they take, and how they are compiled.

A program that will be needed may be compiled in the background, from the shapes of its arguments;
the call that needs it then finds it in JAX's own cache.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from winkel.agents.base import Agent
from winkel.types import RunState

BACKGROUND_THREADS = 4
"""Programs compiled at a time in the background."""
COPIES = 3
"""Of the state of all lanes at once: before a chunk, after it, and one more while runs change."""
USABLE = 0.9
"""Share of the memory that may be planned with; the rest is lost between blocks."""
COMPILED = "/jax/core/compile/backend_compile_duration"
"""The event that JAX records for every compilation, in the thread that compiles."""
CUDA_GRAPHS: dict[str, str] = {
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONVOLUTION"
    ),
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}
"""What XLA records into CUDA graphs by default, and convolutions; branches run side by side."""


_compilations = Counter[int]()
"""Programs compiled so far, by thread."""


def _count_compilation(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event == COMPILED:
        _compilations[threading.get_ident()] += 1


jax.monitoring.register_event_duration_secs_listener(_count_compilation)


@dataclass
class Programs:
    """Calls programs, and counts compilations and time.

    Attributes:
        count: programs compiled so far, in the background too.
        compiling: seconds of the calls that compiled one.
        running: seconds of all other calls, waiting for their results included.
    """

    count: int = 0
    compiling: float = 0.0
    running: float = 0.0
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(
            BACKGROUND_THREADS, thread_name_prefix="compiling"
        ),
        repr=False,
    )

    def compile_in_background(self, function: Any, *arguments: Any, **named: Any) -> Future[None]:
        """Compile a program for arguments of which only shapes matter."""
        shapes = jax.tree.map(_shape_of, arguments)

        def compile_it() -> None:
            function.lower(*shapes, **named).compile()

        self.count += 1
        return self._threads.submit(compile_it)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a compiled function; its results are not waited for."""
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
        begin = time.perf_counter()
        fetched = jax.device_get(tree)
        self.running += time.perf_counter() - begin
        return fetched

    def wait(self, future: Future[Any]) -> Any:
        """Wait for what another thread gets from a device."""
        begin = time.perf_counter()
        result = future.result()
        self.running += time.perf_counter() - begin
        return result


def cuda_graphs() -> dict[str, str] | None:
    """Compiler options for programs that the host calls at every step; None for XLA's defaults.

    An update on images is some hundred short kernels, and launching them one by one takes the host
    longer than the GPU takes to run them. XLA can record them as a CUDA graph, which is one launch,
    but records convolutions only with these options. Only for NVIDIA's GPUs; users who set flags of
    command buffers decide for themselves. Recorded convolutions that come from JAX's persistent
    cache fail, so there are no options with that cache.
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


def lane_bytes(agent: Agent, shapes: RunState, params: Any) -> int:
    """Memory that one lane needs while it learns.

    Copies of its state, and the outputs of every layer of every network for a batch, there and
    back. The learner's matrices are counted with those of targets and optimizer, which makes up for
    the passes through targets and gradients. `Lanes` continues with fewer lanes where this is too
    low.

    Args:
        agent: the algorithm.
        shapes: of the state of one run.
        params: the setting of the environment.
    """
    state = sum(_bytes(leaf) for leaf in jax.tree.leaves((shapes, params)))
    widths = sum(
        leaf.size // leaf.shape[-2] for leaf in jax.tree.leaves(shapes.learner) if leaf.ndim >= 2
    )
    return COPIES * state + 2 * 4 * agent.config.batch_size * widths


def lanes_that_fit(bytes_of_lane: int) -> int | None:
    """How many lanes the first device has memory for, at least 1; None if it does not tell."""
    stats = jax.devices()[0].memory_stats() or {}
    limit = stats.get("bytes_limit")
    return None if limit is None else max(int(USABLE * limit) // bytes_of_lane, 1)


def out_of_memory(error: BaseException) -> bool:
    """Whether JAX failed for want of memory, when it compiled or when it ran."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def _shape_of(leaf: Any) -> Any:
    if not hasattr(leaf, "dtype"):
        return leaf
    sharding = getattr(leaf, "sharding", None)
    spread = isinstance(sharding, NamedSharding) and sharding.mesh.size > 1
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding if spread else None)


def _bytes(leaf: Any) -> int:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return int(np.prod(leaf.shape)) * leaf.dtype.itemsize
