"""Pictures of a search: what mattered, how each value did, and when trials were stopped."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.figures import style

_COLUMNS = 3


class Slice(NamedTuple):
    """Final scores along one parameter.

    Attributes:
        name: the parameter's.
        ticks: its values in order; empty where it is any number of a range.
        log: whether numbers are shown by their logarithms.
        at: the value of each complete trial: the place among ticks, or the number itself.
        scores: of those trials.
        pruned: values of the trials that were stopped.
    """

    name: str
    ticks: tuple[str, ...]
    log: bool
    at: Float[np.ndarray, " trials"]
    scores: Float[np.ndarray, " trials"]
    pruned: Float[np.ndarray, " stopped"]


class Looks(NamedTuple):
    """Scores of all trials in one environment, by look.

    Attributes:
        title: the environment's id and the score's name.
        scores: NaN where a trial was not looked at.
        complete: which trials went through all environments.
    """

    title: str
    scores: Float[np.ndarray, "trials looks"]
    complete: np.ndarray


def draw_importance(names: list[str], shares: Float[np.ndarray, " parameters"]) -> Figure:
    """A bar for each parameter, the longest on top."""
    order = np.argsort(shares)
    figure = style.new_figure(height=0.45 + 0.2 * len(names))
    axes = figure.subplots()
    axes.barh(np.arange(len(names)), shares[order], color=style.QUANTILE, height=0.62)
    axes.set_yticks(np.arange(len(names)), [names[i] for i in order])
    axes.set_xlabel("share of what the final scores differ by (PED-ANOVA)")
    axes.set_xlim(0, 1)
    return figure


def draw_slices(slices: list[Slice]) -> Figure:
    """A panel for each parameter: a dot for each complete trial, a cross for each pruned one."""
    columns = min(_COLUMNS, len(slices))
    rows = math.ceil(len(slices) / columns)
    figure = style.new_figure(height=1.5 * rows + 0.15)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    top = max((float(part.scores.max()) for part in slices if len(part.scores)), default=1.0)
    for number, axes in enumerate(panels.flat):
        if number >= len(slices):
            axes.set_visible(False)
            continue
        _draw_slice(axes, slices[number], top)
        if number % columns == 0:
            axes.set_ylabel("final score")
    return figure


def _draw_slice(axes: Axes, part: Slice, top: float) -> None:
    below = -0.09 * top
    spread = _spread(part.at) if part.ticks else np.zeros(len(part.at))
    axes.scatter(
        part.at + spread, part.scores, zorder=3, s=14, color=style.MIXTURE, alpha=0.8, linewidths=0
    )
    apart = _spread(part.pruned) if part.ticks else np.zeros(len(part.pruned))
    axes.scatter(
        part.pruned + apart, np.full(len(part.pruned), below), s=9, marker="x", color=style.FAINT,
        linewidths=0.7,
    )  # fmt: skip
    if part.ticks:
        axes.set_xticks(range(len(part.ticks)), part.ticks)
        axes.set_xlim(-0.5, len(part.ticks) - 0.5)
        for place in range(len(part.ticks)):
            here = part.scores[part.at == place]
            if len(here):
                middle = float(np.median(here))
                ends = [place - 0.28, place + 0.28]
                axes.plot(ends, [middle, middle], color=style.INK, linewidth=0.9, zorder=4)
    elif part.log:
        axes.set_xscale("log")
    axes.set_ylim(1.8 * below, 1.06 * top)
    axes.set_title(part.name)


def _spread(places: np.ndarray) -> np.ndarray:
    """Offsets that tell dots at one place apart, the same each time."""
    offsets = np.zeros(len(places))
    for place in np.unique(places):
        here = np.flatnonzero(places == place)
        offsets[here] = np.linspace(-0.18, 0.18, len(here)) if len(here) > 1 else 0.0
    return offsets


def draw_looks(environments: list[Looks], best: int | None) -> Figure:
    """A panel for each environment, a line for each trial; where a line ends, its trial did."""
    figure = style.new_figure(height=1.75, width=style.TEXT_WIDTH)
    panels = figure.subplots(1, len(environments), squeeze=False)[0]
    for axes, part in zip(panels, environments, strict=True):
        at = np.arange(1, part.scores.shape[1] + 1)
        for trial, scores in enumerate(part.scores):
            full = bool(part.complete[trial])
            colour = style.MIXTURE if full else style.FAINT
            width, height = (1.8, 5) if trial == best else (0.7, 3 if full else 2)
            colour = style.CATEGORICAL if trial == best else colour
            axes.plot(
                at, scores, color=colour, linewidth=width, zorder=height, marker=".", markersize=3
            )
        axes.set_xticks(at, ["T/5", "2T/5", "3T/5", "4T/5", "T"])
        axes.set_title(part.title)
    panels[0].set_ylabel("score")
    return figure
