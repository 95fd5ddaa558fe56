"""What tests of engines share: a walker that knows the way, and what an engine leaves behind."""

import os
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

LEFT, RIGHT, FORWARD = 0, 1, 2
WAY = ((620, -176), (688, -90), (688, -20), (760, 48), (960, 48), (1040, -25), (1040, -352))
"""Corners on the way from the sparse start to the vest."""


@pytest.fixture
def walk():
    """A function that steps towards the vest; all that the steps brought."""

    def to_the_vest(simulator):
        corners, moves = list(WAY), []
        x, y, angle = 240.0, -176.0, 0.0
        while len(moves) < 600 and not (moves and moves[-1].boundary):
            while len(corners) > 1 and np.hypot(corners[0][0] - x, corners[0][1] - y) < 24:
                del corners[0]
            aim = np.degrees(np.arctan2(corners[0][1] - y, corners[0][0] - x))
            off = (aim - angle + 180) % 360 - 180
            action = FORWARD if abs(off) < 4 else LEFT if off > 0 else RIGHT
            moves.append(simulator.step(action))
            x, y, angle = moves[-1].probes
        return moves

    return to_the_vest


class Traces(NamedTuple):
    """Of one running engine."""

    engine: int
    keeper: int
    files: list[Path]

    def left(self):
        processes = [pid for pid in (self.engine, self.keeper) if _runs(pid)]
        return processes + [path for path in self.files if path.exists()]


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _children(pid):
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def traces(pid):
    """Of every engine that the process or its children have started."""
    found = []
    for child in _children(pid):
        words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        if Path(words[0]).name == "vizdoom":
            instance = words[words.index("+viz_instance_id") + 1]
            shared = list(Path("/dev/shm").glob(f"*{instance}"))
            files = [*shared, Path(os.readlink(f"/proc/{child}/cwd"))]
            found.append(Traces(engine=child, keeper=pid, files=files))
        found += traces(child)
    return found


@pytest.fixture
def engines_of():
    return traces


def _within(seconds, condition):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.fixture
def ended():
    return lambda pid: _within(3.0, lambda: not _runs(pid))


@pytest.fixture
def assert_nothing_left():
    """Waits a little: the end of an owner that was killed is noticed from time to time."""

    def check(all_traces, seconds=3.0):
        assert all(len(trace.files) == 4 for trace in all_traces)
        _within(seconds, lambda: not any(trace.left() for trace in all_traces))
        assert [trace.left() for trace in all_traces] == [[]] * len(all_traces)

    return check
