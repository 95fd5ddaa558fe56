"""Updates a second by the number of lanes: how much of an accelerator one program fills.

    python benchmarks/lanes.py --agents pe_dqn --env catch/0 --lanes 1 16 64 256 [--steps 100]

Two chunks are run; the second is timed. Compilation is printed apart.
"""

import argparse
import time

import jax

from winkel.envs.registry import make
from winkel.experiments.config import configure
from winkel.training.lanes import Lanes, Plan
from winkel.training.steps import Horizon


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", nargs="+", default=["pe_dqn"])
    parser.add_argument("--env", default="catch/0")
    parser.add_argument("--lanes", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    print(f"{options.env}, {jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(f"{'agent':12}{'lanes':>6}{'updates/s':>12}{'ms a step':>11}{'compile s':>11}")
    for agent in options.agents:
        for count in options.lanes:
            rate, compiling = measured(agent, options.env, count, options.steps)
            print(f"{agent:12}{count:6}{rate:12,.0f}{1e3 * count / rate:11.2f}{compiling:11.1f}")


def measured(agent: str, env: str, count: int, steps: int) -> tuple[float, float]:
    task = make(env)
    configured = configure(agent, {}, task)
    plans = [
        Plan(task.params, configured.hyper, Horizon(episodes=100_000), seed=seed)
        for seed in range(count)
    ]
    lanes = Lanes(configured.agent, task.env, plans, count, chunk_steps=steps)
    begin = time.perf_counter()
    lanes.advance()
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    lanes.advance()
    second = time.perf_counter() - begin
    return steps * count / second, first - second


if __name__ == "__main__":
    main()
