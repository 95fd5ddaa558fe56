"""What the tables of the report hold: scores, aggregates, deep sea, settings and records.

Functions return plain values; `templates/report.html` lays them out.
"""

import dataclasses
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from winkel.agents import AGENTS, VARIANTS
from winkel.analysis.scores import OFFICIAL_IDS
from winkel.analysis.statistics import (
    Interval,
    iqm,
    median_iqr,
    optimality_gap,
    probability_of_improvement,
    stratified_bootstrap,
    student_interval,
    wilson_interval,
)
from winkel.figures import radar, scores
from winkel.figures.common import agent_of, first_treasure, num_episodes, over_seeds, size_of
from winkel.figures.style import agent_style, in_order
from winkel.runs.results import Arrays, Results, RunRecord
from winkel.runs.spec import fingerprint

OURS = "pe_dqn"
MOST_LINKED = 3000
"""Runs that are linked one by one; with more runs, only their folders are linked."""

Table = dict[str, Any]


def score_tables(results: Results) -> Table:
    """Official scores by capability and by experiment, and aggregates over experiments."""
    tags, experiments = radar.collect(results), scores.collect(results)
    mean, low, high = over_seeds(tags["seed_scores"], partial(student_interval, confidence=0.95))
    by_tag = Interval(mean, np.clip(low, 0, 1), np.clip(high, 0, 1))
    by_experiment = Interval(*(experiments[name] for name in Interval._fields))
    return {
        "notes": experiments["notes"].tolist(),
        "capabilities": _score_table(tags, tags["tags"], by_tag),
        "experiments": _score_table(experiments, experiments["experiments"], by_experiment),
        "aggregates": _aggregates(experiments),
    }


def _score_table(arrays: Arrays, names: np.ndarray, found: Interval) -> Table:
    """A row for each name with a score: an interval for each agent, and the numbers of seeds."""
    agents = in_order(arrays["agents"])
    seeds = (~np.isnan(arrays["seed_scores"])).sum(axis=-1)  # [agents, names]
    rows = []
    for column, name in enumerate(names.tolist()):
        have = [n for n in seeds[:, column].tolist() if n > 0]
        if have:
            cells = [Interval(*(float(p[row, column]) for p in found)) for row in agents.values()]
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
            "iqm": stratified_bootstrap(matrix, iqm),
            "gap": stratified_bootstrap(matrix, optimality_gap),
            "better": probability_of_improvement(matrices[OURS], matrix)
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
        rows.append(
            {
                "size": size,
                "agent": agent,
                "found": found,
                "seeds": len(first),
                "share": wilson_interval(found, len(first)),
                "first": median_iqr(first),
                "regret": median_iqr(regret),
                "budget": budget,
                "sweep": kind,
            }
        )
    return rows


def settings_rows(results: Results) -> list[Table]:
    """Budgets of each agent, and which of its fields differ from their defaults."""
    rows = []
    for name in in_order(results.agents()):
        runs = results.of(agent=name)
        algorithm = str(runs[0].config.get("algorithm", name))
        base = VARIANTS[algorithm][0] if algorithm in VARIANTS else algorithm
        rows.append(
            {
                "agent": name,
                "base": base,
                "runs": len(runs),
                "episodes": [num_episodes(r) for r in runs],
                "steps": [int(r.episodes["length"].sum()) for r in runs],
                "changes": changes(base, runs),
            }
        )
    return rows


def changes(agent: str, runs: Iterable[RunRecord]) -> dict[str, list[str]]:
    """Fields that are not always at the agent's default, each with all its values.

    A support that follows the environment by default is left out where it does.
    """
    known: dict[str, Any] = {}
    if kind := AGENTS.get(agent):
        known = {f.name: f.default for f in dataclasses.fields(kind.config)}
        known |= kind.hyper._field_defaults
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
    versions = Counter(
        ", ".join(f"{k} {v}" for k, v in sorted(r.config.get("versions", {}).items()))
        for r in records
    )
    fingerprints = {str(i): r.config.get("fingerprint", "") for i, r in enumerate(records)}
    return {
        "versions": "; ".join(
            f"{name or 'unknown'} ({n:,} runs)" for name, n in sorted(versions.items())
        ),
        "hardware": "; ".join(sorted(hardware)) or "not recorded",
        "runs that failed": f"{failed:,}, listed under problems; their episodes are in no table",
        "hash of all settings": fingerprint(fingerprints),
    }


def link(path: Path, out: Path) -> str:
    """Write a link relative to the report's folder, so that runs and report can move together."""
    return quote(os.path.relpath(path.resolve(), out.resolve()).replace(os.sep, "/"))
