"""Simulators and the accelerator at once: what each does alone, and what the loop of both does.

    python benchmarks/loops.py --env doom:my-way-home/dense --num-envs 32 --seconds 20

Frames a second of simulation alone (random actions), of learning alone (updates one after the other
from a replay that is filled, times the frames of an update), and of the whole loop; the last as a
share of the slower of the first two. Settings of the agent are the preset's, with those given here:
--set batch_size=64 capacity=10000. With --orders, the loop in the orders that the host could work
in, and the ratio of each to the first.
"""

import argparse
import time

import jax
import numpy as np

from winkel.runs.spec import configure
from winkel.runs.train import preset_fields, task_of
from winkel.simulators import StepBatch
from winkel.training.lanes import Lanes, Plan
from winkel.training.simulated import SimulatorWorld
from winkel.training.steps import Horizon
from winkel.types import RunState


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--env", default="doom:my-way-home/dense")
    parser.add_argument("--agent", default="pe_dqn")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--orders", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE")
    options = parser.parse_args()
    fields = preset_fields(options.env, options.agent, None) | dict(map(setting, options.set))
    task = task_of(
        options.env, options.agent, fields, num_envs=options.num_envs, workers=options.workers
    )
    configured = configure(options.agent, fields, task)
    plan = Plan((), configured.hyper, Horizon(steps=10_000_000), seed=0)
    world = SimulatorWorld(lambda seeds: task.pool(seeds, print), task.num_envs)
    lanes = Lanes(configured.agent, world, [plan], num_lanes=1)
    try:
        begin = time.perf_counter()
        while not lanes.advance()[0].updates:
            pass
        print(f"burn-in and compilation: {time.perf_counter() - begin:.1f} s")
        if options.orders:
            compare_orders(lanes, world, options)
            return
        whole = rate(lambda: lanes.advance(), lanes.chunk_steps, options)
        learning = rate(lambda: learn(lanes, world), 1, options)
        simulation = rate(lambda: simulate(world), 1, options)
    finally:
        lanes.close()
    slower = min(simulation, learning)
    print(f"simulation alone  {simulation:10,.0f} frames/s")
    print(f"learning alone    {learning:10,.0f} frames/s, {1e3 * task.num_envs / learning:.2f} ms")
    print(f"the whole loop    {whole:10,.0f} frames/s, {whole / slower:.0%} of the slower")
    print(f"10 M frames in {1e7 / whole / 60:.1f} minutes")
    stats = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        print(f"peak memory {stats['peak_bytes_in_use'] / 2**30:.2f} GiB")


def setting(text: str) -> tuple[str, int | float | str]:
    name, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def rate(step, moves: int, options: argparse.Namespace) -> float:
    """Frames a second."""
    step()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < options.seconds:
        step()
        count += 1
    return count * moves * options.num_envs / (time.perf_counter() - begin)


def learn(lanes: Lanes, world: SimulatorWorld) -> None:
    row = lanes.rows[0]
    row.lanes = world._learn(row.agent, row.jobs, row.lanes)
    jax.block_until_ready(row.lanes.clock)


def compare_orders(lanes: Lanes, world: SimulatorWorld, options: argparse.Namespace) -> None:
    """Learning launched after the actions are sent, before they are fetched, or beside that."""

    def after(agent, jobs, runs: RunState, learning: bool) -> tuple[RunState, StepBatch]:
        world._send(world._decided[0].action)
        runs = world._learn(agent, jobs, runs) if learning else runs
        return runs, world.pool.step_wait()

    def before(agent, jobs, runs: RunState, learning: bool) -> tuple[RunState, StepBatch]:
        runs = world._learn(agent, jobs, runs) if learning else runs
        world._send(world._decided[0].action)
        return runs, world.pool.step_wait()

    base, beside = None, world._move
    for _ in range(2):
        for name, order in (("after", after), ("before", before), ("beside", beside)):
            world._move = order
            found = rate(lambda: lanes.advance(), lanes.chunk_steps, options)
            base = base or found
            milliseconds = 1e3 * options.num_envs / found
            print(f"{name:8s}{milliseconds:7.2f} ms a move, ratio {found / base:.2f}", flush=True)


def simulate(world: SimulatorWorld) -> None:
    pool = world.pool
    pool.step(np.random.default_rng().integers(pool.num_actions, size=len(pool)))


if __name__ == "__main__":
    main()
