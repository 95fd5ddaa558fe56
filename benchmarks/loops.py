"""Claim: with simulators the whole loop is as fast as the slower of simulation and learning.

    python benchmarks/loops.py --env doom:my-way-home/dense --num-envs 32 --seconds 20
                               [--set batch_size=64 capacity=10000]

Frames a second of simulation alone (random actions), of learning alone (updates one after the other
from a replay that is filled, times the frames of an update), and of the whole loop; the last as a
share of the slower of the first two. Settings of the agent are the preset's, but for `--set`.
"""

import argparse
import time
from functools import partial

import jax
import numpy as np

from winkel.cli import parse_fields
from winkel.runs.presets import preset_fields
from winkel.runs.spec import configure, make_task
from winkel.training.lanes import Lanes
from winkel.training.simulated import SimulatorWorld, blank_metrics, step_programs
from winkel.training.steps import Horizon, Plan


def frame_rate(step, frames, seconds):
    step()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        step()
        count += 1
    return count * frames / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="doom:my-way-home/dense")
    parser.add_argument("--agent", default="pe_dqn")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE")
    options = parser.parse_args()
    given = parse_fields([f"--{field}" for field in options.set])
    fields = preset_fields(options.env, options.agent, None) | given
    task = make_task(options.env, num_envs=options.num_envs, workers=options.workers)
    agent, hyper = configure(options.agent, fields, task)
    plan = Plan((), hyper, Horizon(steps=10_000_000), seed=0)
    world = SimulatorWorld(partial(task.pool, notice=print), task.num_envs)
    lanes = Lanes(agent, world, [plan], num_lanes=1)
    rng = np.random.default_rng(0)

    def learn():
        nonlocal metrics
        row.states, metrics = program(row.agent, (), row.jobs, row.states, metrics)
        jax.block_until_ready(row.states.clock)

    def simulate():
        world.pool.step(rng.integers(world.pool.num_actions, size=len(world.pool)))

    try:
        begin = time.perf_counter()
        while not lanes.advance()[0].updates:
            pass
        print(f"burn-in and compilation: {time.perf_counter() - begin:.1f} s")
        chunk = lanes.chunk_steps * task.num_envs
        whole = frame_rate(lanes.advance, chunk, options.seconds)
        row, (program, _) = lanes.row, step_programs()
        metrics = blank_metrics(row.agent, *row.inputs, lanes.chunk_steps)
        learning = frame_rate(learn, task.num_envs, options.seconds)
        simulation = frame_rate(simulate, task.num_envs, options.seconds)
    finally:
        lanes.close()
    print(f"simulation alone  {simulation:10,.0f} frames/s")
    print(f"learning alone    {learning:10,.0f} frames/s, {1e3 * task.num_envs / learning:.2f} ms")
    share = whole / min(simulation, learning)
    print(f"the whole loop    {whole:10,.0f} frames/s, {share:.0%} of the slower")
    print(f"10 M frames in {1e7 / whole / 60:.1f} minutes")


if __name__ == "__main__":
    main()
