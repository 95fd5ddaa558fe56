"""Maps of visits: where the environments of a run have been over training, with walls if known."""

import contextlib
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from winkel.errors import InputError
from winkel.figures import style
from winkel.files import Arrays
from winkel.runs.record import RunRecord
from winkel.simulators.visits import VISITS, load_visits

PANELS = 5
"""Parts of training, with a panel each."""
_MAX_COLUMNS = 4


def map_arrays(run: RunRecord) -> Arrays | None:
    """Return the visits of a run, with walls if they are known; None if it left no visits."""
    if not (run.folder / VISITS).is_file():
        return None
    found = load_visits(run.folder)
    visits = found["visits"].reshape(PANELS, -1, *found["visits"].shape[1:]).sum(axis=1)
    made = int(np.flatnonzero(visits.any(axis=(1, 2)))[-1]) + 1
    titles = [f"{100 * i // PANELS}–{100 * (i + 1) // PANELS} % of training" for i in range(made)]
    arrays = {"visits": visits[:made], "extent": found["extent"], "titles": np.array(titles)}
    maker: Any = getattr(run.task, "maker", None)
    if hasattr(maker, "floor_plan"):
        with contextlib.suppress(InputError):  # the file of the map is another one, or missing
            arrays |= maker.floor_plan()
    return arrays


def draw(arrays: Arrays) -> Figure:
    """Draw a panel for each of `titles`, in which cells are coloured by their share of its steps.

    `visits` [panels, rows, columns] count steps, row 0 at the lowest y, in cells that fill `extent`
    (left, right, bottom, top). With `walls` [walls, 2, xy], `starts` and `goal` [xy] are drawn.
    """
    visits, titles, walls = arrays["visits"], arrays["titles"], arrays.get("walls")
    left, right, bottom, top = arrays["extent"]
    if walls is not None:
        starts = arrays["starts"]
        (left, bottom), (right, top) = walls.min(axis=(0, 1)), walls.max(axis=(0, 1))
        room = 0.03 * (right - left)
        left, right, bottom, top = left - room, right + room, bottom - room, top + room
    rows = -(-len(titles) // _MAX_COLUMNS)
    columns = -(-len(titles) // rows)
    width = min(style.TEXT_WIDTH, 0.9 + 2.2 * columns)
    shape = float(np.clip((top - bottom) / (right - left), 0.4, 1.5))
    height = rows * (0.2 + (width - 0.9) / columns * shape)
    figure = style.new_figure(width=width, height=0.25 + height)
    figure.set_layout_engine("compressed", w_pad=0.02, h_pad=0.02)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    panels = list(grid.flatten())
    shares = visits / np.maximum(visits.sum(axis=(1, 2), keepdims=True), 1)
    # Cells with less than a thousandth of the most visits look alike.
    scale = LogNorm(shares.max() / 1000, shares.max(), clip=True)
    for axes, title, share in zip(panels, titles, shares, strict=False):
        seen, extent = np.ma.masked_equal(share, 0.0), tuple(arrays["extent"])
        look = {"interpolation": "nearest", "cmap": "viridis_r", "norm": scale}
        image = axes.imshow(seen, origin="lower", extent=extent, **look)
        if walls is not None:
            lines = LineCollection(list(walls), colors=style.INK, linewidths=0.8, zorder=2)
            axes.add_collection(lines)
            name = "start" if len(starts) == 1 else f"one of {len(starts)} starts"
            axes.plot(*starts.T, "o", label=name, ms=3.6, mfc="white", mec=style.INK, mew=0.8)
            goal = {"ms": 7.5, "mfc": style.CATEGORICAL, "mec": "white", "mew": 0.5}
            axes.plot(*arrays["goal"], "*", label="goal", **goal)
        axes.set(xlim=(left, right), ylim=(bottom, top))
        axes.set_title(str(title), pad=3, fontsize=7.5)
        axes.locator_params(nbins=4)
    for axes in panels[len(titles) - columns : len(titles)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("x")
    for axes in grid[:, 0]:
        axes.set_ylabel("y")
    for axes in panels[len(titles) if walls is None else 0 :]:
        axes.set_axis_off()
    if walls is not None:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    bar = figure.colorbar(image, ax=panels, aspect=18, pad=0.02, fraction=0.06)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))
    bar.ax.minorticks_off()
    bar.set_label("share of steps [%]")
    cell = (arrays["extent"][1] - arrays["extent"][0]) / visits.shape[2]
    caption = f"Share of a panel's steps in each cell of side {cell:g}, on a logarithmic scale."
    style.write_below(figure, caption, [])
    return figure
