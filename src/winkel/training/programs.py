"""What programs cost: how many are compiled, how long that takes, how much memory they need.

A program that will be needed may be compiled in the background, from the shapes of what it gets:
calling it then finds it in JAX's own cache.

What one lane needs is read off the shapes of its state. What no shape tells, the space that a step
works in, is estimated; `Lanes` gets along with fewer lanes where the estimate was too low.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from winkel.agents.base import Agent
from winkel.training import device
from winkel.training.steps import Horizon

COPIES = 3
"""Of all lanes' state at once: before a chunk, after it, and one more while runs are exchanged."""
BACKGROUND = 4
"""Programs compiled at a time in the background."""
USABLE = 0.9
"""Share of the memory that may be planned with; the rest is lost between blocks."""


@dataclass
class Programs:
    """Counts what is compiled.

    Attributes:
        count: programs compiled so far.
        compiling: seconds of the calls that compiled one.
        running: seconds of all other calls, waiting for their results included.
        background: seconds of compiling meanwhile, which nobody waited for.
    """

    count: int = 0
    compiling: float = 0.0
    running: float = 0.0
    background: float = 0.0
    _workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(BACKGROUND, thread_name_prefix="compiling"),
        repr=False,
    )

    def ahead(self, function: Any, *arguments: Any, **named: Any) -> Future[None]:
        """Compile a program in the background, for arguments of which only shapes matter."""
        shapes = jax.tree.map(_shape_of, arguments)

        def compile_it() -> None:
            begin = time.perf_counter()
            function.lower(*shapes, **named).compile()
            self.background += time.perf_counter() - begin

        return self._workers.submit(compile_it)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What a compiled function returns, not waited for."""
        size = getattr(function, "_cache_size", lambda: 0)
        before, begin = size(), time.perf_counter()
        result = function(*arguments, **named)
        seconds = time.perf_counter() - begin
        if size() > before:
            self.count, self.compiling = self.count + 1, self.compiling + seconds
        else:
            self.running += seconds
        return result

    def fetch(self, tree: Any) -> Any:
        """Results on the host, as soon as they are there."""
        begin = time.perf_counter()
        fetched = jax.device_get(tree)
        self.running += time.perf_counter() - begin
        return fetched

    def wait(self, doing: Future[Any]) -> Any:
        """What another thread gets from a device, as soon as it is there."""
        begin = time.perf_counter()
        got = doing.result()
        self.running += time.perf_counter() - begin
        return got


def lane_bytes(agent: Agent, env: Any, params: Any, hyper: Any) -> int:
    """Memory that one lane needs while it learns.

    Copies of its state, and the outputs of every layer of every network for a batch, there and
    back: the learner's matrices are counted with those of targets and optimiser, which makes up
    for the passes through targets and gradients.
    """
    lane = device.lane_shapes(agent, env, params, hyper, Horizon())
    state = sum(_bytes(leaf) for leaf in jax.tree.leaves((lane, params)))
    widths = sum(
        leaf.size // leaf.shape[-2] for leaf in jax.tree.leaves(lane.run.learner) if leaf.ndim >= 2
    )
    return COPIES * state + 2 * 4 * agent.config.batch_size * widths


def lanes_that_fit(bytes_of_lane: int) -> int | None:
    """How many lanes the first device has memory for, at least 1; None where it does not tell."""
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
