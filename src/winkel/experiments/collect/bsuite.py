"""bsuite's official scores: by capability for the radar, by experiment for the bars."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial

import numpy as np

from winkel.envs.bsuite.sweep import EXPERIMENTS, TAGS
from winkel.errors import InputError
from winkel.experiments.collect.common import (
    Selection,
    num_episodes,
    over_seeds,
    select,
    text,
)
from winkel.experiments.score import OFFICIAL_IDS, score_runs, score_tags
from winkel.experiments.statistics import student_interval
from winkel.runs.folder import Run
from winkel.runs.results import Arrays, Results

Scores = Mapping[tuple[str, int], Mapping[str, float]]
"""By agent and seed, then by experiment or capability."""


def collect_radar(results: Results) -> Arrays:
    """The mean over seeds of each seed's score by capability, [agents, capabilities]."""
    scored, notes = _score(results)
    by_tag = {key: score_tags(scores) for key, scores in scored.items()}
    agents, table = _table(by_tag, TAGS)
    return {
        "agents": text(agents),
        "tags": text(TAGS),
        "seed_scores": table,
        "mean": over_seeds(table, student_interval).estimate,
        "notes": notes,
    }


def collect_scores(results: Results) -> Arrays:
    """Mean scores by experiment, with 95 % Student t intervals over seeds, within [0, 1]."""
    scored, notes = _score(results)
    present = {name for scores in scored.values() for name in scores}
    experiments = [name for name in EXPERIMENTS if name in present]
    agents, table = _table(scored, experiments)
    mean, low, high = over_seeds(table, partial(student_interval, confidence=0.95))
    return {
        "agents": text(agents),
        "experiments": text(experiments),
        "hard": hard(experiments),
        "seed_scores": table,
        "mean": mean,
        "low": np.clip(low, 0, 1),
        "high": np.clip(high, 0, 1),
        "notes": notes,
    }


def hard(experiments: list[str]) -> np.ndarray:
    """1 for experiments that bsuite tags as exploration, else 0."""
    found = [EXPERIMENTS[name].tags if name in EXPERIMENTS else () for name in experiments]
    return np.array(["exploration" in tags for tags in found], int)


def _score(results: Results) -> tuple[Scores, np.ndarray]:
    """Scores of official settings by agent and seed, and what is missing from them."""
    selection = select(results, "bsuite", experiment=EXPERIMENTS.__contains__)
    selection.keep(lambda r: r.config["env"] in OFFICIAL_IDS, "in settings not among bsuite's 468")
    if not selection.records:
        raise InputError("no runs of bsuite's own settings (such as deep_sea/0)")
    selection.notes += [*_incomplete(selection), *_short(selection)]
    scored = score_runs(Run(r.config, r.episodes) for r in selection.records)
    selection.notes += _absent(scored)
    return scored, selection.closing_notes()


def _table(scores: Scores, columns: list[str] | tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """[agents, columns, seeds], NaN where a seed has no score."""
    by_agent: dict[str, list[list[float]]] = defaultdict(list)
    for (agent, _), found in scores.items():
        by_agent[agent].append([found.get(column, np.nan) for column in columns])
    table = np.full((len(by_agent), len(columns), max(map(len, by_agent.values()))), np.nan)
    for index, rows in enumerate(by_agent.values()):
        table[index, :, : len(rows)] = np.transpose(rows)
    return list(by_agent), table


def _incomplete(selection: Selection) -> list[str]:
    """Experiments of which some agent and seed has only some settings."""
    found: dict[str, dict[tuple[str, int], int]] = defaultdict(lambda: defaultdict(int))
    for record in selection.records:
        found[record.experiment][record.config["agent"], record.config["seed"]] += 1
    shown = []
    for name, counts in found.items():
        of = len(EXPERIMENTS[name].settings)
        fewer = {key: n for key, n in counts.items() if n < of}
        if fewer:
            who = "" if len(fewer) == len(counts) else ", ".join(sorted({a for a, _ in fewer}))
            shown.append(f"{name} {_range(fewer.values())}/{of}" + (f" ({who})" if who else ""))
    return [f"only some settings: {', '.join(shown)}"] if shown else []


def _short(selection: Selection) -> list[str]:
    """Experiments whose runs end before bsuite's number of episodes, which scores are made for."""
    lengths: dict[str, set[int]] = defaultdict(set)
    for record in selection.records:
        if num_episodes(record) < EXPERIMENTS[record.experiment].num_episodes:
            lengths[record.experiment].add(num_episodes(record))
    names: dict[str, list[str]] = defaultdict(list)
    for name, found in lengths.items():
        names[_range(found)].append(name)
    shown = [
        f"{number} in {', '.join(found) if len(found) < 4 else f'{len(found)} experiments'}"
        for number, found in names.items()
    ]
    return [f"fewer episodes than bsuite's: {'; '.join(shown)}"] if shown else []


def _range(numbers: Collection[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _absent(scored: Scores) -> list[str]:
    """Experiments without a score, for all agents or for some."""
    have: dict[str, set[str]] = defaultdict(lambda: set(EXPERIMENTS))
    for (agent, _), scores in scored.items():
        have[agent] &= {name for name, score in scores.items() if not np.isnan(score)}
    nowhere = [name for name in EXPERIMENTS if not any(name in found for found in have.values())]
    lines = []
    if nowhere:
        few = len(EXPERIMENTS) - len(nowhere)
        named = f": none of {', '.join(nowhere)}" if len(nowhere) <= few else ""
        lines.append(f"{few} of {len(EXPERIMENTS)} experiments{named}")
    for agent, found in have.items():
        missing = [name for name in EXPERIMENTS if name not in found and name not in nowhere]
        if missing:
            lines.append(f"{agent} lacks, for a seed or more: {', '.join(missing)}")
    return lines
