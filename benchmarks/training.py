"""Updates a second of an agent, where the time goes, and how far the limit of memory is.

    python benchmarks/training.py ENV [--agent pe_dqn] [--lanes 1 4] [--steps 50] [any field]

`docs/performance.md` explains the columns. The other scripts take their clock from here.
"""

import argparse
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp

from winkel.cli import parse_fields
from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.runs.spec import make_spec
from winkel.runs.train import check_run
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


def measure_row(spec, num_lanes, steps, bandwidth):
    """Measure so many lanes: the whole loop, the loop without learning, the environments alone."""

    def refuse(_):
        raise InputError(f"need fewer lanes: {num_lanes} of them do not fit into memory")

    task = spec.task
    check_run(spec, num_lanes)
    plans = [Plan(task.params, spec.hyper, Horizon(), seed=i) for i in range(num_lanes)]
    world = CompiledWorld(task.env)
    lanes = Lanes(spec.agent, world, plans, num_lanes, chunk_steps=steps, notice=refuse)
    whole = time_chunks(lanes.advance)
    jobs, state = lanes.row.inputs
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


def time_chunks(chunk):
    """Return the seconds of several calls, each waited for, after one that may compile."""
    jax.block_until_ready(chunk())
    times = []
    while len(times) < FEWEST_CHUNKS or (len(times) < MOST_CHUNKS and sum(times) < ENOUGH_SECONDS):
        begin = time.perf_counter()
        jax.block_until_ready(chunk())
        times.append(time.perf_counter() - begin)
    return times


@jax.jit
def step_environments(env, params, keys, indices):
    """Step environments under random actions; results are returned, so that no part is left out."""

    def lane(params, key):
        def step(state, index):
            key_action, key_step = jax.random.split(jax.random.fold_in(key, index))
            action = jax.random.randint(key_action, (), 0, env.num_actions)
            state, result = env.step(key_step, state, action, params)
            return state, jax.tree.map(jnp.sum, result)

        state, _ = env.reset(key, params)
        return jax.lax.scan(step, state, indices)

    return jax.vmap(lane)(params, keys)


def count_parameters(learners):
    """Count learned numbers of all lanes: Adam keeps two moments of each."""
    leaves = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(learners)
        if "opt_state" in jax.tree_util.keystr(path)
    ]
    return sum(leaf.size for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)) // 2


def copy_bandwidth():
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


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("env")
    parser.add_argument("--agent", default="pe_dqn")
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--steps", type=int, default=50)
    options, others = parser.parse_known_args(argv)
    task = make(options.env)
    spec = make_spec(task, options.agent, parse_fields(others))
    start_jax()
    bandwidth = copy_bandwidth()
    print(f"{options.agent} in {task.id}, {jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(_COLUMNS)
    for number in options.lanes:
        print(measure_row(spec, number, options.steps, bandwidth), flush=True)
    print(f"floor: Adam's {ADAM_BYTES} bytes a parameter, at {bandwidth / 1e9:,.1f} GB/s")


if __name__ == "__main__":
    main()
