"""How long packs of bsuite's settings take, from how long their runs were.

A program's step costs `a + b · lanes`, less when all its agents rest; runs end, lanes are left
out or move (`training/rows.py`) some steps later, when their program is compiled. The
constants are measured; the lengths of runs are read from a sweep's folder, and a run that is not
there has its greatest length, or what `--length EXPERIMENT=STEPS` says. Prints the seconds of each
way to pack.

    python benchmarks/packs.py RUNS --length cartpole_swingup=575000
"""

import argparse
from pathlib import Path

import numpy as np

from winkel.envs.bsuite.packs import PACKS
from winkel.envs.bsuite.sweep import EXPERIMENTS
from winkel.envs.registry import longest_episode
from winkel.files import load_all
from winkel.training.rows import fewer_lanes, round_up

LONG = ("cartpole_swingup", "memory_len", "umbrella_length")
CARS = tuple(name for name in PACKS["long"].experiments if name not in LONG)
TICK, UNIT = 1_000, 8
Cost = tuple[float, float]
"""Milliseconds of a step: of the program, and of each lane."""


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--exploring", type=float, nargs=2, default=(0.357, 0.0161), metavar="MS")
    parser.add_argument("--resting", type=float, nargs=2, default=(0.11, 0.0098), metavar="MS")
    parser.add_argument(
        "--compiling", type=int, default=12_000, help="steps until a program is there"
    )
    parser.add_argument("--length", nargs="*", default=[], metavar="EXPERIMENT=STEPS")
    options = parser.parse_args(arguments)
    given = {name: int(steps) for name, _, steps in (one.partition("=") for one in options.length)}

    def seconds(experiments: tuple[str, ...], way: str) -> float:
        lengths = np.array(
            [
                length(options.runs, name, i, given)
                for name in experiments
                for i in range(len(EXPERIMENTS[name].settings))
            ]
        )
        return duration(lengths, (options.exploring, options.resting), options.compiling, way)

    found = {
        "two packs, lanes halved": seconds(CARS, "halved") + seconds(LONG, "halved"),
        "one pack, lanes halved": seconds(CARS + LONG, "halved"),
        "two packs, an eighth left out": seconds(CARS, "eighths") + seconds(LONG, "eighths"),
        "one pack, an eighth left out": seconds(CARS + LONG, "eighths"),
        "two packs, rows at rest too": seconds(CARS, "parted") + seconds(LONG, "parted"),
        "one pack, rows at rest too": seconds(CARS + LONG, "parted"),
    }
    for name, value in found.items():
        print(f"{name:32} {value:7,.0f} s")
    return found


def length(runs: Path, experiment: str, index: int, given: dict[str, int]) -> tuple[int, int]:
    """Steps of a run, and those after a third of its episodes, when PE-DQN has settled."""
    path = runs / experiment / "pe_dqn" / str(index) / "seed-0" / "episodes.npz"
    if path.is_file():
        steps = load_all(path)["env_steps"]
        return int(steps[-1]), int(steps[len(steps) // 3 - 1])
    most = EXPERIMENTS[experiment].num_episodes * longest_episode(f"{experiment}/{index}")
    steps = given.get(experiment, most)
    return steps, steps // 3


def duration(lengths: np.ndarray, costs: tuple[Cost, Cost], compiling: int, way: str) -> float:
    """Seconds until the last run has ended, programs changing one at a time.

    Ways: `halved`, programs of fewer lanes when half of them are idle; `eighths`, when an eighth
    is; `parted`, those at rest moreover in a row of their own, by the eighth.
    """
    exploring, resting = costs
    explorers, settled = lengths, lengths[:0]
    rows, ready, milliseconds = [len(lengths), 0], None, 0.0
    for step in range(0, int(lengths[:, 0].max()), TICK):
        explorers, settled = (part[part[:, 0] > step] for part in (explorers, settled))
        rests = explorers[:, 1] <= step
        if ready is not None and step >= ready:
            if way == "parted":
                settled = np.concatenate([settled, explorers[rests]])
                explorers, rests = explorers[~rests], rests[:0]
            rows, ready = wanted(rows, explorers, settled, way), None
        if ready is None:
            apart = way == "parted" and rests.sum() >= max(UNIT, len(explorers) / 8)
            after = (explorers[~rests], np.concatenate([settled, explorers[rests]]))
            if apart or wanted(rows, *(after if apart else (explorers, settled)), way) != rows:
                ready = step + compiling
        fixed, each = resting if rests.all() else exploring
        milliseconds += TICK * (fixed + each * rows[0]) if len(explorers) else 0.0
        milliseconds += TICK * (resting[0] + resting[1] * rows[1]) if len(settled) else 0.0
    return milliseconds / 1000


def wanted(rows: list[int], explorers: np.ndarray, settled: np.ndarray, way: str) -> list[int]:
    """Lanes of the row that explores and of the one at rest, which alone can grow."""
    fewer = fewer_lanes(rows[0], len(explorers), UNIT, waits=way == "halved")
    if len(settled) > rows[1]:
        return [fewer, round_up(len(settled), UNIT)]
    return [fewer, fewer_lanes(rows[1], len(settled), UNIT, waits=False)]


if __name__ == "__main__":
    main()
