"""A sweep in shards: its manifest, the runs of one shard, and locks on the shared results folder.

The number of lanes decides how a program rounds. A shard fixes its number of lanes to that of a
plain sweep's whole group, so shards write the same bytes as a plain sweep.
"""

import contextlib
import dataclasses
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from winkel.errors import InputError, require_integer
from winkel.files import ensure_folder, write_text
from winkel.runs.recorder import Status
from winkel.runs.spec import Options, RunSpec, fingerprint
from winkel.runs.sweep import (
    Item,
    Sweep,
    choose_lanes,
    group_runs,
    remaining_groups,
    run_sweep,
)
from winkel.version import __version__

MANIFEST, SWEEP_LOCK = "manifest.json", "sweep.lock"
SHARDS = "shards"
"""Folder beside the runs, with locks and progress of shards."""
PROGRESS_SECONDS = 1.0
"""Time between two writes of a shard's progress."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Runs of one shape that run together.

    Attributes:
        id: hash of its runs and its number of lanes.
        group: name of the program, for display.
        lanes: runs side by side, idle lanes included.
    """

    id: str
    group: str
    lanes: int
    runs: tuple[Item, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A sweep in shards: each of its runs is in one. Folders are the same on all machines."""

    sweep: Sweep
    options: Options
    shards: tuple[Shard, ...]
    deterministic: bool = False
    mnist_dir: Path | None = None

    @property
    def id(self) -> str:
        """Hash of the content."""
        return fingerprint(self._content())

    @property
    def num_runs(self) -> int:
        """Number of runs in all shards."""
        return sum(len(shard.runs) for shard in self.shards)

    def shard(self, number: int) -> Shard:
        """Return a shard; raise if there is none with this number."""
        if not 0 <= number < len(self.shards):
            raise InputError(f"need a shard from 0 to {len(self.shards) - 1}, got {number}")
        return self.shards[number]

    def to_json(self) -> str:
        """Return the text of the manifest's file."""
        head = {"winkel": __version__, "id": self.id}
        return json.dumps(head | self._content(), indent=1) + "\n"

    def _content(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self), default=str))


def plan_manifest(
    sweep: Sweep,
    options: Options,
    lanes: int | None,
    shard_runs: int | None,
    deterministic: bool = False,
    mnist_dir: Path | None = None,
    max_lanes: int | None = None,
) -> Manifest:
    """Split a sweep into shards of at most `shard_runs` runs, by default one run for each lane.

    A shard of fewer runs than lanes would waste lanes, so `shard_runs` also limits the lanes.
    Without `lanes`, a shard has at most `max_lanes`, or as many as a plain sweep on this machine.
    """
    if shard_runs is not None:
        require_integer("shard_runs", shard_runs, at_least=1)
        if lanes is not None and shard_runs < lanes:
            raise InputError(
                f"need --shard-runs >= --lanes, or lanes stay idle, got {shard_runs} and {lanes}"
            )
    shards = []
    for group in group_runs(sweep, options, mnist_dir):
        count = choose_lanes(group, max_lanes if lanes is None else lanes)
        if lanes is None and shard_runs is not None:
            count = min(count, -(-shard_runs // options.devices) * options.devices)
        size = shard_runs or count
        for first in range(0, len(group.runs), size):
            runs = group.runs[first : first + size]
            items = tuple((run.task.id, run.label, run.seed) for run in runs)
            shards.append(
                Shard(id=_shard_id(runs, count), group=group.name, lanes=count, runs=items)
            )
    return Manifest(
        sweep=sweep,
        options=options,
        shards=tuple(shards),
        deterministic=deterministic,
        mnist_dir=mnist_dir and mnist_dir.absolute(),
    )


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; raise unless this version of winkel wrote it and nobody changed it."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError:
        data = None
    if not isinstance(data, dict) or not {"winkel", "id"} <= data.keys():
        raise InputError(f"{path} is no manifest; `winkel sweep … --plan-only` writes one")
    version, written_id = data.pop("winkel"), data.pop("id")
    if version != __version__:
        raise InputError(
            f"{path} was written by winkel {version}, this is {__version__}; "
            "use that version, or plan again"
        )
    if fingerprint(data) != written_id:
        raise InputError(f"{path} was changed after it was written; plan again")
    data = _tuples(data)
    made = {
        "sweep": Sweep(**data["sweep"]),
        "options": Options(**data["options"]),
        "shards": tuple(Shard(**shard) for shard in data["shards"]),
        "mnist_dir": data["mnist_dir"] and Path(data["mnist_dir"]),
    }
    return Manifest(**data | made)


def run_shard(
    manifest: Manifest,
    number: int,
    out: Path,
    progress: Callable[[list[Status]], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    wait: float = 1.0,
) -> dict[str, Any]:
    """Run what is left of a shard: skip ended runs, continue begun ones from their checkpoints.

    Call `progress` with the status of all runs after each chunk of steps. Wait so many seconds for
    another process that holds the shard's lock. Return what `run_sweep` does.
    """
    shard = manifest.shard(number)
    sweep, options, mnist_dir = manifest.sweep, manifest.options, manifest.mnist_dir
    ensure_folder(out)
    with hold_lock(lock_path(out, shard), f"shard {number}", wait):
        _check_free(out / SWEEP_LOCK)
        found = group_runs(sweep, options, mnist_dir, shard.runs)
        if len(found) != 1 or _shard_id(found[0].runs, shard.lanes) != shard.id:
            raise InputError(
                f"shard {number} has other runs here than where it was planned; "
                "use the same winkel on all machines, or plan again"
            )
        groups, ended = remaining_groups(sweep, out, options, mnist_dir, True, items=shard.runs)
        groups = [group._replace(total=max(group.total, shard.lanes)) for group in groups]
        written = -PROGRESS_SECONDS

        def show(_: int, statuses: list[Status]) -> None:
            nonlocal written
            ended = all(status.state != "running" for status in statuses)
            if ended or time.monotonic() - written >= PROGRESS_SECONDS:
                written = time.monotonic()
                rows = json.dumps([status._asdict() for status in statuses])
                write_text(lock_path(out, shard).with_suffix(".json"), rows + "\n")
            progress(statuses)

        envs, agents, seeds = (tuple(dict.fromkeys(x)) for x in zip(*shard.runs, strict=True))
        part = dataclasses.replace(sweep, envs=envs, agents=agents, seeds=seeds)
        return run_sweep(part, groups, out, shard.lanes, ended.total(), show, notice)


def read_progress(out: Path, shard: Shard) -> list[Status]:
    """Read the last written status of a shard's runs; empty before the first."""
    try:
        rows = json.loads(lock_path(out, shard).with_suffix(".json").read_bytes())
    except FileNotFoundError:
        return []
    return [Status(**row) for row in rows]


def lock_path(out: Path, shard: Shard) -> Path:
    """Path of the lock that the process running the shard holds."""
    return out / SHARDS / f"{shard.id}.lock"


@contextlib.contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Hold a results folder for one plain sweep, or to write its manifest; raise if it is in use.

    A sweep and a shard first take their own lock and then check the other's, so at least one of
    two that start together is refused.
    """
    ensure_folder(out)
    with hold_lock(out / SWEEP_LOCK, "winkel sweep"):
        for path in (out / SHARDS).glob("*.lock"):
            _check_free(path)
        yield


@contextlib.contextmanager
def hold_lock(path: Path, task: str, wait: float = 1.0) -> Iterator[None]:
    """Hold a lock file; raise, naming the holder, if another process keeps it for `wait` seconds.

    The operating system releases the lock when the process ends, also when it is killed. A file
    beside the lock names the holder; a killed process leaves it behind.
    """
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    holder = f"{task} on {socket.gethostname()}, process {os.getpid()}, since {since}"
    with _acquire(path, wait):
        write_text(path.with_suffix(".holder"), holder)
        try:
            yield
        finally:
            path.with_suffix(".holder").unlink(missing_ok=True)


def _acquire(path: Path, wait: float) -> contextlib.AbstractContextManager[Any]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(path).acquire(timeout=wait)
    except Timeout:
        holder = "another process"
        with contextlib.suppress(FileNotFoundError):
            holder = path.with_suffix(".holder").read_text()
        raise InputError(f"{path} is held by {holder}; wait for it, or end it") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def _check_free(path: Path) -> None:
    """Raise if a process holds a lock; those of killed processes are free."""
    if path.with_suffix(".holder").exists():
        with _acquire(path, wait=1.0):  # others may check it at the same time
            pass


def _shard_id(runs: Sequence[RunSpec], lanes: int) -> str:
    """Hash runs, in any order, and their number of lanes."""
    prints = sorted(run.config["fingerprint"] for run in runs)
    return fingerprint({"runs": prints, "lanes": lanes})


def _tuples(value: Any) -> Any:
    """Turn JSON's lists into tuples."""
    if isinstance(value, dict):
        return {name: _tuples(entry) for name, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
