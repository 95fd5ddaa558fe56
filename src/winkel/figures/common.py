"""Shared by figures: select runs, note what is left out, and tables over seeds."""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from winkel.analysis.statistics import Interval, median_iqr
from winkel.envs.registry import EXPERIMENTS
from winkel.errors import InputError
from winkel.runs.results import Results, RunRecord, unequal_seeds, unequal_settings

_RUN_PROBLEM = re.compile(r"(?P<experiment>[^/]+)/(?P<agent>[^/]+)/[^/]+/seed-\d+: ")
_IN_ALL_NOTES = ("some agents have fewer", "runs differ")
BY_ENVIRONMENT = ("z_min", "z_max", "horizon", "until")
"""Settings of an agent that may differ between environments."""


@dataclass
class Selection:
    """The runs of a figure and, in a word, what they are. Steps that leave out runs add a note."""

    what: str
    records: list[RunRecord]
    notes: list[str] = dataclasses.field(default_factory=list)

    def keep(self, wanted: Callable[[RunRecord], bool], kept: str, otherwise: str) -> None:
        """Keep the runs that are wanted and note how many are left out; raise if none is left.

        The texts end "no … runs {kept}" and "left out: 3 runs {otherwise}".
        """
        found = [r for r in self.records if wanted(r)]
        if not found:
            raise InputError(f"no {self.what} runs {kept}")
        if count := len(self.records) - len(found):
            self.notes.append(f"left out: {count} run{'s' if count > 1 else ''} {otherwise}")
        self.records = found

    def keep_most(self, key: Callable[[RunRecord], Any], describe: Callable[[Any], str]) -> Any:
        """Keep runs with the commonest value of a key, the largest of equally common ones."""
        counts = Counter(map(key, self.records))
        chosen = max(counts, key=lambda value: (counts[value], value))
        others = [f"{n} {describe(v)}" for v, n in sorted(counts.items()) if v != chosen]
        if others:
            self.notes.append(f"only runs {describe(chosen)}; left out: {', '.join(others)}")
        self.records = [r for r in self.records if key(r) == chosen]
        return chosen

    def agents(self) -> list[str]:
        """Names, sorted."""
        return sorted(set(map(agent_of, self.records)))

    def arrays(self, table: np.ndarray, **labels: Any) -> dict[str, np.ndarray]:
        """Labels, medians and quartiles over the seeds of a table [..., seeds], and notes."""
        return {
            **{name: np.asarray(label) for name, label in labels.items()},
            **over_seeds(table, median_iqr)._asdict(),
            "num_seeds": (~np.isnan(table)).sum(axis=-1),
            "notes": self.all_notes(),
        }

    def all_notes(self) -> np.ndarray:
        """All notes, with what is unequal among the remaining runs."""
        unequal = unequal_seeds(self.records) + unequal_settings(self.records, BY_ENVIRONMENT)
        return np.array(self.notes + unequal, np.str_)


def select(
    results: Results, what: str, wanted: Callable[[str, str], bool], column: str = "return"
) -> Selection:
    """Select runs with a column of experiments and agents that are wanted, with their problems."""

    def concerns(problem: str) -> bool:
        run = _RUN_PROBLEM.match(problem)
        mine = run is None or wanted(run["experiment"], run["agent"])
        return mine and not any(words in problem for words in _IN_ALL_NOTES)

    found = [record for record in results.records if wanted(record.experiment, agent_of(record))]
    if not found:
        raise InputError(f"no {what} runs")
    selection = Selection(what, found, [*filter(concerns, results.problems)])
    selection.keep(lambda r: column in r.episodes, f"with {column}", f"without {column}")
    selection.keep(
        lambda r: num_episodes(r) > 0, "in which an episode ended", "in which no episode ended"
    )
    return selection


def agent_of(record: RunRecord) -> str:
    """The name under which an agent was run."""
    return str(record.config["agent"])


def num_episodes(record: RunRecord) -> int:
    """The number of episodes that ended."""
    return len(record.episodes["return"])


def weight_of(name: str) -> str:
    """Bold letters for an experiment that bsuite tags as exploration."""
    hard = name in EXPERIMENTS and "exploration" in EXPERIMENTS[name].tags
    return "bold" if hard else "normal"


def seed_table(
    records: Iterable[Any],
    labels: Iterable[Hashable],
    key: Callable[[Any], Hashable],
    value: Callable[[Any], Any],
) -> np.ndarray:
    """Tabulate the values of each label's runs, [labels, seeds, ...]; NaN fills short rows."""
    rows: dict[Hashable, list[Any]] = {label: [] for label in labels}
    for record in records:
        rows[key(record)].append(value(record))
    inner = next(np.shape(values[0]) for values in rows.values() if values)
    table = np.full((len(rows), max(map(len, rows.values())), *inner), np.nan)
    for row, values in zip(table, rows.values(), strict=True):
        if values:
            row[: len(values)] = values
    return table


def over_seeds(table: np.ndarray, statistic: Callable[[np.ndarray], Interval]) -> Interval:
    """Apply a statistic to the values in each cell of a table [..., seeds]; NaN in empty cells."""

    def of_cell(values: np.ndarray) -> Interval:
        known = values[~np.isnan(values)]
        return statistic(known) if known.size else Interval(np.nan, np.nan, np.nan)

    return Interval(*np.moveaxis(np.apply_along_axis(of_cell, -1, table), -1, 0))


def deep_sea_runs(
    results: Results,
    column: str,
    agent: Callable[[str], bool] = lambda _: True,
    what: str = "deep_sea",
) -> Selection:
    """Select runs of deep sea with a column, of any size but otherwise with equal settings."""
    selection = select(results, what, lambda exp, name: exp == "deep_sea" and agent(name), column)

    def other_settings(record: RunRecord) -> str:
        setting = record.config["setting"]
        others = setting.keys() - {"size", "mapping_seed"}
        return json.dumps({key: setting[key] for key in others}, sort_keys=True)

    selection.keep_most(other_settings, lambda settings: f"with settings {settings}")
    return selection


def keep_one_budget(
    selection: Selection,
    key: Callable[[RunRecord], Hashable] = agent_of,
    what: str = "agent",
    *,
    one_size: bool = True,
) -> int:
    """Keep runs of the commonest size and number of episodes, one of each key, size and seed."""
    if one_size:
        selection.keep_most(size_of, lambda n: f"of size {n}")
    budget: int = selection.keep_most(num_episodes, lambda n: f"of {n:,} episodes")
    first: dict[Hashable, RunRecord] = {}
    for record in selection.records:
        first.setdefault((key(record), size_of(record), record.config["seed"]), record)
    if extra := len(selection.records) - len(first):
        selection.notes.append(f"left out: {extra} further runs of the same {what}, size and seed")
    selection.records = list(first.values())
    return budget


def size_of(record: RunRecord) -> int:
    """N of a deep sea of N × N cells."""
    return int(record.config["setting"]["size"])


def regret_of(record: RunRecord) -> float:
    """The number of episodes without treasure; infinity if there was none at all."""
    bad = np.asarray(record.episodes["bad"], bool)
    return np.inf if bad.all() else float(bad.sum())


def greedy_regret(record: RunRecord) -> float:
    """The number of episodes without treasure if each had been greedy.

    An evaluation stands for the episodes since the one before; the last one for all that follow.
    """
    table = record.evaluations
    missed = (np.asarray(table["returns"]) <= 0).mean(axis=-1)
    ends = np.append(table["episodes"][:-1], num_episodes(record))
    return float((np.diff(ends, prepend=0) * missed).sum())


def first_treasure(record: RunRecord) -> float:
    """The first episode with treasure, counted from 1; infinity if there is none."""
    return _first(~np.asarray(record.episodes["bad"], bool))


def first_goal(record: RunRecord) -> float:
    """The first episode that reached a goal, as `first_treasure`; NaN if goals are not recorded."""
    facts = [record.episodes[name] for name in ("goal", "treasure") if name in record.episodes]
    return _first(facts[0]) if facts else np.nan


def _first(reached: np.ndarray) -> float:
    places = np.flatnonzero(reached)
    return float(places[0] + 1) if len(places) else np.inf


def visited_shares(record: RunRecord) -> np.ndarray:
    """The share of reachable state-actions visited so far, after each episode."""
    size = size_of(record)
    return np.asarray(record.episodes["visited"], float) / (size * (size + 1))


def note_unsolved(names: Iterable[str], regret: np.ndarray) -> list[str]:
    """Count the runs without any treasure; `regret` has a row for each name."""
    counts = ", ".join(
        f"{name} {np.isinf(runs).sum()}/{(~np.isnan(runs)).sum()}"
        for name, runs in zip(names, regret, strict=True)
        if np.isinf(runs).any()
    )
    return [f"runs without any treasure, shown at the budget: {counts}"] if counts else []
