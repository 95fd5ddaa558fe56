"""Where an agent has been when, seen from above, in a world of whose walls nothing is known."""

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from winkel.figures import shapes, style
from winkel.files import Arrays

SHAPES = {"visits": "panels rows columns", "extent": "edges"}
NEEDS = shapes.needs(SHAPES)
MOST_COLUMNS = 3
DECADES = 3
"""The colours' range: cells with less than a thousandth of the most visited one look like it."""


def draw(results: Arrays) -> Figure:
    """A panel for each of `titles`, in which cells are coloured by their share of the steps.

    `visits` count steps, row 0 at the lowest y, in cells that fill `extent` (left, right, bottom,
    top). All panels have one scale, which is logarithmic; cells without a visit are left white.
    """
    shapes.check(results, SHAPES)
    titles = shapes.check_visits(results)
    visits = results["visits"]
    shares = visits / np.maximum(visits.sum(axis=(1, 2), keepdims=True), 1)
    left, right, bottom, top = (float(edge) for edge in results["extent"])
    rows = -(-len(titles) // MOST_COLUMNS)
    columns = -(-len(titles) // rows)
    tall = float(np.clip((top - bottom) / (right - left), 0.4, 1.5))
    width = min(style.TEXT_WIDTH, 0.9 + 2.0 * columns)
    height = rows * (0.35 + (width - 0.9) / columns * tall)
    figure = style.new_figure(width=width, height=height)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    most = float(shares.max())
    scale = LogNorm(most / 10**DECADES, most, clip=True)
    panels = list(grid.flatten())
    for axes, title, share in zip(panels, titles, shares, strict=False):
        image = axes.imshow(
            np.ma.masked_equal(share, 0.0),
            origin="lower",
            extent=(left, right, bottom, top),
            aspect="equal",
            interpolation="nearest",
            cmap="viridis_r",
            norm=scale,
        )
        axes.set_title(title, pad=3, fontsize=7.5)
        axes.locator_params(nbins=4)
    for axes in panels[len(titles) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("y")
    for column in range(columns):
        last = panels[(len(titles) - 1 - column) // columns * columns + column]
        last.set_xlabel("x")
        last.tick_params(labelbottom=True)
    bar = figure.colorbar(image, ax=panels, aspect=18, pad=0.02, fraction=0.06)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))
    bar.ax.minorticks_off()
    bar.outline.set_linewidth(0.6)
    bar.set_label("share of steps [%]")
    cell = (right - left) / visits.shape[2]
    caption = f"Share of a panel's steps in each cell of side {cell:g}, on a logarithmic scale."
    style.write_below(figure, caption, results["notes"])
    return figure
