"""Run the sweeps of a plan, or commands of a file, side by side on one accelerator.

    nvidia-cuda-mps-control -d        # kernels of several processes then run at the same time
    python research/side_by_side.py results/plan.toml --processes 14 --minutes 25
    python research/side_by_side.py results/record/commands.txt --minutes 8

A program with ten lanes of a small network leaves most of a large GPU idle. Here many programs
share it: one for each agent and size of a plan, or one for each `winkel train` in a text file. The
runs of a plan are those of `winkel sweep --plan`, so either command goes on where the other
stopped. When all seeds of a process have ended, they are added to the compact records beside the
file; seeds that end before the others are mostly those that were solved, and would bias a median.
"""

import argparse
import itertools
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

from winkel.commands.plan import CHUNK_STEPS
from winkel.runs.compact import read_compact, write_compact
from winkel.runs.spec import run_folder

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


def list_commands(file: Path) -> dict[str, Sweep]:
    """Return the lines `winkel train ENV …` of a file that are not recorded yet, by their text."""
    commands = {}
    for line in file.read_text().splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[:2] != ["winkel", "train"]:
            sys.exit(f"need lines `winkel train ENV …` in {file}, got {line!r}")
        options = dict(itertools.pairwise(words))
        label = options.get("--label") or options.get("--agent", "pe_dqn")
        record = str(run_folder(Path(), words[2], label, 0).parent)
        path = file.parent / f"{record}.npz"
        if not path.exists() or len(read_compact(path)) < int(options.get("--seeds", 1)):
            commands[line] = Sweep([*WINKEL, *words[1:], "--resume"], record)
    return commands


def main() -> None:
    """Start sweeps as others end, until the time is over; then save and record them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("plan", type=Path, help="plan.toml, or a text file of commands")
    parser.add_argument("--only", default="", help="sweeps whose name contains this text")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of runs and logs")
    options = parser.parse_args()
    listed = (list_sweeps if options.plan.suffix == ".toml" else list_commands)(options.plan)
    sweeps = {name: sweep for name, sweep in listed.items() if options.only in name}
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
                log_path = options.out / f"{sweeps[name].record.replace('/', ' ')}.log"
                with log_path.open("w") as log:
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
