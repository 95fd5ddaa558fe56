"""A maze from above: its walls, where episodes start and end, where an agent has been when."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from winkel.errors import InputError
from winkel.figures import lines, shapes, style
from winkel.files import Arrays

SHAPES = {
    "segments": "walls ends xy",
    "visits": "panels rows columns",
    "extent": "edges",
    "starts": "starts xy",
    "goal": "xy",
}
NEEDS = shapes.needs(SHAPES)

MOST_COLUMNS = 4
"""Panels beside each other; more of them make another row."""

DECADES = 3
"""The colours' range: cells with less than a thousandth of the most visited one look like it."""

_MARGIN = 0.03  # around the walls, of the map's width
_FLOOR = "#EDEDED"
_FINENESS = 480  # cells across the map in which floor is told from rock

_START: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 3.6,
    "markerfacecolor": "white",
    "markeredgecolor": style.INK,
    "markeredgewidth": 0.8,
}
_GOAL: dict[str, Any] = {
    "linestyle": "none",
    "marker": "*",
    "markersize": 7.5,
    "markerfacecolor": style.CATEGORICAL,
    "markeredgecolor": "white",
    "markeredgewidth": 0.5,
}


def draw(results: Arrays) -> Figure:
    """A panel for each of `titles`, in which cells are coloured by their share of the steps.

    `segments` are the walls; `visits` count steps, row 0 at the lowest y, in cells that fill
    `extent` (left, right, bottom, top) in the walls' units; `starts` and `goal` are places. All
    panels have one scale, which is logarithmic; floor without a visit is left grey.
    """
    titles = _check(results)
    left, right, bottom, top = _edges(results["segments"])
    rows = -(-len(titles) // MOST_COLUMNS)
    columns = -(-len(titles) // rows)
    width = min(style.TEXT_WIDTH, 0.75 + 2.2 * columns)
    panel = (width - 0.75) / columns
    figure = style.new_figure(
        width=width, height=0.12 + rows * (0.2 + panel * (top - bottom) / (right - left))
    )
    figure.set_layout_engine("compressed", w_pad=0.02, h_pad=0.02)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    shares = _shares(results["visits"])
    ground = _floor_image(results["segments"])
    most = float(shares.max())
    scale = LogNorm(most / 10**DECADES, most, clip=True)
    for axes, title, share in zip(panels, titles, shares, strict=False):
        _paint(axes, ground, _bounds(results["segments"]), cmap=ListedColormap([_FLOOR]))
        image = _paint(axes, share, results["extent"], cmap="viridis_r", norm=scale)
        _draw_maze(axes, results)
        axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
        axes.set_title(title, pad=3, fontsize=7.5)
    for axes in panels:
        axes.set_axis_off()
    _draw_bar(figure, image, list(panels))
    starts = len(results["starts"])
    named = {"start" if starts == 1 else f"one of {starts} starts": _START, "goal": _GOAL}
    lines.place_legend(figure, [Line2D([], [], label=name, **look) for name, look in named.items()])
    cell = _cell(results)
    style.write_below(
        figure,
        f"Share of a panel's steps in each cell of {cell[0]:g} × {cell[1]:g} map units, on a "
        "logarithmic scale; grey: never there.",
        results["notes"],
    )
    return figure


def _check(results: Arrays) -> list[str]:
    """The titles; raises unless the arrays fit together."""
    shapes.check(results, SHAPES)
    for name, length, axis in (("segments", 2, 1), ("goal", 2, 0), ("extent", 4, 0)):
        if results[name].shape[axis] != length:
            raise InputError(f"need {length} numbers in {name}, got {results[name].shape[axis]}")
    return shapes.check_visits(results)


def _edges(segments: np.ndarray) -> tuple[float, float, float, float]:
    """What a panel shows: the walls and a margin."""
    left, right, bottom, top = _bounds(segments)
    margin = _MARGIN * (right - left)
    return left - margin, right + margin, bottom - margin, top + margin


def _bounds(segments: np.ndarray) -> tuple[float, float, float, float]:
    (left, bottom), (right, top) = segments.min(axis=(0, 1)), segments.max(axis=(0, 1))
    return float(left), float(right), float(bottom), float(top)


def _shares(visits: np.ndarray) -> np.ndarray:
    """Of each panel's steps; zero in a panel without any."""
    total = visits.sum(axis=(1, 2), keepdims=True)
    return visits / np.maximum(total, 1)


def _cell(results: Arrays) -> tuple[float, float]:
    left, right, bottom, top = results["extent"]
    _, rows, columns = results["visits"].shape
    return float((right - left) / columns), float((top - bottom) / rows)


def floor(segments: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which of the points (x, y) lie inside closed walls: a ray to the east meets an odd number.

    Shape [y, x].
    """
    (x0, y0), (x1, y1) = segments[:, 0].T, segments[:, 1].T
    crosses = (y0 > y[:, None]) != (y1 > y[:, None])  # [y, walls]
    rise = np.where(y0 == y1, 1.0, y1 - y0)
    where = x0 + (x1 - x0) * (y[:, None] - y0) / rise  # [y, walls]
    east = crosses[:, None] & (where[:, None] > x[None, :, None])  # [y, x, walls]
    return east.sum(axis=-1) % 2 == 1


def _floor_image(segments: np.ndarray) -> np.ndarray:
    """Ones inside the walls, nothing outside, over their whole extent."""
    left, right, bottom, top = _bounds(segments)
    x, y = (
        low + (high - low) * (np.arange(_FINENESS) + 0.5) / _FINENESS
        for low, high in ((left, right), (bottom, top))
    )
    return floor(segments, x, y).astype(float)


def _paint(axes: Axes, cells: np.ndarray, extent: Iterable[float], **how: Any) -> AxesImage:
    """Cells with something in them; the others show what is beneath."""
    left, right, bottom, top = (float(edge) for edge in extent)
    return axes.imshow(
        np.ma.masked_equal(cells, 0.0),
        interpolation="nearest",
        origin="lower",
        extent=(left, right, bottom, top),
        **how,
    )


def _draw_maze(axes: Axes, results: Arrays) -> None:
    walls = LineCollection(
        list(results["segments"]), colors=style.INK, linewidths=0.8, capstyle="projecting"
    )
    axes.add_collection(walls)
    axes.plot(*results["starts"].T, **_START)
    axes.plot(*results["goal"][:, None], **_GOAL)


def _draw_bar(figure: Figure, image: AxesImage, panels: list[Axes]) -> None:
    bar = figure.colorbar(image, ax=panels, aspect=18, pad=0.02, fraction=0.06)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))
    bar.ax.minorticks_off()
    bar.outline.set_linewidth(0.6)
    bar.set_label("share of steps [%]")
