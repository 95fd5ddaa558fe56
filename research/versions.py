"""Compare the training speed of source trees on one machine, in turn.

    git worktree add ../before 7ca4863
    python research/versions.py ../before/src src --cases lanes doom

Every case of every tree trains in a process of its own through `winkel.train`. They start one after
the other, since XLA chooses among kernels by their measured time. Once learning has begun, each of
them pauses while another is measured. Prints updates/s of every turn, and the ratio of each tree's
best turn to that of the first tree.
"""

import argparse
import contextlib
import itertools
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
            burn_in=10_000,
            capacity=100_000,
        ),
    },
    "cpu": {
        f"{agent}, deep_sea/0, one lane": dict(env="deep_sea/0", agent=agent)
        for agent in ("pe_dqn", "bdqn", "c51")
    },
}
WARM_UP = 3
"""Reports with updates before time is taken."""


class TimeOverError(Exception):
    """No further turn is asked for."""


def measure(case: dict, seconds: float) -> None:
    """Train; when warm print "ready", and measure one turn for each line on standard input."""
    import winkel

    reports = 0
    turn: tuple[float, int] | None = None

    def progress(statuses) -> None:
        nonlocal reports, turn
        now, updates = time.perf_counter(), sum(status.updates for status in statuses)
        reports += updates > 0
        if turn is not None and now - turn[0] > seconds:
            print((updates - turn[1]) / (now - turn[0]), flush=True)
        elif turn is None and reports == WARM_UP:
            print("ready", flush=True)
        else:
            return
        if not sys.stdin.readline():
            raise TimeOverError
        turn = time.perf_counter(), updates

    with contextlib.suppress(TimeOverError):
        winkel.train(**case, progress=progress)


def main() -> None:
    """Measure every case in all trees in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("trees", nargs="*", help="folders of packages' sources")
    parser.add_argument("--cases", choices=CASES, nargs="+", default=["cpu"])
    parser.add_argument("--seconds", type=float, default=10.0, help="time of one turn")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = {name: case for group in options.cases for name, case in CASES[group].items()}
    if options.one is not None:
        measure(cases[options.one], options.seconds)
        return
    trees = options.trees
    command = [sys.executable, __file__, "--seconds", str(options.seconds)]
    command += ["--cases", *options.cases, "--one"]
    processes = {}
    for name, tree in itertools.product(cases, trees):
        processes[name, tree] = process = start(tree, [*command, name])
        process.stdout.readline()
    for name in cases:
        speeds: dict[str, list[float]] = {tree: [] for tree in trees}
        for tree in trees * options.turns:
            process = processes[name, tree]
            print("turn", file=process.stdin, flush=True)
            speed = process.stdout.readline()
            if not speed:
                sys.exit(f"no measurement of {tree}: exit status {process.wait()}")
            speeds[tree].append(round(float(speed), 1))
        for tree in trees:
            processes[name, tree].stdin.close()
            processes[name, tree].wait()
        best = max(speeds[trees[0]])
        ratios = {tree: round(max(speed) / best, 3) for tree, speed in speeds.items()}
        print(json.dumps({"case": name, **speeds, "ratios": ratios}), flush=True)


def start(tree: str, command: list[str]) -> subprocess.Popen:
    """Start a process of one tree; all share the memory of a GPU."""
    paths = os.pathsep.join([tree, os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


if __name__ == "__main__":
    main()
