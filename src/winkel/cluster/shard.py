"""One shard of a manifest, wherever it runs: as often as it takes, each run once."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from winkel.cluster import locks
from winkel.cluster.locks import Lock
from winkel.cluster.manifest import Manifest, Shard, identity
from winkel.cluster.progress import SHARDS, Telling, lock_path
from winkel.errors import InputError
from winkel.files import ensure_folder
from winkel.runs.ledger import GroupCost, Outcome
from winkel.runs.session import Status
from winkel.runs.sweep import Group, Sweep, grouped, programs, run_sweep, write_log

SWEEP_LOCK = "sweep.lock"
STOPPED = 75
"""Exit status of a shard that was told to stop, and that can go on (EX_TEMPFAIL)."""


class Stopped(KeyboardInterrupt):
    """A signal other than Ctrl-C ended the shard; its runs have checkpoints."""


@contextlib.contextmanager
def sweeping(out: Path, manifest: Manifest | None = None) -> Iterator[Lock]:
    """Hold a results folder as the one sweep on it; a plain one, if there is no manifest.

    Shards of another sweep that are under way there stop this one, and the other way round. Both
    sides take their lock first and look then, so that at least one of them sees the other.
    """
    ensure_folder(out)
    name = None if manifest is None else manifest.id
    with Lock(out / SWEEP_LOCK, "winkel sweep", name) as lock:
        _check_others(out, name, lock.path)
        yield lock


def run_shard(
    manifest: Manifest,
    number: int,
    out: Path,
    progress: Callable[[Group, list[Status]], None] = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
    patience: float = 0.0,
) -> Outcome:
    """Run what is left of a shard: ended runs are not repeated, begun ones go on.

    Args:
        manifest: of which it is a shard.
        number: which.
        out: the results folder.
        progress: gets the shard's runs after each chunk.
        notice: gets sentences that a user should see.
        patience: seconds to wait for another who runs the same shard, and may be gone.
    """
    shard = manifest.shard(number)
    ensure_folder(out)
    with Lock(lock_path(out, shard), f"shard {number}", manifest.id, patience) as lock:
        _check_others(out, manifest.id, lock.path)
        groups, ended = _groups(manifest, shard, number, out)
        telling = Telling(out, shard)

        def show(index: int, statuses: list[Status]) -> None:
            lock.check()
            telling(statuses)
            progress(groups[index], statuses)

        costs: list[GroupCost] = []
        try:
            outcome = run_sweep(
                groups, ended, out, manifest.options, shard.lanes, show, notice, costs
            )
        except KeyboardInterrupt:
            _log(out, shard, manifest.sweep, Outcome(0, 0, ended.total(), 0.0, tuple(costs)), False)
            raise
        if groups:
            _log(out, shard, manifest.sweep, outcome, True)
        return outcome


@contextlib.contextmanager
def stopping_at_signals() -> Iterator[None]:
    """Have SIGTERM and SIGUSR1 stop as Ctrl-C does, after the chunk and with checkpoints.

    They raise `Stopped`; more of them change nothing, since one is enough. Ctrl-C is listened to
    as well where a shell has it ignored, as in what a script starts in the background.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    got: list[int] = []

    def stop(number: int, _: Any) -> None:
        got.append(number)
        if len(got) == 1:
            signal.raise_signal(signal.SIGINT)

    before = {which: signal.signal(which, stop) for which in (signal.SIGTERM, signal.SIGUSR1)}
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as error:
        if got:
            raise Stopped(signal.Signals(got[0]).name) from error
        raise
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


def _groups(manifest: Manifest, shard: Shard, number: int, out: Path) -> tuple[list[Group], Any]:
    """What is left of a shard; runs elsewhere count among its lanes."""
    mnist_dir = None if manifest.mnist_dir is None else Path(manifest.mnist_dir)
    sweep, options = manifest.sweep, manifest.options
    found = programs(sweep, out, options, mnist_dir, shard.runs)
    if len(found) != 1 or identity(found[0].runs, shard.lanes) != shard.id:
        raise InputError(
            f"shard {number} has other runs here than where it was planned; "
            "use the same winkel on all machines, or plan anew"
        )
    groups, ended = grouped(sweep, out, options, mnist_dir, resume=True, items=shard.runs)
    return [g._replace(total=max(g.total, shard.lanes)) for g in groups], ended


def _check_others(out: Path, manifest: str | None, mine: Path) -> None:
    """Raise if anybody works in a folder who does not belong to this sweep."""
    for path in (out / SWEEP_LOCK, *sorted((out / SHARDS).glob("*.lock"))):
        holder = locks.read(path)
        if path == mine or holder is None or (manifest and holder.manifest == manifest):
            continue
        if locks.is_held(path):
            raise InputError(f"{out} is in use by another sweep: {holder}; wait for it, or end it")


def _log(out: Path, shard: Shard, sweep: Sweep, outcome: Outcome, ended: bool) -> None:
    """Remember the call as a plain sweep does, one shard after the other."""
    part = dataclasses.replace(
        sweep,
        envs=tuple(dict.fromkeys(item.env for item in shard.runs)),
        agents=tuple(dict.fromkeys(item.agent for item in shard.runs)),
        seeds=tuple(dict.fromkeys(item.seed for item in shard.runs)),
    )
    with Lock(out / SHARDS / "log.writing", "writing the log", patience=60.0):
        write_log(out, part, outcome, status="ended" if ended else "interrupted")
