"""Searches as processes of their own."""

import sys

from process_helpers import start
from search.tiny import FIELDS

TRIALS, EPISODES, CHUNK = 8, 400, 50
SPACE = f"""
[[environments]]
id = "deep_sea:size=5"
episodes = {EPISODES}
[spaces.pe_dqn]
learning_rate = [1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4, 7e-4, 8e-4, 9e-4]
"""
GATED = """
import sys, time
from pathlib import Path
import winkel.search.population, winkel.report.study
from winkel.__main__ import main
from winkel.search import study
study.HEARTBEAT_SECONDS, study.GRACE_SECONDS = 1, 8
gate = Path(sys.argv.pop(1))
Path(f"{gate}-{__import__('os').getpid()}").touch()
while not gate.exists():
    time.sleep(0.01)
main()
"""


def start_search(out, gate, *options):
    """Start a search that begins when the file `gate` exists."""
    return start(search_command(out, gate, *options))


def search_command(out, gate, *options):
    """The command of such a search."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "space.toml").write_text(SPACE)
    fields = []
    for name, value in FIELDS.items():
        text = str(value[0] if isinstance(value, tuple) else value)
        fields += [f"--{name.replace('_', '-')}", text]
    arguments = [
        *("search", "--trials", str(TRIALS), "--space", str(out / "space.toml"), *fields),
        *("--chunk-steps", str(CHUNK), "--lanes", "2", "--out", str(out), *options),
    ]
    return [sys.executable, "-c", GATED, gate, *arguments]
