"""Claim: environments in JAX of other libraries train as fast as winkel's own, in the same lanes.

    python benchmarks/jax_environments.py [--lanes 8] [--envs ID ...] [any field of pe_dqn]

Updates a second of PE-DQN, milliseconds of a step of all lanes, and the share of that time that
the environments take alone. Observations differ in size, and so does the work of an update.
"""

import argparse
import math
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp

from training import step_environments, time_chunks
from winkel.runs.spec import make_spec, make_task
from winkel.runs.train import check_run
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes
from winkel.training.steps import Horizon, Plan

ENVS = (
    "catch/0",
    "cartpole/0",
    "gymnax:Breakout-MinAtar",
    "navix:Navix-DoorKey-8x8-v0",
    "craftax:Craftax-Classic-Symbolic-v1",
)


def measure(name, num_lanes, steps, fields):
    task = make_task(name)
    spec = make_spec(task, "pe_dqn", {"z_min": -1.0, "z_max": 1.0, **fields}, steps=10**6)
    check_run(spec, num_lanes)
    plans = [Plan(task.params, spec.hyper, Horizon(), seed=seed) for seed in range(num_lanes)]
    world = CompiledWorld(task.env)
    begin = time.perf_counter()
    lanes = Lanes(spec.agent, world, plans, num_lanes, chunk_steps=steps)
    lanes.advance()
    compiling = time.perf_counter() - begin
    whole = statistics.median(time_chunks(lanes.advance))
    jobs, _ = lanes.row.inputs
    alone = partial(step_environments, world.env, jobs.params, jobs.key, jnp.arange(steps))
    share = statistics.median(time_chunks(alone)) / whole
    inputs = math.prod(task.env.observation.shape)
    print(
        f"{name:38} {inputs:7,} {num_lanes * steps / whole:10,.0f} {1e3 * whole / steps:10.3g} "
        f"{share:13.1%} {compiling:9.0f}",
        flush=True,
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--capacity", type=int, default=2_000)
    parser.add_argument("--hidden", type=int, nargs="+", default=[512])
    parser.add_argument("--envs", nargs="+", default=ENVS)
    options = parser.parse_args(argv)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {options.lanes} lanes")
    print(f"{'environment':38} {'inputs':>7} {'updates/s':>10} {'ms a step':>10} ", end="")
    print(f"{'environments':>13} {'compiling':>9}")
    fields = {"hidden": tuple(options.hidden), "capacity": options.capacity}
    for name in options.envs:
        measure(name, options.lanes, options.steps, fields)


if __name__ == "__main__":
    main()
