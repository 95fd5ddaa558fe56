"""Returns over episodes, a panel for each experiment of bsuite (App. B.4)."""

import math
from collections import defaultdict
from collections.abc import Callable, Container, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from winkel.analysis.statistics import student_interval
from winkel.envs.registry import EXPERIMENTS
from winkel.figures import common, style
from winkel.figures.common import Selection, agent_of, num_episodes
from winkel.files import Arrays
from winkel.runs.results import Results, RunRecord

Curve = tuple[np.ndarray, np.ndarray]
"""Numbers of episodes or steps, which rise, and returns after them."""

TITLE = "Learning curves (Fig. 10)"
POINTS = 50
"""Points of a curve, at most."""
LEVEL = 0.9
"""Confidence of the intervals over seeds."""

_MOST_COLUMNS = 4
_UNEQUAL = 1.05  # note if the longest run is more than so many times as long as the shortest


def collect(results: Results) -> dict[str, np.ndarray]:
    """Mean returns in each experiment of bsuite, with 90 % Student t bands.

    Returns are of greedy evaluations if all runs of an experiment have them, else of training,
    averaged over fiftieths of the budget. Those of '_scale' experiments are divided by their scale.
    """
    selection = common.select(results, "bsuite", experiments=EXPERIMENTS)
    found = {r.experiment for r in selection.records}
    experiments = [name for name in EXPERIMENTS if name in found]
    return {
        "experiments": np.array(experiments),
        "hard": common.hard_exploration(experiments),
        **collect_panels(selection, experiments, lambda r: r.experiment, clock="episodes"),
    }


def collect_panels(
    selection: Selection, names: Sequence[str], name_of: Callable[[RunRecord], str], *, clock: str
) -> dict[str, np.ndarray]:
    """Curves of all agents in a panel for each name, [names, agents, points], and notes.

    Curves are padded with NaN to `POINTS`. Only runs of the commonest budget are shown. `clock` is
    'episodes' or 'env_steps'.
    """
    agents = selection.agents()
    shape = (len(names), len(agents), POINTS)
    x = np.full((len(names), POINTS), np.nan)
    bands = {key: np.full(shape, np.nan) for key in ("estimate", "low", "high")}
    greedy, num_seeds = np.zeros(len(names), int), np.zeros(shape[:2], int)
    kept: list[RunRecord] = []
    for panel, name in enumerate(names):
        part = Selection(name, [record for record in selection.records if name_of(record) == name])
        part.keep_most(_planned, lambda budget: "of {:,} {}".format(*budget))
        curves, greedy[panel] = _returns(part, clock)
        ends = [steps[-1] for steps, _ in curves]
        if max(ends) > _UNEQUAL * min(ends):
            end = f"{min(ends):,.0f} {clock}"
            part.notes.append(f"curves end after {end}, as the shortest run does")
        at, values = _interpolate(curves) if greedy[panel] else _bin(curves)
        x[panel, : len(at)] = at
        for agent, seeds in _average_settings(part.records, values).items():
            place = panel, agents.index(agent)
            num_seeds[place] = len(seeds)
            for band, found in zip(bands.values(), student_interval(seeds, LEVEL), strict=True):
                band[place][: len(at)] = found
        selection.notes += [f"{name}: {note}" for note in part.notes]
        kept += part.records
    selection.records = kept
    return {
        "agents": np.array(agents),
        "greedy": greedy,
        "x": x,
        **bands,
        "num_seeds": num_seeds,
        "notes": selection.all_notes(),
    }


def _planned(record: RunRecord) -> tuple[int, str]:
    """The length of a whole run, also of one that has not ended: steps if planned, or episodes."""
    horizon = record.config.get("horizon") or {}
    if horizon.get("steps"):
        return horizon["steps"], "steps"
    episodes = record.config.get("until") or horizon.get("episodes") or num_episodes(record)
    return episodes, "episodes"


def _returns(part: Selection, clock: str) -> tuple[list[Curve], bool]:
    """The returns of each run, and whether they are greedy.

    All or none are: evaluations of some runs cannot be compared with training returns of others.
    """
    records = part.records
    tables = [record.evaluations for record in records]
    evaluated = [table if len(table.get("returns", ())) else {} for table in tables]
    without = {agent_of(r) for r, e in zip(records, evaluated, strict=True) if not e}
    if without and any(evaluated):
        part.notes.append(f"training returns, for {', '.join(sorted(without))} lacks evaluations")
    curves = []
    for record, evaluation in zip(records, evaluated, strict=True):
        if without:
            y = np.asarray(record.episodes["return"], float)
            steps = record.episodes.get("env_steps", np.cumsum(record.episodes["length"]))
            x = np.asarray(steps if clock == "env_steps" else np.arange(1, len(y) + 1), float)
        else:
            y = np.asarray(evaluation["returns"], float).mean(axis=-1)
            x = np.asarray(evaluation[clock], float)
        curves.append((x, y / record.config.get("setting", {}).get("reward_scale", 1.0)))
    return curves, not without


def _average_settings(
    records: Sequence[RunRecord], values: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """The mean over settings of each seed, by agent [seeds, points]."""
    by_seed: dict[tuple[str, int], list[np.ndarray]] = defaultdict(list)
    for record, curve in zip(records, values, strict=True):
        by_seed[agent_of(record), record.config["seed"]].append(curve)
    seeds: dict[str, list[np.ndarray]] = defaultdict(list)
    for (agent, _), settings in by_seed.items():
        seeds[agent].append(np.mean(settings, axis=0))
    return {agent: np.stack(curves) for agent, curves in seeds.items()}


def _bin(curves: Sequence[Curve]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Average over equal parts of the time, up to the last episode of the shortest run.

    A part in which no episode ended is interpolated.
    """
    end = min(x[-1] for x, _ in curves)
    bins = max(1, min(POINTS, *(int((x <= end).sum()) for x, _ in curves)))
    edges = np.linspace(0.0, end, bins + 1)
    points = []
    for x, y in curves:
        inside = x <= max(end, x[0])
        place = np.clip(np.searchsorted(edges, x[inside], side="left") - 1, 0, bins - 1)
        count = np.bincount(place, minlength=bins)
        total = np.bincount(place, weights=y[inside], minlength=bins)
        have = np.flatnonzero(count)
        points.append(np.interp(np.arange(bins), have, total[have] / count[have]))
    return edges[1:], points


def _interpolate(curves: Sequence[Curve]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Interpolate between evaluations, over the time in which all runs have been evaluated."""
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    at = np.linspace(first, max(first, last), min(POINTS, *(len(x) for x, _ in curves)))
    return at, [np.interp(at, x, y) for x, y in curves]


def draw(results: Arrays) -> Figure:
    """Draw mean returns and their bands; titles of hard exploration are bold."""
    names = results["experiments"]
    figure = draw_panels(results, names, "episodes", bold=names[results["hard"] == 1])
    write_caption(figure, results, "settings, then over ")
    return figure


def draw_panels(
    results: Arrays, names: np.ndarray, clock: str, bold: Container[str] = (), sharey: bool = False
) -> Figure:
    """Draw curves of all agents in a panel for each name, over a clock such as 'episodes'.

    Bands may leave a panel: they exceed the means by no more than the range of the means.
    """
    agents = style.in_order(results["agents"])
    columns = min(_MOST_COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    width = style.TEXT_WIDTH if columns > 2 else 1.3 + 1.9 * columns
    figure = style.new_figure(height=0.45 + (1.7 if rows == 1 else 1.15) * rows, width=width)
    panels = figure.subplots(rows, columns, sharey=sharey, squeeze=False).ravel()
    greedy = results["greedy"]
    mixed = len(set(greedy.tolist())) > 1
    kind = "return" if mixed else "greedy return" if greedy.all() else "training return"
    for axes in panels[len(names) :]:
        axes.remove()
    for index, (axes, name) in enumerate(zip(panels, names.tolist(), strict=False)):
        for agent, row in agents.items():
            if results["num_seeds"][index, row]:
                curve = style.spread_at(results, index, row)
                style.draw_band(axes, results["x"][index], curve, agent, len(agents))
        axes.set_title(
            name.replace("_", " ") + ("*" if mixed and not greedy[index] else ""),
            fontweight="bold" if name in bold else "normal", fontsize=7, pad=3,
        )  # fmt: skip
        style.count_axis(axes, bins=3)
        axes.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 2.5, 5, 10]))
        axes.ticklabel_format(axis="y", scilimits=(-2, 4), useMathText=True)
        axes.yaxis.get_offset_text().set_fontsize(5.5)
        mean = results["estimate"] if sharey else results["estimate"][index]
        low, high = float(np.nanmin(mean)), float(np.nanmax(mean))
        room = max(high - low, 0.02 * max(abs(low), abs(high)), 1e-6)
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, low - room), min(top, high + room))
        axes.tick_params(labelsize=6, pad=1.5, length=2)
        if index + columns >= len(names):
            axes.set_xlabel(clock, fontsize=7, labelpad=2)
        if index % columns == 0:
            axes.set_ylabel(kind, fontsize=7)
    style.legend_above(figure, agents)
    return figure


def write_caption(figure: Figure, results: Arrays, over: str = "") -> None:
    """Write beneath a figure of curves what they are means `over`, and whether they are greedy."""
    bands = ", with 90 % Student t bands" if results["num_seeds"].max() > 1 else ""
    caption = f"Means over {over}{style.seeds_text(results['num_seeds'])}{bands}"
    if 0 < results["greedy"].mean() < 1:
        caption += "; returns of the greedy policy, but in panels with * of training"
    if not results["greedy"].all():
        points = int(np.isfinite(results["x"]).sum(axis=-1).max())
        caption += f"; training returns are averaged over 1/{points} of the time"
    if any(name.endswith("_scale") for name in results.get("experiments", ())):
        caption += "; returns of scale experiments are divided by the scale"
    style.write_below(figure, f"{caption}.", results["notes"])
