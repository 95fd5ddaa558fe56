"""What runs, and what is left."""

import os
import tempfile
import time
from pathlib import Path


def living(groups):
    """Processes in these groups that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX" and int(group) in groups:
            found.append(int(entry.name))
    return found


def gone(groups, within=0.5):
    """Whether nothing of these groups is left, after the moment that killed processes take."""
    deadline = time.monotonic() + within
    while living(groups):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def folders(pids):
    """Temporary working folders of workers, by their processes."""
    return [os.readlink(f"/proc/{pid}/cwd") for pid in pids]


def is_temporary(folder):
    return Path(folder).parent == Path(tempfile.gettempdir())
