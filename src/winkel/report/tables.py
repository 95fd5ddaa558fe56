"""What the tables of the report hold: returns, scores, aggregates, deep sea, settings and records.

Functions return plain values; `templates/report.html` lays them out.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from winkel.agents import AGENTS, VARIANTS
from winkel.analysis import statistics
from winkel.analysis.scores import OFFICIAL_IDS
from winkel.analysis.statistics import Interval, median_iqr
from winkel.figures import radar, scores
from winkel.figures.common import agent_of, first_goal, first_treasure, num_episodes, size_of
from winkel.figures.learning_curves import average_settings, panel_names, panel_of, scale_of
from winkel.figures.style import agent_style, in_order
from winkel.runs.results import Arrays, Results, RunRecord
from winkel.runs.spec import fingerprint

OURS = "pe_dqn"
MOST_LINKED = 3000
"""Runs that are linked one by one; with more runs, only their folders are linked."""

Table = dict[str, Any]


def return_rows(results: Results) -> list[Table]:
    """What was measured, by environment and agent: runs, final and greedy returns, first goal.

    Means have 95 % Student t intervals over seeds. bsuite's settings are averaged for each seed
    first, as in learning curves.
    """
    groups: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for r in results.records:
        if num_episodes(r):
            groups[panel_of(r), agent_of(r)].append(r)
    names, agents = panel_names(results.records), list(in_order(results.agents()))
    rows = []
    for name, agent in sorted(groups, key=lambda key: (names.index(key[0]), agents.index(key[1]))):
        runs = groups[name, agent]
        num_settings = len({r.config["env"] for r in runs})
        first = np.array([first_goal(r) for r in runs])
        evaluated = [r for r in runs if len(r.evaluations.get("returns", ()))]
        returns = {
            "final": _over_seeds(runs, _final_return),
            "last": _over_seeds(evaluated, lambda r: r.evaluations["returns"][-1].mean()),
            "best": _over_seeds(evaluated, lambda r: r.evaluations["returns"].mean(-1).max()),
            "first": None if num_settings > 1 or np.isnan(first).any() else median_iqr(first),
        }
        num_seeds = len({r.config["seed"] for r in runs})
        row = {"env": name, "settings": num_settings, "agent": agent, "seeds": num_seeds}
        rows.append(row | _budgets(runs) | returns)
    return rows


def _final_return(record: RunRecord) -> float:
    """Mean training return of the last tenth of the episodes, as searches score it."""
    returns = record.episodes["return"]
    return returns[-max(len(returns) // 10, 1) :].mean()


def _over_seeds(runs: list[RunRecord], value: Callable[[RunRecord], float]) -> Interval | None:
    """Mean over seeds of a value of runs, which is averaged over the settings of a seed first."""
    if not runs:
        return None
    values = [np.asarray(float(value(r)) / scale_of(r)) for r in runs]
    (seeds,) = average_settings(runs, values).values()
    return Interval(*map(float, statistics.student_interval(seeds, confidence=0.95)))


def score_tables(results: Results) -> Table:
    """Official scores by capability and by experiment, and aggregates over experiments."""
    tags, experiments = radar.collect(results), scores.collect(results)
    return {
        "notes": experiments["notes"].tolist(),
        "capabilities": _score_table(tags, tags["tags"]),
        "experiments": _score_table(experiments, experiments["experiments"]),
        "aggregates": _aggregates(experiments),
    }


def _score_table(arrays: Arrays, names: np.ndarray) -> Table:
    """A row for each name with a score: an interval for each agent, and the numbers of seeds."""
    agents = in_order(arrays["agents"])
    seeds = (~np.isnan(arrays["seed_scores"])).sum(axis=-1)  # [agents, names]
    bounds = np.stack([arrays[part] for part in Interval._fields], axis=-1)
    rows = []
    for column, name in enumerate(names.tolist()):
        if have := [n for n in seeds[:, column].tolist() if n > 0]:
            cells = [Interval(*bounds[row, column].tolist()) for row in agents.values()]
            rows.append({"name": name.replace("_", " "), "cells": cells, "seeds": have})
    return {"agents": list(agents), "rows": rows}


def _aggregates(arrays: Arrays) -> Table:
    """IQM, optimality gap and probability of improvement of agents that have every experiment.

    Every experiment means those that the most complete agent has for each of its seeds.
    """
    names = arrays["agents"].tolist()
    by_agent = [rows[:, ~np.isnan(rows).all(axis=0)] for rows in arrays["seed_scores"]]
    full = [~np.isnan(rows).any(axis=1) for rows in by_agent]  # for each agent [experiments]
    whole = max(full, key=lambda have: int(have.sum()))
    matrices = {
        name: by_agent[i][whole].T  # [seeds, experiments]
        for name, i in in_order(names).items()
        if whole.any() and full[i][whole].all()
    }
    rows = [
        {
            "agent": name,
            "iqm": statistics.stratified_bootstrap(matrix, statistics.iqm),
            "gap": statistics.stratified_bootstrap(matrix, statistics.optimality_gap),
            "better": statistics.probability_of_improvement(matrices[OURS], matrix)
            if OURS in matrices and name != OURS
            else None,
            "seeds": len(matrix),
        }
        for name, matrix in matrices.items()
    ]
    others = [agent_style(name).label for name in names if name not in matrices]
    return {"rows": rows, "num_experiments": int(whole.sum()), "others": others}


def deep_sea_rows(results: Results) -> list[Table]:
    """Deep sea by size and agent: seeds that found the treasure, first goal, regret."""
    groups: dict[tuple[str, int, str, int], list[RunRecord]] = defaultdict(list)
    for r in results.records:
        known = "bad" in r.episodes and num_episodes(r)
        if r.experiment in ("deep_sea", "deep_sea_stochastic") and known:
            sweep = "bsuite" if r.config["env"] in OFFICIAL_IDS else "extension"
            kind = sweep + r.experiment.removeprefix("deep_sea").replace("_", " ")
            groups[kind, size_of(r), agent_of(r), num_episodes(r)].append(r)
    agents = list(in_order({agent for _, _, agent, _ in groups}))
    rows = []
    for key in sorted(groups, key=lambda key: (key[0], key[1], agents.index(key[2]), key[3])):
        kind, size, agent, budget = key
        first = np.array([first_treasure(r) for r in groups[key]])
        regret = np.array([float(np.sum(r.episodes["bad"])) for r in groups[key]])
        found = int(np.isfinite(first).sum())
        row = {"size": size, "agent": agent, "seeds": len(first), "budget": budget, "sweep": kind}
        row |= {"found": found, "share": statistics.wilson_interval(found, len(first))}
        rows.append(row | {"first": median_iqr(first), "regret": median_iqr(regret)})
    return rows


def settings_rows(results: Results) -> list[Table]:
    """Budgets of each agent, and which of its fields differ from their defaults."""
    rows = []
    for name in in_order(results.agents()):
        runs = results.of(agent=name)
        algorithm = str(runs[0].config.get("algorithm", name))
        base = VARIANTS.get(algorithm, (algorithm,))[0]
        row = {"agent": name, "base": base, "runs": len(runs), "changes": changes(base, runs)}
        rows.append(row | _budgets(runs))
    return rows


def _budgets(runs: list[RunRecord]) -> Table:
    """Episodes and steps of each run."""
    steps = [int(r.episodes["length"].sum()) for r in runs]
    return {"episodes": [num_episodes(r) for r in runs], "steps": steps}


def changes(agent: str, runs: Iterable[RunRecord]) -> dict[str, list[str]]:
    """Fields that are not always at the agent's default, each with all its values.

    The support is left out, as its default depends on the environment.
    """
    known: dict[str, Any] = {}
    if kind := AGENTS.get(agent):
        known = vars(kind.config_type()) | kind.hyper_type._field_defaults
    values: dict[str, set[str]] = defaultdict(set)
    for r in runs:
        for field, value in {**r.config.get("config", {}), **r.config.get("hyper", {})}.items():
            values[field].add(_write(value))
    return {
        field: sorted(found)
        for field, found in sorted(values.items())
        if (default := _write(known.get(field))) != "nan" and found != {default}
    }


def _write(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(_write, value)) or "none"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{float(value):g}"
    return value if isinstance(value, str) else json.dumps(value)


def provenance(results: Results) -> dict[str, str]:
    """Versions, hardware, failed runs, and the hash of all settings."""
    records = results.records
    failed = sum(": failed, " in line for line in results.problems)
    hardware = {str(r.config["hardware"]) for r in records if "hardware" in r.config}
    versions: Counter[str] = Counter()
    for r in records:
        known = sorted(r.config.get("versions", {}).items())
        versions[", ".join(f"{k} {v}" for k, v in known) or "unknown"] += 1
    fingerprints = {str(i): r.config.get("fingerprint", "") for i, r in enumerate(records)}
    return {
        "versions": "; ".join(f"{name} ({n:,} runs)" for name, n in sorted(versions.items())),
        "hardware": "; ".join(sorted(hardware)) or "not recorded",
        "runs that failed": f"{failed:,}, listed under problems; their episodes are in no table",
        "hash of all settings": fingerprint(fingerprints),
    }


def link(path: Path, out: Path) -> str:
    """Write a link relative to the report's folder, so that runs and report can move together."""
    return quote(os.path.relpath(path.resolve(), out.resolve()).replace(os.sep, "/"))
