"""`winkel bench`: updates a second of an agent, where the time goes, how far the memory's limit is.

`docs/performance.md` explains the columns.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import tyro
from jaxtyping import Array, Int

from winkel.commands.options import EnvName, check_fields
from winkel.commands.terminal import say
from winkel.envs.registry import make
from winkel.errors import InputError, require_integer
from winkel.runs.spec import RunSpec, make_spec
from winkel.runs.worlds import check_run
from winkel.training.compiled import CompiledWorld, advance
from winkel.training.lanes import Lanes
from winkel.training.programs import start_jax
from winkel.training.steps import Horizon, Plan

FEWEST_CHUNKS, MOST_CHUNKS, ENOUGH_SECONDS = 3, 10, 2.0
"""Time at least the first number of chunks, then more until the seconds are spent."""
ADAM_BYTES = 7 * 4
"""Bytes that a step of Adam moves for each parameter: reads p, g, m, v and writes p, m, v."""
_COLUMNS = (
    "lanes  updates/s  ms a step   range of chunks  not learning  environments  floor ms  × floor"
)


@dataclass(frozen=True, kw_only=True)
class BenchCommand:
    """Measure how fast an agent trains. Any field of the agent is an option: --hidden 64."""

    env: EnvName
    """Id of an environment."""
    agent: str = "pe_dqn"
    """A name from `winkel list agents`."""
    lanes: tuple[int, ...] = (1, 4)
    """Numbers of runs side by side; a row for each."""
    steps: int = 50
    """Steps of a chunk."""
    fields: tyro.conf.Suppress[dict[str, Any]] = field(default_factory=dict)
    """Fields of the agent, from the options that tyro does not know."""

    def run(self) -> None:
        """Measure and print a row for each number of lanes."""
        for number in (self.steps, *self.lanes):
            require_integer("steps and lanes", number, at_least=1)
        check_fields(self, self.agent)
        task = make(self.env)
        spec = make_spec(task, self.agent, self.fields)
        start_jax()
        bandwidth = copy_bandwidth()
        say(f"{self.agent} in {task.id}, {jax.devices()[0].device_kind}, jax {jax.__version__}")
        say(_COLUMNS)
        for number in self.lanes:
            say(measure_row(spec, number, self.steps, bandwidth))
        say(f"floor: Adam's {ADAM_BYTES} bytes a parameter, at {bandwidth / 1e9:,.1f} GB/s")


def measure_row(spec: RunSpec, num_lanes: int, steps: int, bandwidth: float) -> str:
    """Measure so many lanes: the whole loop, the loop without learning, the environments alone."""

    def refuse(_: str) -> NoReturn:
        raise InputError(f"need fewer lanes: {num_lanes} of them do not fit into memory")

    task = spec.task
    check_run(spec, num_lanes)
    plans = [Plan(task.params, spec.hyper, Horizon(), seed=i) for i in range(num_lanes)]
    world = CompiledWorld(task.env)
    lanes = Lanes(spec.agent, world, plans, num_lanes, chunk_steps=steps, notice=refuse)
    whole = time_chunks(lanes.advance)
    jobs, state = lanes.rows[0].state
    acting, environment = (
        statistics.median(time_chunks(chunk))
        for chunk in (
            partial(advance, lanes.agent, world.env, jobs, state, num_steps=steps, learning=False),
            partial(step_environments, world.env, jobs.params, jobs.key, jnp.arange(steps)),
        )
    )
    median = statistics.median(whole)
    milliseconds, fastest, slowest = (1e3 * t / steps for t in (median, min(whole), max(whole)))
    floor = 1e3 * ADAM_BYTES * count_parameters(state.learner) / bandwidth
    return (
        f"{num_lanes:5}  {num_lanes * steps / median:9,.0f}  {milliseconds:9.3g}  "
        f"{f'{fastest:.3g} to {slowest:.3g}':>16}  {acting / median:12.1%}  "
        f"{environment / median:12.2%}  {floor:8.2g}  {milliseconds / floor:7.1f}"
    )


def time_chunks(chunk: Callable[[], Any]) -> list[float]:
    """Return the seconds of several calls, each waited for, after one that may compile."""
    jax.block_until_ready(chunk())
    times: list[float] = []
    while len(times) < FEWEST_CHUNKS or (
        len(times) < MOST_CHUNKS and math.fsum(times) < ENOUGH_SECONDS
    ):
        begin = time.perf_counter()
        jax.block_until_ready(chunk())
        times.append(time.perf_counter() - begin)
    return times


@jax.jit
def step_environments(env: Any, params: Any, keys: Array, indices: Int[Array, " T"]) -> Any:
    """Step environments under random actions; results are returned, so that no part is left out."""

    def lane(params: Any, key: Array) -> Any:
        def step(state: Any, index: Array) -> tuple[Any, Any]:
            key_action, key_step = jax.random.split(jax.random.fold_in(key, index))
            action = jax.random.randint(key_action, (), 0, env.num_actions)
            state, result = env.step(key_step, state, action, params)
            return state, jax.tree.map(jnp.sum, result)

        state, _ = env.reset(key, params)
        return jax.lax.scan(step, state, indices)

    return jax.vmap(lane)(params, keys)


def count_parameters(learners: Any) -> int:
    """Count learned numbers of all lanes: Adam keeps two moments of each."""
    leaves = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(learners)
        if "opt_state" in jax.tree_util.keystr(path)
    ]
    return sum(leaf.size for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)) // 2


def copy_bandwidth() -> float:
    """Measure bytes a second that a pass over a large array in place reads and writes."""
    size = 2**26 if jax.default_backend() == "cpu" else 2**28
    add_one = jax.jit(lambda x: x + 1.0, donate_argnums=0)
    array = jax.block_until_ready(add_one(jnp.zeros(size, jnp.float32)))
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        for _ in range(4):
            array = add_one(array)
        jax.block_until_ready(array)
        times.append(time.perf_counter() - begin)
    return 4 * 2 * array.nbytes / statistics.median(times)
