"""What collectors share: which runs go together, what is said of the others, seeds as the unit."""

import dataclasses
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from winkel.errors import InputError
from winkel.experiments.statistics import Band, Interval
from winkel.runs.results import Record, Results

_RUN_PROBLEM = re.compile(r"(?P<experiment>[^/]+)/(?P<agent>[^/]+)/[^/]+/seed-\d+: ")
_BY_ENVIRONMENT = ("z_min", "z_max")  # defaults that follow the range of the environment's returns


@dataclass
class Selection:
    """The runs of a figure. Each step that leaves some out says so in the notes."""

    records: list[Record]
    notes: list[str] = dataclasses.field(default_factory=list)

    def keep(self, wanted: Callable[[Record], bool], otherwise: str) -> None:
        """Leave out runs; `otherwise` says which they are, after 'left out: 3 runs'."""
        others = [r for r in self.records if not wanted(r)]
        self.records = [r for r in self.records if wanted(r)]
        if others:
            self.notes.append(f"left out: {_count(others)} {otherwise}")

    def keep_most(self, key: Callable[[Record], Any], say: Callable[[Any], str]) -> Any:
        """Only runs that have the commonest value of a key, the largest of equally common ones."""
        groups: dict[Any, int] = defaultdict(int)
        for record in self.records:
            groups[key(record)] += 1
        chosen = max(groups, key=lambda value: (groups[value], value))
        others = [f"{n} {say(value)}" for value, n in sorted(groups.items()) if value != chosen]
        if others:
            self.notes.append(f"only runs {say(chosen)}; left out: {', '.join(others)}")
        self.records = [r for r in self.records if key(r) == chosen]
        return chosen

    def keep_first(self, key: Callable[[Record], Hashable], what: str) -> None:
        """One run of each; the second of the same agent and seed is not another sample."""
        found: set[Hashable] = set()
        first = []
        for record in self.records:
            if key(record) not in found:
                found.add(key(record))
                first.append(record)
        if len(first) < len(self.records):
            extra = len(self.records) - len(first)
            self.notes.append(f"left out: {extra} further runs of the same {what}")
        self.records = first

    def agents(self) -> list[str]:
        """Names, sorted."""
        return sorted({r.config["agent"] for r in self.records})

    def closing_notes(self) -> np.ndarray:
        """All notes, with what is unequal among the runs that are left."""
        return text([*self.notes, *_unequal_seeds(self.records), *_unequal_settings(self.records)])


def select(
    results: Results,
    what: str,
    *,
    experiment: Callable[[str], bool],
    agent: Callable[[str], bool] = lambda _: True,
    having: Sequence[str] = (),
) -> Selection:
    """Runs of some experiments and agents; `having` are columns that each run must have."""
    selection = Selection(
        [r for r in results.records if experiment(r.experiment) and agent(r.config["agent"])],
        _problems(results, experiment, agent),
    )
    if not selection.records:
        raise InputError(f"no {what} runs")
    columns = " and ".join(having)
    selection.keep(lambda r: all(c in r.episodes for c in having), f"without {columns}")
    if not selection.records:
        raise InputError(f"no {what} runs with {columns}")
    selection.keep(lambda r: len(r.episodes["return"]) > 0, "in which no episode ended")
    if not selection.records:
        raise InputError(f"no {what} runs in which an episode ended")
    return selection


def num_episodes(record: Record) -> int:
    """How many a run has."""
    return len(record.episodes["return"])


def budget_of(record: Record) -> int:
    """How many episodes a run has in the end: it has them, or its plan says so if it goes on."""
    horizon = record.config.get("horizon") or {}
    planned = record.config.get("until") or horizon.get("episodes")
    return num_episodes(record) if record.finished or not planned else int(planned)


def text(lines: Iterable[str]) -> np.ndarray:
    """Strings as an array, also when there are none."""
    return np.array(list(lines), dtype=np.str_)


def seed_table(
    records: Iterable[Record],
    axes: Sequence[tuple[Sequence[Any], Callable[[Record], Any]]],
    value: Callable[[Record], Any],
) -> np.ndarray:
    """Values by the labels of some axes, the last axis over seeds [..., K]; NaN where none is."""
    cells: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for record in records:
        place = tuple(labels.index(key(record)) for labels, key in axes)
        cells[place].append(float(value(record)))
    table = np.full(
        (*(len(labels) for labels, _ in axes), max(map(len, cells.values()), default=0)), np.nan
    )
    for place, values in cells.items():
        table[place][: len(values)] = values
    return table


def over_seeds(table: np.ndarray, statistic: Callable[[np.ndarray], Interval | Band]) -> Band:
    """A statistic of the values in each cell of a table [..., K]; NaN where a cell has none."""
    found = no_band(table.shape[:-1])
    for place in np.ndindex(table.shape[:-1]):
        values = table[place][~np.isnan(table[place])]
        if values.size:
            for array, number in zip(found, statistic(values), strict=True):
                array[place] = number
    return found


def no_band(shape: tuple[int, ...]) -> Band:
    """NaN everywhere, to be filled."""
    return Band(*(np.full(shape, np.nan) for _ in Band._fields))


def _count(records: Sequence[Record]) -> str:
    return f"{len(records)} run{'s' if len(records) > 1 else ''}"


def _problems(
    results: Results, experiment: Callable[[str], bool], agent: Callable[[str], bool]
) -> list[str]:
    """Those that concern these experiments and agents, wholly missing ones included."""
    found = []
    for line in results.problems:
        run = _RUN_PROBLEM.match(line)
        if run is None:
            if "agents have different seeds" not in line:  # said for the runs shown, further below
                found.append(line)
        elif experiment(run["experiment"]) and agent(run["agent"]):
            found.append(line)
    return found


def _unequal_seeds(records: Iterable[Record]) -> list[str]:
    """One line on agents that lack a setting or seed which others have in that experiment."""
    have: dict[str, set[tuple[str, int]]] = defaultdict(set)
    envs: dict[str, set[str]] = defaultdict(set)
    seeds: dict[str, set[int]] = defaultdict(set)
    for record in records:
        have[record.config["agent"]].add((record.config["env"], record.config["seed"]))
        envs[record.experiment].add(record.config["env"])
        seeds[record.experiment].add(record.config["seed"])
    every = {pair for name in envs for pair in itertools.product(envs[name], seeds[name])}
    fewer = [f"{agent} {len(h)}" for agent, h in sorted(have.items()) if len(h) < len(every)]
    if not fewer:
        return []
    return [f"of {len(every)} pairs of setting and seed some agents have fewer: {', '.join(fewer)}"]


def _unequal_settings(records: Iterable[Record]) -> list[str]:
    """Agents whose runs differ in a field, but for a support that follows the environment."""
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for record in records:
        fields = {**record.config.get("config", {}), **record.config.get("hyper", {})}
        for field, value in fields.items():
            if field not in _BY_ENVIRONMENT:
                values[record.config["agent"]][field].add(json.dumps(value))
    lines = []
    for agent, fields in sorted(values.items()):
        uneven = [field for field, found in fields.items() if len(found) > 1]
        if uneven:
            lines.append(f"runs of {agent} differ in {', '.join(uneven)}")
    return lines
