"""The page of a search: the winner, all trials, importance of parameters, and the budget."""

import math
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna.trial import FrozenTrial

from winkel.figures import style
from winkel.files import ensure_folder, write_text
from winkel.report.page import PAGE, render, svg_of
from winkel.search.space import MILESTONES, Parameter, labels
from winkel.search.summary import CompleteTrial, Summary, name_step
from winkel.search.trials import step_of

_COLUMNS = 3
_JITTER = 0.18


def write_study_page(summary: Summary, folder: Path, study: Path) -> Path:
    """Write `index.html` into a folder.

    Args:
        summary: the study.
        folder: for the page; an older page there is replaced.
        study: the study's own folder, for the command that the page shows.
    """
    ensure_folder(folder)
    page = folder / PAGE
    text = render(
        "study.html",
        summary=summary,
        figures=_draw_figures(summary),
        median=np.median([trial.total for trial in summary.complete] or [np.nan]),
        pruned=[
            (trial, name_step(summary.space, step), trial.intermediate_values[step])
            for trial in summary.pruned
            for step in [max(trial.intermediate_values)]
        ],
        apply=f"winkel search apply {shlex.quote(str(study))}",
    )
    write_text(page, text)
    return page


def _draw_figures(summary: Summary) -> dict[str, Markup]:
    """Draw the figures for which there are enough trials."""
    figures = (
        ("importance", "Importance of the parameters", summary.importance, _draw_importance),
        ("slices", "Final score by parameter", summary.complete, _draw_slices),
        ("milestones", "Scores at milestones", summary.scores, _draw_milestones),
    )
    return {
        name: svg_of(partial(draw, summary), name, title)
        for name, title, enough, draw in figures
        if enough
    }


def _draw_importance(summary: Summary) -> Figure:
    """Draw a bar for each parameter, the longest on top."""
    names = sorted(summary.importance, key=summary.importance.__getitem__)
    figure = style.new_figure(height=0.45 + 0.2 * len(names))
    axes = figure.subplots()
    axes.barh(
        names, [summary.importance[name] for name in names], color=style.QUANTILE, height=0.62
    )
    axes.set_xlabel("importance for the final score (PED-ANOVA)")
    axes.set_xlim(0, 1)
    return figure


def _draw_slices(summary: Summary) -> Figure:
    """Draw a panel for each parameter: dots for complete trials, crosses for pruned ones."""
    parameters = summary.space.parameters
    columns = min(_COLUMNS, len(parameters))
    rows = math.ceil(len(parameters) / columns)
    figure = style.new_figure(height=1.5 * rows + 0.15)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes in panels.flat[len(parameters) :]:
        axes.set_visible(False)
    for axes, (name, parameter) in zip(panels.flat, parameters.items(), strict=False):
        _draw_slice(axes, summary, name, parameter)
    for axes in panels[:, 0]:
        axes.set_ylabel("final score")
    return figure


def _draw_slice(axes: Axes, summary: Summary, name: str, parameter: Parameter) -> None:
    """Draw final scores by the values of one parameter, with the median at each of few values."""
    values = labels(parameter) if isinstance(parameter, list) else []

    def places(trials: Sequence[CompleteTrial | FrozenTrial]) -> np.ndarray:
        found = [trial.params[name] for trial in trials]
        return np.array([values.index(value) for value in found] if values else found, float)

    at, pruned = places(summary.complete), places(summary.pruned)
    scores = np.array([trial.total for trial in summary.complete])
    if values:
        for tick in np.unique(at):
            median = float(np.median(scores[at == tick]))
            axes.hlines(median, tick - 0.28, tick + 0.28, color=style.INK, lw=0.9, zorder=4)
        at, pruned = _spread(at), _spread(pruned)
        ticks = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        axes.set_xticks(range(len(values)), ticks)
        axes.set_xlim(-0.5, len(values) - 0.5)
    elif isinstance(parameter, dict) and parameter["log"]:
        axes.set_xscale("log")
    top = float(scores.max())
    below = -0.09 * top
    axes.scatter(at, scores, zorder=3, s=14, color=style.MIXTURE, alpha=0.8, linewidths=0)
    axes.scatter(
        pruned, np.full(len(pruned), below), s=9, marker="x", color=style.FAINT, linewidths=0.7
    )
    axes.set_ylim(1.8 * below, 1.06 * top)
    axes.set_title(name)


def _spread(places: np.ndarray) -> np.ndarray:
    """Move dots at the same place apart."""
    spread = places.copy()
    for place in np.unique(places):
        here = np.flatnonzero(places == place)
        if len(here) > 1:
            spread[here] += np.linspace(-_JITTER, _JITTER, len(here))
    return spread


def _draw_milestones(summary: Summary) -> Figure:
    """Draw a panel for each environment with a line for each trial, which ends where it ended."""
    environments = summary.space.environments
    complete = [trial.number for trial in summary.complete]
    figure = style.new_figure(height=1.75)
    panels = figure.subplots(1, len(environments), squeeze=False)[0]
    milestones = range(1, MILESTONES + 1)
    for index, (axes, environment) in enumerate(zip(panels, environments, strict=True)):
        for number, scores in sorted(summary.scores.items()):
            colour, width, height = style.FAINT, 0.7, 2
            if number in complete:
                colour, height = style.MIXTURE, 3
            if number in complete[:1]:  # the best
                colour, width, height = style.CATEGORICAL, 1.8, 5
            line = np.array([scores.get(step_of(index, at), np.nan) for at in milestones])
            line[~np.isfinite(line)] = np.nan
            axes.plot(
                milestones, line, color=colour, lw=width, zorder=height, marker=".", markersize=3
            )
        axes.set_xticks(milestones, ["T/5", "2T/5", "3T/5", "4T/5", "T"])
        axes.set_title(f"{environment.id}: {environment.score}")
    panels[0].set_ylabel("score")
    return figure
