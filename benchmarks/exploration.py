"""Deep sea: who finds the treasure, when, and how much of the sea they see.

    python benchmarks/exploration.py --agents pe_dqn bdqn --sizes 10 30 --seeds 10 --until 1500

Schedules go by the paper's horizon of 10,000 episodes; --until stops earlier. One line for each
agent and size: seeds that found the treasure, the episode in which they first did (median and
range), seeds that find it in at least 90 % of their last 100 episodes, bad episodes (median),
state-actions seen after the first tenth and at the end (median share), updates a second.
"""

import argparse
import time

import numpy as np

import winkel
from winkel.envs.registry import make
from winkel.runs.session import Options

HORIZON = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--agents", nargs="+", default=["pe_dqn"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[10])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--until", nargs="+", type=int, default=[1_000], help="one, or one a size")
    parser.add_argument("--out", default=None, help="keep the runs in this folder")
    arguments = parser.parse_args()
    until = arguments.until * (len(arguments.sizes) if len(arguments.until) == 1 else 1)
    print(
        f"{'agent':32}{'size':>5}{'episodes':>9}{'found':>8}{'first goal':>22}{'solved':>8}"
        f"{'bad':>7}{'seen 10%':>9}{'seen':>6}{'updates/s':>11}{'seconds':>9}"
    )
    for size, stop in zip(arguments.sizes, until, strict=True):
        for agent in arguments.agents:
            print(line(agent, size, arguments.seeds, stop, arguments.out), flush=True)


def line(agent: str, size: int, seeds: int, until: int, out: str | None) -> str:
    env = f"deep_sea:size={size}"
    begin = time.perf_counter()
    training = winkel.train(
        env,
        agent,
        seeds=seeds,
        episodes=HORIZON,
        until=until,
        out=out,
        options=Options(chunk_steps=500, checkpoint_seconds=1e9),
    )
    seconds = time.perf_counter() - begin
    treasure = np.stack([run.episodes["treasure"] for run in training.runs])
    bad = np.stack([run.episodes["bad"] for run in training.runs]).sum(axis=1)
    seen = np.stack([run.episodes["seen"] for run in training.runs]) / make(env).num_pairs
    found = treasure.any(axis=1)
    first = np.sort(treasure.argmax(axis=1)[found] + 1)
    solved = (treasure[:, -100:].mean(axis=1) >= 0.9).sum()
    spread = f"{np.median(first):.0f} [{first[0]}, {first[-1]}]" if found.any() else "never"
    updates = sum(int(run.episodes["env_steps"][-1]) for run in training.runs)
    return (
        f"{agent:32}{size:5}{until:9}{found.sum():5}/{seeds:<2}{spread:>22}{solved:5}/{seeds:<2}"
        f"{np.median(bad):7.0f}{np.median(seen[:, until // 10]):9.2f}{np.median(seen[:, -1]):6.2f}"
        f"{updates / seconds:11,.0f}{seconds:9.1f}"
    )


if __name__ == "__main__":
    main()
