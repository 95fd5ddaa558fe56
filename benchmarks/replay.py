"""Claim: on a CPU, a step does not take longer with a larger replay.

    python benchmarks/replay.py [--env catch/0] [--capacities 2000 10000 60000] [--steps 1000]

Prints the time of a step of DQN with one small layer, two lanes, by the capacity of the replay;
then the same without `read_before_write`, where XLA copies the replay at every step, and the ratio.
Every chunk of 100 steps still copies it once.
"""

import argparse
import time

import jax

import winkel
from winkel.replay import uniform
from winkel.runs.spec import Options


def time_step(env, capacity, steps):
    settings = {"seeds": 2, "hidden": 16, "burn_in": 128, "capacity": capacity}
    options = Options(chunk_steps=100, snapshots=0)
    for length in (328, 128 + steps):  # the first call compiles
        begin = time.perf_counter()
        winkel.train(env, "dqn", steps=length, options=options, **settings)
    return (time.perf_counter() - begin) / length


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="catch/0")
    parser.add_argument("--capacities", type=int, nargs="+", default=[2000, 10000, 60000, 300000])
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    print(f"{options.env}, {jax.devices()[0].device_kind}, milliseconds a step")
    print(f"{'capacity':>9}  {'now':>7}  {'copied':>7}  ratio")
    tied = uniform.read_before_write
    for capacity in options.capacities:
        found = []
        for function in (tied, lambda priorities: 0):
            uniform.read_before_write = function
            jax.clear_caches()
            found.append(1e3 * time_step(options.env, capacity, options.steps))
        print(f"{capacity:>9,}  {found[0]:>7.2f}  {found[1]:>7.2f}  {found[1] / found[0]:>5.1f}")


if __name__ == "__main__":
    main()
