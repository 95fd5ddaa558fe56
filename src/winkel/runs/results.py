"""All runs under a folder, and what is wrong with them: the input of figures and reports."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from winkel.errors import InputError
from winkel.runs.metrics import read_metrics
from winkel.runs.record import CHECKPOINTS, CONFIG, Arrays, RunRecord, load_run, load_unfinished
from winkel.runs.sweep import SWEEPS

__all__ = ["Arrays", "Results", "RunRecord", "read_results"]

_OBJECTS = ("versions", "config", "hyper", "horizon")
"""Entries of a config that hold others."""


class Results(NamedTuple):
    """Runs, and one line for everything that a reader of their averages should know.

    Attributes:
        records: runs by environment, agent and seed.
        problems: unfinished, failed and damaged runs, mixed versions, unequal seeds.
        sweeps: the calls of `winkel sweep` that made them: what was run, on what, how long.
    """

    records: tuple[RunRecord, ...]
    problems: tuple[str, ...]
    sweeps: tuple[dict[str, Any], ...] = ()

    def of(self, **wanted: Any) -> list[RunRecord]:
        """Records with these entries in their config."""
        return [r for r in self.records if all(r.config.get(k) == v for k, v in wanted.items())]

    def agents(self) -> list[str]:
        """Names of the agents, sorted."""
        return sorted({record.config["agent"] for record in self.records})


def read_results(root: Path, *, unfinished: bool = False) -> Results:
    """Read all runs under a folder. Raises only if there is no run at all.

    Runs that have not ended are among the problems; with `unfinished` they are records too, up to
    their newest checkpoint.
    """
    if not root.is_dir():
        raise InputError(f"no such folder: {root}")
    folders = sorted(path for path in root.glob("*/*/*/seed-*") if path.is_dir())
    records, problems = [], []
    for folder in folders:
        try:
            record, problem = _read_run(folder, unfinished)
        except InputError as error:
            record, problem = None, str(error)
        if problem:
            problems.append(f"{folder.relative_to(root)}: {problem}")
        if record is not None:
            records.append(record)
    if not records:
        raise InputError(
            f"no {'' if unfinished else 'finished '}runs in {root}"
            + (f" ({'; '.join(problems[:3])})" if problems else "")
        )
    records.sort(key=lambda r: (r.config["env"], r.config["agent"], r.config["seed"]))
    sweeps: list[dict[str, Any]] = []
    try:
        sweeps = read_metrics(root / SWEEPS) if (root / SWEEPS).is_file() else []
    except InputError as error:
        problems.append(str(error))
    return Results(
        records=tuple(records),
        problems=(*problems, *_versions(records), *_unequal(records), *_mixed(records)),
        sweeps=tuple(sweeps),
    )


def _read_run(folder: Path, unfinished: bool) -> tuple[RunRecord | None, str]:
    """The run of a folder, if it can be used, and what is wrong with it."""
    finished, begun = (folder / CONFIG).is_file(), (folder / CHECKPOINTS).is_dir()
    if not finished and not (unfinished and begun):
        return None, "unfinished" if begun else "empty"
    record = load_run(folder) if finished else load_unfinished(folder)
    for name in _OBJECTS:
        if not isinstance(record.config.get(name, {}), dict):
            return None, f"{name} of its config is no object"
    if record.config.get("status") == "failed":
        return None, f"failed, {record.config.get('reason')}"
    if finished:
        return record, ""
    return record, f"unfinished, its first {len(record.episodes['return']):,} episodes"


def _versions(records: Iterable[RunRecord]) -> list[str]:
    found = sorted({str(r.config.get("versions", {}).get("winkel")) for r in records})
    return [f"runs of different versions of winkel: {', '.join(found)}"] if len(found) > 1 else []


def _unequal(records: Iterable[RunRecord]) -> list[str]:
    """Environments in which agents have different seeds."""
    seeds: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for record in records:
        seeds[record.config["env"]][record.config["agent"]].add(record.config["seed"])
    problems = []
    for env, by_agent in seeds.items():
        if len({frozenset(found) for found in by_agent.values()}) > 1:
            counts = ", ".join(f"{agent} {len(found)}" for agent, found in by_agent.items())
            problems.append(f"{env}: agents have different seeds ({counts})")
    return problems


def _mixed(records: Iterable[RunRecord]) -> list[str]:
    """Agents whose runs in an environment have different settings."""
    settings: dict[tuple[str, str], set[str]] = defaultdict(set)
    for record in records:
        chosen = {key: record.config.get(key) for key in (*_OBJECTS[1:], "until")}
        key = record.config["env"], record.config["agent"]
        settings[key].add(json.dumps(chosen, sort_keys=True))
    return [
        f"{env}: runs of {agent} have {len(found)} different settings"
        for (env, agent), found in settings.items()
        if len(found) > 1
    ]
