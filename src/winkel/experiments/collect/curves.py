"""Learning curves: returns over training, the mean over settings for each seed, then over seeds."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from winkel.errors import InputError
from winkel.experiments.collect.common import Selection, no_band, text
from winkel.experiments.statistics import Band, student_interval
from winkel.runs.results import Arrays, Record

POINTS = 50
"""Points of a curve at most."""

LEVEL = 0.9
"""Of the intervals over seeds."""

_UNEQUAL = 1.05  # times as long as the shortest run, before it is said


class Series(NamedTuple):
    """Returns of one run over training time: after so many episodes or steps, x rises."""

    x: np.ndarray
    y: np.ndarray


class Curves(NamedTuple):
    """Of one panel: x [G], means over seeds [A, G] and how many seeds each agent has [A]."""

    x: np.ndarray
    mean: Band
    num_seeds: np.ndarray


def panels_of(
    whole: Selection,
    names: Sequence[str],
    name_of: Callable[[Record], str],
    *,
    clock: str,
    budget: Callable[[Record], Any],
    say: Callable[[Any], str],
) -> Arrays:
    """Curves of all agents in a panel for each name; leaves in `whole` the runs that are shown."""
    agents = whole.agents()
    panels, greedy, kept = [], [], []
    for name in names:
        part = Selection([record for record in whole.records if name_of(record) == name])
        part.keep_most(budget, say)
        series, by_evaluation = returns_of(part.records, part.notes, clock)
        ends = [s.x[-1] for s in series]
        if max(ends) > _UNEQUAL * min(ends):
            part.notes.append(
                f"curves end after {min(ends):,.0f} {clock}, as the shortest run does"
            )
        whole.notes += [f"{name}: {note}" for note in part.notes]
        panels.append(average(part.records, series, agents, binned=not by_evaluation))
        greedy.append(int(by_evaluation))
        kept += part.records
    whole.records = kept
    return {"agents": text(agents), "greedy": np.array(greedy), **_stacked(panels)}


def returns_of(
    records: Sequence[Record], notes: list[str], clock: str
) -> tuple[list[Series], bool]:
    """Returns of each run over 'episodes' or 'env_steps', and whether they are greedy ones.

    All or none are: greedy evaluations of some and training returns of others do not compare.
    """
    evaluated = [_evaluations(record, clock, notes) for record in records]
    without = {r.config["agent"] for r, e in zip(records, evaluated, strict=True) if not e}
    if without and any(evaluated):
        notes.append(f"training returns, for {', '.join(sorted(without))} lacks evaluations")
    found = []
    for record, evaluation in zip(records, evaluated, strict=True):
        if without:
            y = np.asarray(record.episodes["return"], float)
            steps = record.episodes.get("env_steps", np.cumsum(record.episodes["length"]))
            x = np.asarray(steps if clock == "env_steps" else np.arange(1, len(y) + 1), float)
        else:
            y = np.asarray(evaluation["returns"], float).mean(axis=-1)
            x = np.asarray(evaluation[clock], float)
        found.append(Series(x=x, y=y / scale_of(record)))
    return found, not without


def scale_of(record: Record) -> float:
    """What an environment multiplies its rewards by, in '_scale' experiments."""
    if not record.experiment.endswith("_scale"):
        return 1.0
    return float(record.config.get("setting", {}).get("reward_scale", 1.0))


def average(
    records: Sequence[Record], series: Sequence[Series], agents: Sequence[str], *, binned: bool
) -> Curves:
    """The mean over settings of each seed, then over seeds, for all agents."""
    x, points = _binned(series) if binned else _interpolated(series)
    by_seed: dict[tuple[str, int], list[np.ndarray]] = defaultdict(list)
    for record, values in zip(records, points, strict=True):
        by_seed[record.config["agent"], record.config["seed"]].append(values)
    seeds: dict[str, list[np.ndarray]] = {agent: [] for agent in agents}
    for (agent, _), settings in by_seed.items():
        seeds[agent].append(np.mean(settings, axis=0))
    found = no_band((len(agents), len(x)))
    for index, curves in enumerate(seeds.values()):
        if curves:
            for array, values in zip(found, student_interval(np.stack(curves), LEVEL), strict=True):
                array[index] = values
    return Curves(x, found, np.array([len(curves) for curves in seeds.values()]))


def _stacked(panels: Sequence[Curves]) -> Arrays:
    """Panels one after the other, padded with NaN to `POINTS`."""

    def pad(values: np.ndarray) -> np.ndarray:
        room = [(0, 0)] * (values.ndim - 1) + [(0, POINTS - values.shape[-1])]
        return np.pad(values, room, constant_values=np.nan)

    return {
        "x": np.stack([pad(panel.x) for panel in panels]),
        **{
            name: np.stack([pad(getattr(panel.mean, field)) for panel in panels])
            for name, field in (("mean", "estimate"), ("low", "low"), ("high", "high"))
        },
        "num_seeds": np.stack([panel.num_seeds for panel in panels]),
    }


def _evaluations(record: Record, clock: str, notes: list[str]) -> Arrays:
    try:
        found = record.evaluations()
    except InputError as error:
        notes.append(str(error))
        return {}
    whole = clock in found and len(found.get("returns", ()))
    return found if whole else {}


def _binned(series: Sequence[Series]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Means over equal parts of the time, up to where the first run has its last episode.

    A part in which no episode ended is interpolated.
    """
    end = min(s.x[-1] for s in series)
    bins = max(1, min(POINTS, *(int((s.x <= end).sum()) for s in series)))
    edges = np.linspace(0.0, end, bins + 1)
    points = []
    for s in series:
        inside = s.x <= max(end, s.x[0])
        place = np.clip(np.searchsorted(edges, s.x[inside], side="left") - 1, 0, bins - 1)
        count = np.bincount(place, minlength=bins)
        total = np.bincount(place, weights=s.y[inside], minlength=bins)
        have = np.flatnonzero(count)
        points.append(np.interp(np.arange(bins), have, total[have] / count[have]))
    return edges[1:], points


def _interpolated(series: Sequence[Series]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Between evaluations, from where all runs have had one to where the first has had its last."""
    first, last = max(s.x[0] for s in series), min(s.x[-1] for s in series)
    x = np.linspace(first, max(first, last), min(POINTS, *(len(s.x) for s in series)))
    return x, [np.interp(x, s.x, s.y) for s in series]
