"""Runs on disk: `winkel.load` with their agents; `read_results` for figures and reports."""

import dataclasses
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winkel.envs.outside import confirm
from winkel.errors import InputError, require_type
from winkel.extensions import permit
from winkel.files import load_arrays
from winkel.runs.compact import fill_solved, find_compact, read_compact
from winkel.runs.record import (
    CHECKPOINT_FOLDER,
    CONFIG,
    Arrays,
    RunRecord,
    Training,
    find_runs,
    load_run,
)
from winkel.runs.spec import RunSpec, run_folder
from winkel.runs.sweep import SWEEPS
from winkel.runs.train import add_learner

COMPUTED = "computed.npz"
"""Arrays for claims that need no runs."""


def load(
    path: str | Path, env: Any = None, code: str | type | Sequence[str | type] = ()
) -> Training:
    """Load runs from disk: the folder of one run, or one with runs of one agent and environment.

    A run that has not ended is loaded as its newest checkpoint has it. Code that a folder names
    is run only if the user names it, too: an environment such as 'my_module:make', or the function
    that was given to `winkel.train`, as `env`; agents and projections such as
    'my_module:Boltzmann', or their classes, as `code`.
    """
    require_type("path", path, str | os.PathLike, "a folder")
    permit(*([code] if isinstance(code, str | type) else code))
    path = Path(path)
    folders = [seed for seed in sorted(path.glob("seed-*")) if seed.is_dir()]
    if (path / CONFIG).is_file() or (path / CHECKPOINT_FOLDER).is_dir():
        folders = [path]
    runs = []
    for folder in folders or find_runs(path):
        record = load_run(folder, unfinished=True)
        try:
            spec = RunSpec.from_config(record.config)
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{folder} was not made by `winkel train`: it lacks {error}"
            ) from error
        if env is not None:
            spec = dataclasses.replace(spec, task=confirm(spec.task, env))
        runs.append(add_learner(record, spec))
    runs.sort(key=lambda run: run.config["seed"])
    kinds = sorted({(run.config["env"], run.config["agent"]) for run in runs})
    if len(kinds) > 1:
        raise InputError(
            f"need runs of one agent in one environment under {path}, got "
            f"{', '.join(f'{agent} in {env}' for env, agent in kinds[:4])}"
        )
    return Training(runs=tuple(runs))


class Results(NamedTuple):
    """Runs, and one line for everything that a reader of their averages should know."""

    records: tuple[RunRecord, ...]
    """By environment, agent and seed."""
    problems: tuple[str, ...]
    """Unfinished, failed and damaged runs, mixed versions, unequal seeds."""
    sweeps: tuple[dict[str, Any], ...] = ()
    """The calls of `winkel sweep` that made them."""
    computed: Mapping[str, np.ndarray] = {}
    """Arrays of `computed.npz`, if the folder has one: what needs no runs (results/computed.py)."""

    def of(self, **wanted: Any) -> list[RunRecord]:
        """Records with these entries in their config."""
        return [r for r in self.records if all(r.config.get(k) == v for k, v in wanted.items())]

    def agents(self) -> list[str]:
        """Names of the agents, sorted."""
        return sorted({record.config["agent"] for record in self.records})


def read_results(root: Path, *, unfinished: bool = False) -> Results:
    """Read all runs and compact records under a folder. Raises only if there is no run at all.

    A run that ended early because it was solved is continued to its horizon (`fill_solved`). Runs
    that have not ended are among the problems; with `unfinished` they are records too, up to
    their newest checkpoint.
    """
    if not root.is_dir():
        raise InputError(f"no such folder: {root}")
    folders = sorted(path for path in root.glob("*/*/*/seed-*") if path.is_dir())
    records, problems = [], []
    for folder in folders:
        try:
            record, problem = _read_run(root, folder, unfinished)
        except InputError as error:
            record, problem = None, str(error)
        if problem:
            text = f"{folder.relative_to(root)}: {problem}"
            problems.append(text.encode(errors="backslashreplace").decode())
        if record is not None:
            records.append(fill_solved(record))
    have = {folder.relative_to(root) for folder in folders}
    for path in find_compact(root):
        try:
            compact = read_compact(path)
        except InputError as error:
            problems.append(str(error))
            continue
        for record in compact:
            place = run_folder(Path(), *(record.config[name] for name in ("env", "agent", "seed")))
            if record.config.get("status") == "failed":
                problems.append(f"{place}: failed, {record.config.get('reason')}")
            elif place not in have:
                records.append(fill_solved(record))
    if solved := sum("solved" in r.config for r in records):
        problems.append(
            f"{solved} of {len(records)} runs ended early, solved; further episodes are counted as "
            "rewarded"
        )
    if not records:
        kind, why = "" if unfinished else "finished ", "; ".join(problems[:3])
        raise InputError(f"no {kind}runs in {root}{f' ({why})' if why else ''}")
    records.sort(key=lambda r: (r.config["env"], r.config["agent"], r.config["seed"]))
    sweeps: list[dict[str, Any]] = []
    computed: Arrays = {}
    try:
        sweeps = read_metrics(root / SWEEPS) if (root / SWEEPS).is_file() else []
        computed = load_arrays(root / COMPUTED) if (root / COMPUTED).is_file() else {}
    except InputError as error:
        problems.append(str(error))
    versions = sorted({str(r.config.get("versions", {}).get("winkel")) for r in records})
    if len(versions) > 1:
        problems.append(f"runs of different versions of winkel: {', '.join(versions)}")
    for env, group in itertools.groupby(records, lambda record: record.config["env"]):
        runs = list(group)
        problems += [f"{env}: {note}" for note in unequal_seeds(runs) + unequal_settings(runs)]
    return Results(tuple(records), tuple(problems), tuple(sweeps), computed)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a .jsonl file, without a last line that a killed writer left unfinished."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"line {number} of {path} is damaged ({error})") from error
    return rows


def _read_run(root: Path, folder: Path, unfinished: bool) -> tuple[RunRecord | None, str]:
    """The run of a folder, if it can be used, and what is wrong with it."""
    finished, begun = (folder / CONFIG).is_file(), (folder / CHECKPOINT_FOLDER).is_dir()
    if not finished and not (unfinished and begun):
        return None, "unfinished" if begun else "empty"
    record = load_run(folder, unfinished)
    _ = record.evaluations, record.snapshots  # raise if they are damaged
    place = run_folder(root, *(record.config[name] for name in ("env", "agent", "seed")))
    if folder != place:
        return None, f"belongs in {place.relative_to(root)}, by its config"
    if record.config.get("status") == "failed":
        return None, f"failed, {record.config.get('reason')}"
    if finished:
        return record, ""
    return record, f"unfinished, its first {len(record.episodes['return']):,} episodes"


def unequal_seeds(records: Iterable[RunRecord]) -> list[str]:
    """Agents that lack an environment or seed which others have, in one line."""
    have: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for record in records:
        have[record.config["agent"]].add((record.config["env"], record.config["seed"]))
    most = len(set().union(*have.values()))
    fewer = ", ".join(f"{name} {len(own)}" for name, own in sorted(have.items()) if len(own) < most)
    return [f"of {most} pairs of setting and seed some agents have fewer: {fewer}"] if fewer else []


def unequal_settings(records: Iterable[RunRecord], ignored: Sequence[str] = ()) -> list[str]:
    """Fields and horizons that differ between runs of an agent, in one line."""
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for record in records:
        config = record.config
        fields = {**config.get("config", {}), **config.get("hyper", {})}
        fields |= {name: config.get(name) for name in ("horizon", "until")}
        for field in fields.keys() - set(ignored):
            values[config["agent"], field].add(json.dumps(fields[field], sort_keys=True))
    uneven = [f"{agent} in {field}" for (agent, field), v in sorted(values.items()) if len(v) > 1]
    return [f"runs differ: {', '.join(uneven)}"] if uneven else []
