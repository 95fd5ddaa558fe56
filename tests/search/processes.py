"""Searches as processes of their own."""

import os
import subprocess
import sys
import time

from search.tiny import FIELDS

PATIENCE = 120.0
TRIALS, EPISODES, CHUNK = 8, 400, 50
SPACE = f"""
[[environments]]
id = "deep_sea:size=5"
episodes = {EPISODES}
[spaces.pe_dqn]
learning_rate = [1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4, 7e-4, 8e-4, 9e-4]
"""
WAITING = """
import sys, time
from pathlib import Path
import winkel.search.population, winkel.report.study
from winkel.cli import main
gate = Path(sys.argv.pop(1))
Path(f"{gate}-{__import__('os').getpid()}").touch()
while not gate.exists():
    time.sleep(0.01)
main()
"""


def environment(folder):
    """Programs are compiled once, quickly, and then read from a folder."""
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }


def searching(environment, out, gate, *options):
    """A search that begins when the gate is there."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "space.toml").write_text(SPACE)
    fields = []
    for name, value in FIELDS.items():
        text = str(value[0] if isinstance(value, tuple) else value)
        fields += [f"--{name.replace('_', '-')}", text]
    arguments = [
        *("search", "--trials", str(TRIALS), "--space", str(out / "space.toml"), *fields),
        *("--chunk-steps", str(CHUNK), "--lanes", "2", "--out", str(out), "--resume", *options),
    ]
    return subprocess.Popen(
        [sys.executable, "-c", WAITING, str(gate), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return output


def wait_for(condition, *processes):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        for process in processes:
            assert process.poll() is None, f"ended before: {process.communicate()}"
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.005)
