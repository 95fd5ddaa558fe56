"""Compare the training speed of two source trees on one machine, in turn.

    git worktree add ../before 7ca4863
    python research/versions.py ../before/src src --cases lanes

Each measurement is a process of its own, which trains through `winkel.train` and counts updates
from the third report on, when everything is compiled. Prints updates/s of every turn, and the ratio
of the best turns (second tree to first).
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time

CASES = {
    "lanes": {
        "memory_len/22, 256 lanes": dict(env="memory_len/22", seeds=256),
        "deep_sea/20, 64 lanes": dict(env="deep_sea/20", seeds=64),
        "deep sea of size 100, 10 lanes": dict(env="deep_sea:size=100", seeds=10),
    },
    "doom": {
        "VizDoom, 32 environments": dict(
            env="doom:my-way-home/dense",
            preset="vizdoom-official",
            num_envs=32,
            steps=10_000_000,
            compute="bfloat16",
        ),
    },
    "cpu": {
        f"{agent}, deep_sea/0, one lane": dict(env="deep_sea/0", agent=agent)
        for agent in ("pe_dqn", "bdqn", "c51")
    },
}
WARM_UP = 3
"""Reports before time is taken."""


class TimeOverError(Exception):
    """The time of a measurement is over."""


def measure(case: dict, seconds: float) -> float:
    """Updates a second of all lanes together."""
    import winkel

    reports: list[tuple[float, int]] = []

    def progress(statuses) -> None:
        reports.append((time.perf_counter(), sum(status.updates for status in statuses)))
        if len(reports) > WARM_UP + 1 and reports[-1][0] - reports[WARM_UP][0] > seconds:
            raise TimeOverError

    with contextlib.suppress(TimeOverError):
        winkel.train(**case, progress=progress)
    (began, before), (ended, after) = reports[WARM_UP], reports[-1]
    return (after - before) / (ended - began)


def main() -> None:
    """Measure every case in both trees in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("trees", nargs="*", help="folders of two packages' sources")
    parser.add_argument("--cases", choices=CASES, default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0, help="time of one measurement")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(measure(CASES[options.cases][options.one], options.seconds))
        return
    first, second = options.trees
    for name in CASES[options.cases]:
        speeds: dict[str, list[float]] = {first: [], second: []}
        for tree in (first, second) * options.turns:
            command = [sys.executable, __file__, "--cases", options.cases, "--one", name]
            command += ["--seconds", str(options.seconds)]
            paths = os.pathsep.join([tree, os.environ.get("PYTHONPATH", "")])
            done = subprocess.run(
                command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
            )
            if done.returncode:
                sys.exit(done.stderr)
            speeds[tree].append(round(float(done.stdout.split()[-1]), 1))
        ratio = max(speeds[second]) / max(speeds[first])
        print(json.dumps({"case": name, **speeds, "ratio": round(ratio, 3)}), flush=True)


if __name__ == "__main__":
    main()
