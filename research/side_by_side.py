"""Run the sweeps of a plan side by side on one accelerator, a process for each agent and size.

    nvidia-cuda-mps-control -d        # kernels of several processes then run at the same time
    python research/side_by_side.py results/plan.toml --processes 14 --minutes 25

A program with ten lanes of a small network leaves most of a large GPU idle. Here many programs
share it. The runs are those of `winkel sweep --plan`, so either command goes on where the other
stopped. A sweep whose seeds have all ended is added to the compact records beside the plan; seeds
that end before the others are mostly those that were solved, and would bias a median.
"""

import argparse
import itertools
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

from winkel.commands.plan import CHUNK_STEPS
from winkel.runs.compact import read_compact, write_compact

WINKEL = [sys.executable, "-m", "winkel"]
PAUSE = 60.0
"""Seconds at the end for saving."""


class Sweep(NamedTuple):
    """One agent in one size, or a whole piece without sizes."""

    command: list[str]
    record: str
    """Folder of its runs and, with the ending `.npz`, its compact record."""


def write_options(piece: dict) -> list[str]:
    """Return the options of a piece as words of `winkel sweep`."""
    words = []
    for name, value in piece.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            values = value if isinstance(value, list) else [value]
            words += [f"--{option}", *map(str, values)]
    return words


def list_sweeps(plan: Path) -> dict[str, Sweep]:
    """Return the sweeps of deep sea that are not recorded yet, by name."""
    sweeps = {}
    for piece in tomllib.loads(plan.read_text())["piece"]:
        name, kind = piece.pop("name"), piece.pop("kind")
        piece.pop("minutes", None)
        agents, sizes = piece.pop("agents", []), piece.pop("sizes", [])
        for size, agent in itertools.product(sizes, agents):
            options = {"chunk_steps": CHUNK_STEPS, "agents": agent, "sizes": size} | piece
            record = f"deep_sea/{agent}/size={size}"
            path = plan.parent / f"{record}.npz"
            if not path.exists() or len(read_compact(path)) < piece["seeds"]:
                command = [*WINKEL, "sweep", kind, "--resume", *write_options(options)]
                sweeps[f"{name}, size {size}, {agent}"] = Sweep(command, record)
    return sweeps


def main() -> None:
    """Start sweeps as others end, until the time is over; then save and record them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("--only", default="", help="sweeps whose name contains this text")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of runs and logs")
    options = parser.parse_args()
    sweeps = {name: s for name, s in list_sweeps(options.plan).items() if options.only in name}
    waiting, folders = list(sweeps), []
    begin = time.monotonic()
    end = begin + 60 * options.minutes - PAUSE
    running: dict[str, subprocess.Popen] = {}
    options.out.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        while (waiting or running) and time.monotonic() < end:
            for name in [name for name, process in running.items() if process.poll() is not None]:
                code = running.pop(name).returncode
                print(f"{time.monotonic() - begin:5.0f} s  {name}: status {code}", flush=True)
                if code == 0:
                    folders += (options.out / sweeps[name].record).glob("seed-*")
            while waiting and len(running) < options.processes:
                name = waiting.pop(0)
                command = [*sweeps[name].command, "--out", str(options.out)]
                with (options.out / f"{name}.log").open("w") as log:
                    running[name] = subprocess.Popen(
                        command, stdout=log, stderr=log, env=environment, start_new_session=True
                    )
            time.sleep(1.0)
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait(PAUSE)
        print(f"not ended: {', '.join([*running, *waiting]) or 'none'}", flush=True)
        for path, count in write_compact(options.out, options.plan.parent, folders).items():
            print(f"recorded {count} runs in {path}", flush=True)


if __name__ == "__main__":
    main()
