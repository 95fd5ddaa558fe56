"""All runs under a folder, and what is wrong with them: the input of run figures and reports."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winkel.errors import InputError
from winkel.files import load_all
from winkel.runs.folder import CONFIG, Run, check_run, load_run
from winkel.runs.metrics import read_metrics
from winkel.runs.recording import CHECKPOINTS, EVALUATIONS, SNAPSHOTS, table_so_far

Arrays = dict[str, np.ndarray]

_OBJECTS = ("versions", "config", "hyper", "horizon")
"""Entries of a config that hold others."""
SWEEPS = "sweeps.jsonl"
"""One line for every sweep that ended: what it was, how long it took, on what."""


class Record(NamedTuple):
    """One run that has ended well, or one that goes on, where those were asked for.

    Attributes:
        folder: where it is.
        config: its settings; 'env', 'agent' and 'seed' at least.
        episodes: arrays over episodes: 'return', 'length', facts.
        finished: whether it has ended; else all is as its newest checkpoint has it.
    """

    folder: Path
    config: dict[str, Any]
    episodes: Arrays
    finished: bool = True

    @property
    def experiment(self) -> str:
        """Such as 'deep_sea' of 'deep_sea/3' and of 'deep_sea:size=50'."""
        return self.config["env"].replace(":", "/").split("/")[0]

    def evaluations(self) -> Arrays:
        """Greedy evaluations, empty where none were made."""
        return self._table("evaluations", EVALUATIONS)

    def snapshots(self) -> Arrays:
        """Looks at all countable observations, empty where none were made."""
        return self._table("snapshots", SNAPSHOTS)

    def _table(self, name: str, file: str) -> Arrays:
        if not self.finished:
            return table_so_far(self.folder, name)[0]
        path = self.folder / file
        return load_all(path) if path.is_file() else {}


class Results(NamedTuple):
    """Runs, and one line for everything that a reader of their averages should know.

    Attributes:
        records: runs by environment, agent and seed.
        problems: unfinished, failed and damaged runs, mixed versions, unequal seeds.
        sweeps: the calls of `winkel sweep` that made them: what was run, on what, how long.
    """

    records: tuple[Record, ...]
    problems: tuple[str, ...]
    sweeps: tuple[dict[str, Any], ...] = ()

    def of(self, **wanted: Any) -> list[Record]:
        """Records with these entries in their config."""
        return [r for r in self.records if all(r.config.get(k) == v for k, v in wanted.items())]

    def agents(self) -> list[str]:
        """Names of the agents, sorted."""
        return sorted({record.config["agent"] for record in self.records})


def read_results(root: Path, *, unfinished: bool = False) -> Results:
    """Everything under a folder of runs. Raises only where there is no run at all.

    Runs that have not ended are named among the problems, and with `unfinished` they are records
    too, up to their newest checkpoint.
    """
    if not root.is_dir():
        raise InputError(f"no such folder: {root}")
    folders = sorted(path for path in root.glob("*/*/*/seed-*") if path.is_dir())
    records, problems = [], []
    for folder in folders:
        name, finished = folder.relative_to(root), (folder / CONFIG).is_file()
        begun = (folder / CHECKPOINTS).is_dir()
        if not finished and not (unfinished and begun):
            problems.append(f"{name}: {'unfinished' if begun else 'empty'}")
            continue
        try:
            run = load_run(folder) if finished else _so_far(folder)
        except InputError as error:
            problems.append(f"{name}: {error}")
            continue
        if not finished:
            count = len(run.episodes["return"])
            problems.append(f"{name}: unfinished, its first {count:,} episodes")
        foreign = [k for k in _OBJECTS if not isinstance(run.config.get(k, {}), dict)]
        if foreign:
            problems.append(f"{name}: {foreign[0]} of its config is no object")
            continue
        if run.config.get("status") == "failed":
            problems.append(f"{name}: failed, {run.config.get('reason')}")
            continue
        records.append(Record(folder, run.config, run.episodes, finished))
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


def _so_far(folder: Path) -> Run:
    """A run that has not ended; its newest checkpoint may be damaged, or be of something else."""
    episodes, config = table_so_far(folder, "episodes")
    run = Run(config=config, episodes=episodes)
    check_run(run, str(folder))
    return run


def _versions(records: Iterable[Record]) -> list[str]:
    found = sorted({str(r.config.get("versions", {}).get("winkel")) for r in records})
    return [f"runs of different versions of winkel: {', '.join(found)}"] if len(found) > 1 else []


def _unequal(records: Iterable[Record]) -> list[str]:
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


def _mixed(records: Iterable[Record]) -> list[str]:
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
