"""The page of a search: the winner, all trials, importance of parameters, and the budget."""

import math
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from optuna.distributions import CategoricalDistribution

from winkel.figures import style
from winkel.files import ensure_folder, write_text
from winkel.report.page import PAGE, render, svg_of
from winkel.search.problem import MILESTONES, SearchEnvironment
from winkel.search.study import Summary

_JITTER = 0.18  # moves dots at the same place apart


def write_study_page(summary: Summary, folder: Path, study: Path) -> Path:
    """Write `index.html` into a folder; the page shows a command with the study's own folder."""
    ensure_folder(folder)
    problem = summary.study.problem
    text = render(
        "study.html",
        summary=summary,
        problem=problem,
        importance=sorted(summary.importance().items(), key=lambda item: -item[1]),
        slices=summary.complete
        and svg_of(partial(_draw_slices, summary), "slices", "Final score by parameter"),
        name_step=partial(name_step, problem.environments),
        median=np.median(summary.totals) if summary.complete else np.nan,
        url=summary.study.where,
        apply=f"winkel search apply {shlex.quote(str(study))}",
    )
    write_text(folder / PAGE, text)
    return folder / PAGE


def name_step(environments: Sequence[SearchEnvironment], step: int) -> str:
    """Name Optuna's step, such as 'deep_sea/20 at 2T/5'."""
    environment, milestone = (step - 1) // MILESTONES, (step - 1) % MILESTONES + 1
    at = "T" if milestone == MILESTONES else f"{'' if milestone == 1 else milestone}T/{MILESTONES}"
    return f"{environments[environment].id} at {at}"


def _draw_slices(summary: Summary) -> Figure:
    """Draw a panel for each parameter: dots for complete trials, crosses for pruned ones.

    Where a parameter has a list of values, a bar is the median at each.
    """
    parameters, scores = summary.study.problem.parameters, summary.totals
    columns = min(3, len(parameters))
    rows = math.ceil(len(parameters) / columns)
    figure = style.new_figure(height=1.5 * rows + 0.15)
    below, top = -0.09 * scores.max(), scores.max()
    for number, (name, parameter) in enumerate(parameters.items(), start=1):
        axes = figure.add_subplot(rows, columns, number, title=name, ylabel="final score")
        axes.set_ylim(1.8 * below, 1.06 * top)
        axes.label_outer()
        at, pruned = ([t.params[name] for t in some] for some in (summary.complete, summary.pruned))
        if isinstance(parameter, CategoricalDistribution):
            values = list(parameter.choices)
            at, pruned = ([values.index(value) for value in some] for some in (at, pruned))
            for tick in set(at):
                median = np.median(scores[np.equal(at, tick)])
                axes.hlines(median, tick - 0.28, tick + 0.28, color=style.INK, lw=0.9, zorder=4)
            at, pruned = ([*np.linspace(-_JITTER, _JITTER, len(x)) + x] for x in (at, pruned))
            ticks = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
            axes.set_xticks(range(len(values)), ticks)
            axes.set_xlim(-0.5, len(values) - 0.5)
        elif parameter.log:
            axes.set_xscale("log")
        axes.scatter(at, scores, zorder=3, s=14, color=style.MIXTURE, alpha=0.8, linewidths=0)
        crosses = np.full(len(pruned), below)
        axes.scatter(pruned, crosses, s=9, marker="x", color=style.FAINT, linewidths=0.7)
    return figure
