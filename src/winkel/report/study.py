"""The page of a search: the winner, all trials, importance of parameters, and the budget."""

import math
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial

from winkel.figures import style
from winkel.files import ensure_folder, write_text
from winkel.report.page import PAGE, render, svg_of
from winkel.search.problem import MILESTONES, SearchEnvironment
from winkel.search.study import Summary

_COLUMNS = 3
_JITTER = 0.18  # moves dots at the same place apart


def write_study_page(summary: Summary, folder: Path, study: Path) -> Path:
    """Write `index.html` into a folder; the page shows a command with the study's own folder."""
    ensure_folder(folder)
    page = folder / PAGE
    environments = summary.study.problem.environments
    text = render(
        "study.html",
        summary=summary,
        problem=summary.study.problem,
        importance=sorted(summary.importance().items(), key=lambda item: -item[1]),
        slices=svg_of(partial(_draw_slices, summary), "slices", "Final score by parameter")
        if summary.complete
        else None,
        pruned=[
            (trial, name_step(environments, step), trial.intermediate_values[step])
            for trial in summary.pruned
            for step in [max(trial.intermediate_values)]
        ],
        median=np.median(summary.totals) if summary.complete else np.nan,
        url=summary.study.where,
        apply=f"winkel search apply {shlex.quote(str(study))}",
    )
    write_text(page, text)
    return page


def name_step(environments: Sequence[SearchEnvironment], step: int) -> str:
    """Name Optuna's step, such as 'deep_sea/20 at 2T/5'."""
    environment, milestone = (step - 1) // MILESTONES, (step - 1) % MILESTONES + 1
    at = "T" if milestone == MILESTONES else f"{'' if milestone == 1 else milestone}T/{MILESTONES}"
    return f"{environments[environment].id} at {at}"


def _draw_slices(summary: Summary) -> Figure:
    """Draw a panel for each parameter: dots for complete trials, crosses for pruned ones."""
    parameters = summary.study.problem.parameters
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


def _draw_slice(axes: Axes, summary: Summary, name: str, parameter: BaseDistribution) -> None:
    """Draw final scores by the values of one parameter, with the median at each of few values."""
    values = parameter.choices if isinstance(parameter, CategoricalDistribution) else ()

    def places(trials: Sequence[FrozenTrial]) -> np.ndarray:
        found = [trial.params[name] for trial in trials]
        return np.array([values.index(value) if values else value for value in found], float)

    at, pruned, scores = places(summary.complete), places(summary.pruned), summary.totals
    if values:
        for tick in np.unique(at):
            median = float(np.median(scores[at == tick]))
            axes.hlines(median, tick - 0.28, tick + 0.28, color=style.INK, lw=0.9, zorder=4)
        at, pruned = (x + np.linspace(-_JITTER, _JITTER, len(x)) for x in (at, pruned))
        ticks = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        axes.set_xticks(range(len(values)), ticks)
        axes.set_xlim(-0.5, len(values) - 0.5)
    elif getattr(parameter, "log", False):
        axes.set_xscale("log")
    top = float(scores.max())
    below = -0.09 * top
    axes.scatter(at, scores, zorder=3, s=14, color=style.MIXTURE, alpha=0.8, linewidths=0)
    axes.scatter(
        pruned, np.full(len(pruned), below), s=9, marker="x", color=style.FAINT, linewidths=0.7
    )
    axes.set_ylim(1.8 * below, 1.06 * top)
    axes.set_title(name)
