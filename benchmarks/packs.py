"""How long packs of bsuite's settings take, from how long their runs were.

A program's step costs `a + b · lanes`, less when all agents rest; runs end, lanes are left out
(`fewer_lanes`) some steps later, when their program is compiled. The constants are measured, the
lengths of runs are read from a sweep's folder; a run that is not there has its greatest length, or
what `--length EXPERIMENT=STEPS` says. Prints the seconds of each way to pack.

    python benchmarks/packs.py RUNS --length cartpole_swingup=575000
"""

import argparse
from pathlib import Path

import numpy as np

from winkel.envs.bsuite.packs import PACKS
from winkel.envs.bsuite.sweep import EXPERIMENTS
from winkel.envs.registry import longest_episode
from winkel.io.results import load_all
from winkel.training.ahead import fewer_lanes

CARS = tuple(
    f"{car}{kind}" for car in ("cartpole", "mountain_car") for kind in ("", "_noise", "_scale")
)
LONG = tuple(name for name in PACKS["long"].experiments if name not in CARS)
TICK = 1_000


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

    def seconds(experiments: tuple[str, ...], halves: bool) -> float:
        lengths = np.array(
            [
                length(options.runs, name, i, given)
                for name in experiments
                for i in range(len(EXPERIMENTS[name].settings))
            ]
        )
        return duration(lengths, options.exploring, options.resting, options.compiling, halves)

    found = {
        "cars and long apart, lanes halved": seconds(CARS, True) + seconds(LONG, True),
        "cars and long apart, an eighth left out": seconds(CARS, False) + seconds(LONG, False),
        "one pack, lanes halved": seconds(CARS + LONG, True),
        "one pack, an eighth left out": seconds(CARS + LONG, False),
    }
    for name, value in found.items():
        print(f"{name:42} {value:7,.0f} s")
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


def duration(
    lengths: np.ndarray,
    exploring: tuple[float, float],
    resting: tuple[float, float],
    compiling: int,
    halves: bool,
) -> float:
    """Seconds of one program after the other, until the last run has ended."""
    lanes, milliseconds, ready, fewer = len(lengths), 0.0, None, len(lengths)
    for step in range(0, int(lengths[:, 0].max()), TICK):
        running = lengths[lengths[:, 0] > step]
        if ready is not None and step >= ready:
            lanes, ready = fewer, None
        if ready is None:
            fewer = fewer_lanes(lanes, len(running), 8, at_once=halves)
            ready = step + compiling if fewer < lanes else None
        fixed, each = exploring if (running[:, 1] > step).any() else resting
        milliseconds += TICK * (fixed + each * lanes)
    return milliseconds / 1000


if __name__ == "__main__":
    main()
