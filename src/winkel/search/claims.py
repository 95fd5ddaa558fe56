"""Who runs a trial, and what becomes of the trials of a process that died.

Optuna hands out a trial once, and ends it once: whoever would end it again is refused. What is left
to settle, without any lock, is which trials count:

- A trial carries the name of its process. Where that is dead, the next process to look ends the
  trial as failed and `died`, and queues its configuration anew, as the `successor_of` its number.
- Two that look, or ask, at once may queue the same configuration; the one with the higher number is
  a `duplicate`.
- Two that ask at once may ask for one trial too many; the one with the highest number is `surplus`.

Neither of the last two is ever begun.
"""

import json
import os
import platform
import time
import uuid
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from winkel.search.storage import Shared

BEAT, GRACE = 20.0, 180.0
"""Seconds between two signs of life, and without one until a process on another machine is dead."""
NAMELESS = 10.0
"""Seconds that a process may take from having a trial handed out to writing its name on it."""
PROCESS, DIED, SUCCESSOR = "process", "died", "successor_of"
DUPLICATE, SURPLUS, REASON = "duplicate", "surplus", "reason"
_ALIVE = set[str]()
"""Names that searches of this very process go by."""


class Process:
    """A search under way, by a name that no other has."""

    def __init__(self, shared: Shared) -> None:
        self.shared, self.beaten = shared, -BEAT
        self.name = json.dumps([_machine(), os.getpid(), _started(os.getpid()), uuid.uuid4().hex])
        _ALIVE.add(self.name)
        self.beat()

    def beat(self) -> None:
        """A sign of life, now and then."""
        if time.monotonic() - self.beaten >= BEAT:
            self.shared.study.set_user_attr(_sign(self.name), time.time())
            self.beaten = time.monotonic()

    def close(self) -> None:
        """From here on nobody runs what it ran."""
        _ALIVE.discard(self.name)


def is_alive(name: str, shared: Shared) -> bool:
    """Whether a process runs: certain on the same machine, by its last sign of life on another."""
    machine, pid, started, _ = json.loads(name)
    if machine != _machine():
        return time.time() - shared.study.user_attrs.get(_sign(name), 0.0) < GRACE
    if pid == os.getpid() and started == _started(pid):
        return name in _ALIVE
    return _started(pid) == started != ""


def take_up(shared: Shared) -> int:
    """End the trials of dead processes and queue their configurations anew; how many."""
    ended = 0
    for trial in shared.trials():
        if trial.state != TrialState.RUNNING or is_nameless(trial):
            continue
        name = trial.user_attrs.get(PROCESS)
        if name is None or not is_alive(name, shared):
            ended += _abandon(shared, trial)
    _queue_successors(shared)
    return ended


def release(shared: Shared, numbers: Collection[int]) -> None:
    """Leave trials of this process to others, as on Ctrl-C."""
    for trial in shared.trials():
        if trial.number in numbers:
            _abandon(shared, trial)
    _queue_successors(shared)


def is_nameless(trial: FrozenTrial) -> bool:
    """Whether a trial was handed out just now, and its process may not have put its name on it."""
    if trial.state != TrialState.RUNNING or PROCESS in trial.user_attrs:
        return False
    since = trial.datetime_start
    return since is not None and time.time() - since.timestamp() < NAMELESS


def superfluous(trial: FrozenTrial, trials: Sequence[FrozenTrial], wanted: int) -> str | None:
    """Why a trial just handed out is not to be begun, None if it is."""
    before = [t for t in trials if t.number < trial.number and counts(t, trials)]
    if any(_queued(other) == _queued(trial) for other in before):
        return DUPLICATE
    return SURPLUS if len(before) >= wanted else None


def counts(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> bool:
    """Whether a trial is one of those asked for: not those queued anew, nor those never begun."""
    attributes = trial.user_attrs
    if attributes.get(DUPLICATE) or attributes.get(SURPLUS):
        return False
    if attributes.get(DIED):
        anew = any(other.user_attrs.get(SUCCESSOR) == trial.number for other in trials)
        return not anew and configuration(trial) is not None
    return True


def configuration(trial: FrozenTrial) -> dict[str, Any] | None:
    """What a trial is to try; None if its process died before that was written."""
    if PROCESS in trial.user_attrs:  # which is written last
        return dict(trial.params)
    return trial.system_attrs.get("fixed_params")


def _queued(trial: FrozenTrial) -> dict[str, Any]:
    return trial.system_attrs.get("fixed_params") or dict(trial.params)


def _abandon(shared: Shared, trial: FrozenTrial) -> bool:
    """End a trial that nobody runs; whether it was this call that did."""
    return shared.mark(trial, DIED, True) and shared.end(trial.number, TrialState.FAIL)


def _queue_successors(shared: Shared) -> None:
    trials = shared.trials()
    for trial in trials:
        if trial.user_attrs.get(DIED) and counts(trial, trials):
            shared.enqueue(configuration(trial) or {}, {SUCCESSOR: trial.number})


def _sign(name: str) -> str:
    return f"alive/{json.loads(name)[-1]}"


@cache
def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{platform.node()}/{boot.read_text().strip() if boot.is_file() else ''}"


def _started(pid: int) -> str:
    """When a process began, by its machine's clock ticks; '' if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if Path("/proc/self").exists() else _without_proc(pid)
    return "" if fields[0] == "Z" else fields[19]


def _without_proc(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "running"
