"""Sweeps beyond one program: lanes over several devices, and what Ray costs on one machine.

`python benchmarks/cluster.py devices`: updates a second of as many lanes over 1, 2, 4 and 8 devices
that a CPU pretends to have. They share its cores, so no more than their number can be gained.

`python benchmarks/cluster.py ray`: seconds of one sweep in a plain process and through Ray, in
turn. The start of the cluster is left out, that of its workers is not. Shards take all CPUs each,
so that they run one after the other as in the plain sweep; `--cpus-per-shard 1` has them side by
side. On a machine with other work the time within runs, which is the same work in both, tells how
much of a difference is not Ray's.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST = 8


def devices(arguments: argparse.Namespace) -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={MOST}"
    import jax

    from winkel.envs.registry import make
    from winkel.runs.spec import configure
    from winkel.training.compiled import CompiledWorld
    from winkel.training.lanes import Lanes, Plan
    from winkel.training.steps import Horizon

    task = make(arguments.env)
    configured = configure(arguments.agent, {}, task)
    plans = [
        Plan(task.params, configured.hyper, Horizon(), seed) for seed in range(arguments.lanes)
    ]
    where = f"{os.cpu_count()} cores, jax {jax.__version__}"
    print(f"{arguments.agent} in {arguments.env}, {arguments.lanes} lanes, {where}")
    alone = None
    for count in (1, 2, 4, MOST):
        world = CompiledWorld(task.env)
        lanes = Lanes(
            configured.agent, world, plans, arguments.lanes, arguments.steps, devices=count
        )
        lanes.advance()
        seconds = []
        for _ in range(arguments.repeats):
            begin = time.perf_counter()
            lanes.advance()
            seconds.append(time.perf_counter() - begin)
        rate = arguments.lanes * arguments.steps / statistics.median(seconds)
        alone = alone or rate
        print(f"{count} devices: {rate:8,.0f} updates/s, {rate / alone:.2f} of one device")


def ray(arguments: argparse.Namespace) -> None:
    cpus = arguments.cpus_per_shard or os.cpu_count()
    ways: dict[str, tuple[str, ...]] = {
        "plain": (),
        "Ray": ("--cluster", "ray", "--cpus-per-shard", str(cpus)),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    sweep = ["sweep", "deep-sea", "--sizes", str(arguments.size), "--agents", arguments.agent]
    sweep += ["--seeds", str(arguments.seeds), "--episodes", str(arguments.episodes)]
    print(f"{' '.join(sweep)}, {cpus} CPUs a shard")
    for _ in range(arguments.repeats):
        for name, options in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "runs"
                command = [sys.executable, "-m", "winkel", *sweep, "--out", str(out), *options]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                log = (out / "sweeps.jsonl").read_text().splitlines()
            told = re.search(r"found finished 0; ([\d,.]+) s", done.stdout)
            assert told is not None, done.stdout
            found[name].append(float(told[1].replace(",", "")))
            within = sum(json.loads(line)["seconds"] for line in log)
            print(f"{name}: {found[name][-1]:.0f} s, {within:.0f} s of it in runs", flush=True)
    plain, through = (statistics.median(found[name]) for name in ways)
    print(f"{through / plain:.3f} of plain")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("devices", "ray"))
    parser.add_argument("--agent", default="bdqn")
    parser.add_argument("--env", default="deep_sea:size=10")
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--cpus-per-shard", type=int, default=None)
    arguments = parser.parse_args()
    {"devices": devices, "ray": ray}[arguments.what](arguments)


if __name__ == "__main__":
    main()
