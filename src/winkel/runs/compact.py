"""Compact records: what runs have done, in few bytes, without what their agents have learned.

`<folder>/<experiment>/<agent>/<setting>.npz` holds all seeds of an agent in one setting: the JSON
of their configs, and their tables one after the other, without any loss. `winkel figure` and
`winkel report` read them as they read the folders of runs.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from winkel.errors import InputError
from winkel.files import load_arrays, save_arrays, write_text
from winkel.runs.checkpoint import check_config, check_same_run, check_table
from winkel.runs.record import Arrays, RunRecord, find_runs, load_run, split_tables
from winkel.runs.spec import run_fingerprint, run_folder
from winkel.runs.sweep import SWEEPS

TABLES = ("episodes", "evaluations", "snapshots")
CONFIGS, DIGEST = "configs", "digest"
"""Names of arrays: the configs' JSON, and a hash of everything else in the file."""


def write_compact(root: Path, out: Path, folders: Iterable[Path] | None = None) -> dict[Path, int]:
    """Add runs that have ended, all under `root` by default; return how many were new, by file.

    Runs that a file has already stay as they are. All runs of a file must be of one version of
    winkel and differ only in their seeds; otherwise nothing is written. The log of sweeps gets the
    lines that it lacks.
    """
    groups: dict[Path, list[RunRecord]] = defaultdict(list)
    for folder in find_runs(root) if folders is None else folders:
        groups[compact_path(out, folder.relative_to(root))].append(load_run(folder))
    files, added = {}, {}
    for path, new in sorted(groups.items()):
        known = read_compact(path) if path.is_file() else []
        records = {record.config["seed"]: record for record in [*new, *known]}
        for record in (*known, *new):
            _check_group(records[min(records)].config, record.config, path)
        if len(records) > len(known):
            files[path] = _join([records[seed] for seed in sorted(records)])
            added[path] = len(records) - len(known)
    for path, arrays in files.items():
        save_arrays(path, arrays)
    if added and (root / SWEEPS).is_file():
        lines = [where / SWEEPS for where in (out, root) if (where / SWEEPS).is_file()]
        rows = [row for path in lines for row in path.read_text().splitlines(keepends=True)]
        write_text(out / SWEEPS, "".join(dict.fromkeys(rows)))
    return added


def compact_path(out: Path, folder: Path) -> Path:
    """The file for the run of `<experiment>/<agent>/<setting>/seed-<n>`."""
    return out / folder.parent.parent / f"{folder.parent.name}.npz"


def find_compact(root: Path) -> list[Path]:
    """All files of compact records under a folder."""
    return sorted(path for path in root.glob("*/*/*.npz") if path.is_file())


def read_compact(path: Path) -> list[RunRecord]:
    """Read the runs of one file; their tables are in memory."""
    arrays = load_arrays(path)
    try:
        digest = arrays.pop(DIGEST).tobytes()
        configs = json.loads(arrays[CONFIGS].tobytes())
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} is no file of compact records: {error}") from error
    if digest != _digest(arrays):
        raise InputError(f"{path} was changed after it was written; restore it, or run it again")
    tables = split_tables({name: x for name, x in arrays.items() if name != CONFIGS})
    ends, records = dict.fromkeys(TABLES, 0), []
    for config in configs:
        check_config(config, path)
        own: dict[str, Arrays] = {}
        for name in TABLES:
            begin, count = ends[name], config["rows"].get(name, 0)
            ends[name] += count
            columns = tables.get(name, {}) if count else {}
            own[name] = {k: _decode(x[begin : begin + count]) for k, x in columns.items()}
            check_table(name, own[name], config, path)
        place = run_folder(Path(), config["env"], config["agent"], config["seed"])
        if compact_path(Path(), place) != Path(*path.parts[-3:]):
            raise InputError(f"{path} holds a run that belongs in {compact_path(Path(), place)}")
        records.append(RunRecord(config, own.pop("episodes"), path, tables=own))
    return records


def fill_solved(record: RunRecord) -> RunRecord:
    """Continue the tables of a run that ended early, as `Options.solved_streak` says, to its end.

    Each further episode is like the last one, in which the agent found the treasure, and each
    further evaluation is like the last evaluation.
    """
    if "solved" not in record.config:
        return record
    horizon, until = record.config["horizon"]["episodes"], record.config["until"]
    last = horizon if until is None else until
    count = last - record.config["solved"]
    episodes = _repeat_last(record.episodes, count)
    episodes["env_steps"][-count:] += np.cumsum(episodes["length"][-count:])
    evaluations = record.evaluations
    if evaluations:
        every, start = record.config["options"]["evaluate_every"], len(evaluations["evaluation"])
        numbers = np.arange(evaluations["evaluation"][-1] + 1, last // every + 1)
        evaluations = _repeat_last(evaluations, len(numbers))
        evaluations["evaluation"][start:] = numbers
        evaluations["episodes"][start:] = numbers * every
        evaluations["env_steps"][start:] = episodes["env_steps"][numbers * every - 1]
    tables = {"evaluations": evaluations, "snapshots": record.snapshots}
    return replace(record, episodes=episodes, tables=tables)


def _repeat_last(table: Arrays, count: int) -> Arrays:
    return {k: np.concatenate([x, np.repeat(x[-1:], count, axis=0)]) for k, x in table.items()}


def _check_group(first: dict[str, Any], second: dict[str, Any], path: Path) -> None:
    """Raise if two configs differ in more than their seeds, or in the version of winkel."""
    one, other = (config | {"seed": 0} for config in (first, second))
    for config in (one, other):
        config["fingerprint"] = run_fingerprint(config)
    check_same_run(one, other, f"{path} is for runs that differ only in their seeds; one of them")


def _join(records: Sequence[RunRecord]) -> Arrays:
    arrays = {CONFIGS: np.frombuffer(json.dumps([r.config for r in records]).encode(), np.uint8)}
    for name in TABLES:
        parts = [part for part in (getattr(record, name) for record in records) if part]
        for column in parts[0] if parts else ():
            arrays[f"{name}/{column}"] = np.concatenate([_encode(part[column]) for part in parts])
    return arrays | {DIGEST: np.frombuffer(_digest(arrays), np.uint8)}


def _encode(x: np.ndarray) -> np.ndarray:
    """Integers as differences of neighbours, which compress well; they may wrap around."""
    return np.diff(x, axis=0, prepend=np.zeros_like(x[:1])) if x.dtype.kind in "iu" else x


def _decode(x: np.ndarray) -> np.ndarray:
    return np.cumsum(x, axis=0, dtype=x.dtype) if x.dtype.kind in "iu" else x


def _digest(arrays: Arrays) -> bytes:
    """A hash of names, types and numbers."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        x = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {x.dtype.str} {x.shape} ".encode() + x.tobytes())
    return total.digest()
