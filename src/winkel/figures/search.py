"""Figures of a search: importance of parameters, final scores by value, scores at milestones."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.figures import style

_COLUMNS = 3
_JITTER = 0.18


class Slice(NamedTuple):
    """Final scores by the values of one parameter.

    Attributes:
        name: of the parameter.
        ticks: its values in order; empty for a range.
        log: whether to use a logarithmic axis.
        at: value of each complete trial: the index of its tick, or the number itself.
        scores: final score of each complete trial.
        pruned: value of each pruned trial.
    """

    name: str
    ticks: tuple[str, ...]
    log: bool
    at: Float[np.ndarray, " trials"]
    scores: Float[np.ndarray, " trials"]
    pruned: Float[np.ndarray, " pruned"]


def draw_importance(names: list[str], shares: Float[np.ndarray, " parameters"]) -> Figure:
    """Draw a bar for each parameter, the longest on top."""
    order = np.argsort(shares)
    figure = style.new_figure(height=0.45 + 0.2 * len(names))
    axes = figure.subplots()
    axes.barh(np.arange(len(names)), shares[order], color=style.QUANTILE, height=0.62)
    axes.set_yticks(np.arange(len(names)), [names[i] for i in order])
    axes.set_xlabel("importance for the final score (PED-ANOVA)")
    axes.set_xlim(0, 1)
    return figure


def draw_slices(slices: list[Slice]) -> Figure:
    """Draw a panel for each parameter: dots for complete trials, crosses for pruned ones."""
    columns = min(_COLUMNS, len(slices))
    rows = math.ceil(len(slices) / columns)
    figure = style.new_figure(height=1.5 * rows + 0.15)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    top = max(float(part.scores.max()) for part in slices)
    for axes in panels.flat[len(slices) :]:
        axes.set_visible(False)
    for axes, part in zip(panels.flat, slices, strict=False):
        _draw_slice(axes, part, top)
    for axes in panels[:, 0]:
        axes.set_ylabel("final score")
    return figure


def _draw_slice(axes: Axes, part: Slice, top: float) -> None:
    below = -0.09 * top
    at, pruned = part.at, part.pruned
    if part.ticks:
        at, pruned = _spread(at), _spread(pruned)
        axes.set_xticks(range(len(part.ticks)), part.ticks)
        axes.set_xlim(-0.5, len(part.ticks) - 0.5)
        for tick in np.unique(part.at):
            median = float(np.median(part.scores[part.at == tick]))
            axes.hlines(median, tick - 0.28, tick + 0.28, color=style.INK, lw=0.9, zorder=4)
    elif part.log:
        axes.set_xscale("log")
    axes.scatter(at, part.scores, zorder=3, s=14, color=style.MIXTURE, alpha=0.8, linewidths=0)
    axes.scatter(
        pruned, np.full(len(pruned), below), s=9, marker="x", color=style.FAINT, linewidths=0.7
    )
    axes.set_ylim(1.8 * below, 1.06 * top)
    axes.set_title(part.name)


def _spread(places: Float[np.ndarray, " trials"]) -> Float[np.ndarray, " trials"]:
    """Move dots at the same place apart."""
    spread = places.copy()
    for place in np.unique(places):
        here = np.flatnonzero(places == place)
        if len(here) > 1:
            spread[here] += np.linspace(-_JITTER, _JITTER, len(here))
    return spread


def draw_milestones(
    titles: list[str],
    scores: Float[np.ndarray, "environments trials milestones"],
    complete: Bool[np.ndarray, " trials"],
    best: int | None,
) -> Figure:
    """Draw a panel for each environment with a line for each trial, which ends where it ended.

    Args:
        titles: of the panels.
        scores: NaN at milestones that a trial has not reached.
        complete: which trials trained in all environments.
        best: index of the best trial.
    """
    figure = style.new_figure(height=1.75, width=style.TEXT_WIDTH)
    panels = figure.subplots(1, len(titles), squeeze=False)[0]
    at = np.arange(1, scores.shape[2] + 1)
    for axes, title, lines in zip(panels, titles, scores, strict=True):
        for trial, line in enumerate(lines):
            colour, width, height = style.FAINT, 0.7, 2
            if complete[trial]:
                colour, height = style.MIXTURE, 3
            if trial == best:
                colour, width, height = style.CATEGORICAL, 1.8, 5
            axes.plot(at, line, color=colour, lw=width, zorder=height, marker=".", markersize=3)
        axes.set_xticks(at, ["T/5", "2T/5", "3T/5", "4T/5", "T"])
        axes.set_title(title)
    panels[0].set_ylabel("score")
    return figure
