"""Deep sea over time: where an agent has been, where its members disagree, where its bonus is."""

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from winkel.errors import InputError
from winkel.figures import style
from winkel.files import Arrays

NEEDS = {"episode": 1, "visits": 4, "disagreement": 4, "bonus": 4, "size": 0, "right": 2}

MOST_COLUMNS = 6
"""Of more snapshots than this, evenly spaced ones are shown, the first and the last among them."""

LARGEST_SPLIT = 20
"""Seas up to this size show both actions in each cell; larger ones the higher of the two."""

_BAR_LABEL = 26  # points between a colour bar and its label: one distance for all rows


def draw(results: Arrays) -> Figure:
    """Inverse counts 1 / (1 + visits), disagreement and bonus (rows) over time (columns).

    A quantity that is NaN everywhere, such as the bonus of an agent without one, has no row. Only
    cells that can be reached are drawn: the column is at most the row, and both below `size`. In a
    cell the left half is the action that moves left, whatever its number is there. A row has one
    scale at all times; its colours follow the square root, as its ticks show.
    """
    size = _check(results)
    shown = _snapshots(len(results["episode"]))
    split = size <= LARGEST_SPLIT
    quantities = {
        r"$1\,/\,(1 + \mathrm{visits})$": 1.0 / (1.0 + results["visits"][shown]),
        "disagreement": results["disagreement"][shown],
        "bonus": results["bonus"][shown],
    }
    rows = {
        label: [_picture(cells, results["right"], size, split=split) for cells in quantity]
        for label, quantity in quantities.items()
    }
    rows = {label: pictures for label, pictures in rows.items() if not np.isnan(pictures).all()}
    pitch = min(1.4, (style.TEXT_WIDTH - 1.1) / len(shown))  # inches from panel to panel
    figure = style.new_figure(width=1.1 + pitch * len(shown), height=0.58 + pitch * len(rows))
    figure.set_layout_engine("compressed", w_pad=0.035, h_pad=0.025)
    panels = figure.subplots(len(rows), len(shown), sharex=True, sharey=True, squeeze=False)
    for line, (label, pictures) in zip(panels, rows.items(), strict=True):
        image = _draw_row(line, pictures, size, grid=split)
        bar = figure.colorbar(image, ax=list(line), aspect=14, pad=0.02, format="%g")
        bar.set_ticks(_ticks(image))
        bar.outline.set_linewidth(0.6)
        bar.set_label(label)
        beside = ScaledTranslation(_BAR_LABEL / 72, 0, figure.dpi_scale_trans)
        bar.ax.yaxis.set_label_coords(1.0, 0.5, bar.ax.transAxes + beside)
    for axes, index in zip(panels[0], shown, strict=True):
        axes.set_title(f"episode {results['episode'][index]:.0f}", pad=4, fontsize=7.5)
    for axes in panels.flat:
        place = axes.get_subplotspec()
        axes.tick_params(left=place.is_first_col(), bottom=place.is_last_row())
    how = "action left | action right" if split else "the higher of both actions"
    figure.supxlabel(f"column\n(in each cell: {how})", fontsize=8, linespacing=1.1)
    figure.supylabel("row", fontsize=8)
    return figure


def _check(results: Arrays) -> int:
    """The size of the sea; raises unless the arrays fit together."""
    visits = results["visits"]
    if visits.ndim != 4 or visits.shape[1] != visits.shape[2] or visits.shape[3] != 2:
        raise InputError(f"need visits of [times, N, N, 2 actions], got {list(visits.shape)}")
    times, side = visits.shape[:2]
    shapes = {
        "episode": (times,), "disagreement": visits.shape, "bonus": visits.shape,
        "size": (), "right": (side, side),
    }  # fmt: skip
    for name, shape in shapes.items():
        if results[name].shape != shape:
            raise InputError(
                f"need shape {list(shape)} for {name}, as visits are {list(visits.shape)}, "
                f"got {list(results[name].shape)}"
            )
    if times == 0 or float(results["size"]) not in range(1, side + 1):
        raise InputError(
            f"need a snapshot or more and a size from 1 to {side}, got {times} and "
            f"{results['size']}"
        )
    size = int(results["size"])
    allowed = {
        "visits": (np.isfinite(visits) & (visits >= 0), ">= 0"),
        "disagreement": (~np.isinf(results["disagreement"]), "finite or NaN"),
        "bonus": (~np.isinf(results["bonus"]), "finite or NaN"),
        "right": (np.isin(results["right"], (0, 1))[None], "0 or 1"),
    }
    for name, (good, rule) in allowed.items():
        bad = np.argwhere(~good[:, :size, :size])
        if bad.size:
            raise InputError(f"need {name} {rule} in all cells, not so in {bad[0, 1:3].tolist()}")
    return size


def _snapshots(times: int) -> np.ndarray:
    return np.unique(np.linspace(0, times - 1, min(times, MOST_COLUMNS)).round().astype(int))


def _picture(cells: np.ndarray, right: np.ndarray, size: int, *, split: bool) -> np.ndarray:
    """One number for each cell [N, N], or left and right side by side [N, 2N]; NaN out of reach."""
    cells = np.where(np.tri(size, dtype=bool)[..., None], cells[:size, :size], np.nan)
    if not split:
        return np.fmax(cells[..., 0], cells[..., 1])
    rightward = right[:size, :size, None].astype(int)
    pair = np.concatenate([1 - rightward, rightward], axis=-1)
    return np.take_along_axis(cells, pair, axis=-1).reshape(size, 2 * size)


def _draw_row(
    line: Iterable[Axes], pictures: list[np.ndarray], size: int, *, grid: bool
) -> AxesImage:
    """One quantity at all times, on one scale; the last image stands for all."""
    # A square root, for an untrained agent is far above all that follow.
    low, high = min(0.0, float(np.nanmin(pictures))), float(np.nanmax(pictures))
    scale = PowerNorm(0.5, low, high if high > low else low + 1.0)
    edges = np.arange(size + 1) - 0.5
    for axes, picture in zip(line, pictures, strict=True):
        image = axes.imshow(
            picture,
            norm=scale,
            cmap="viridis",
            interpolation="nearest",
            extent=(-0.5, size - 0.5, size - 0.5, -0.5),
        )
        if grid:
            axes.vlines(edges, edges, size - 0.5, color="white", linewidth=0.5)
            axes.hlines(edges[1:-1], -0.5, edges[2:], color="white", linewidth=0.5)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xticks([0, size - 1])
        axes.set_yticks([0, size - 1])
    return image


def _ticks(image: AxesImage) -> list[float]:
    """Round numbers, with one more near zero, where a square root has most of its colours."""
    low, high = image.get_clim()
    ticks = np.asarray(MaxNLocator(3, steps=[1, 2, 5, 10]).tick_values(low, high))
    ticks = np.union1d(ticks, ticks[ticks > 0][:1] / 5)
    return ticks[(ticks >= low) & (ticks <= high)].tolist()
