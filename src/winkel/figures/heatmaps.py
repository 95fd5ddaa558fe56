"""Fig. 9: deep sea over time: visits, the disagreement of members, and the bonus, cell by cell."""

import math
from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.figures import style
from winkel.files import Arrays
from winkel.runs.results import Results

TITLE = "Deep sea: visits, disagreement and bonus (Fig. 9)"

_LARGEST_GRID = 20  # largest size at which lines are drawn between cells


def collect(results: Results) -> dict[str, np.ndarray]:
    """The snapshots of PE-DQN's first run with most of them, else of any agent's, as grids."""
    seas = ("deep_sea", "deep_sea_stochastic")
    records = [r for r in results.records if r.experiment in seas and r.snapshots]
    if not records:
        raise InputError("no deep_sea runs with snapshots")
    record = min(
        records, key=lambda r: (r.config["agent"] != "pe_dqn", -len(r.snapshots["visits"]))
    )
    note = "shown: {agent} in {env}, seed {seed}".format(**record.config)
    return snapshot_arrays(record.config["env"], record.snapshots) | {"notes": np.array([note])}


def snapshot_arrays(env: str, snapshots: Arrays) -> dict[str, np.ndarray]:
    """Return the snapshots of a run in deep sea as grids, as `draw` needs them."""
    right = np.asarray(make(env).params.right)
    side = math.isqrt(snapshots["visits"].shape[1])  # a sweep pads to its largest size
    grids = {
        name: snapshots[name].reshape(-1, side, side, 2)[:, : len(right), : len(right)]
        for name in ("visits", "disagreement", "bonus")
    }
    return grids | {"episode": snapshots["episodes"], "right": right}


def draw(results: Arrays) -> Figure:
    """Draw 1 / (1 + visits), disagreement and bonus (rows) over time (columns).

    A quantity that is NaN everywhere, such as the bonus of an agent without one, has no row. Only
    reachable cells are drawn: the column is at most the row. The left half of a cell is the action
    that moves left, whatever its number. Each row has one scale at all times; colours follow the
    square root, as the ticks show.
    """
    times, size = len(results["episode"]), len(results["right"])
    shown = np.unique(np.linspace(0, times - 1, min(times, 6)).round().astype(int))
    quantities = {
        r"$1\,/\,(1 + \mathrm{visits})$": 1.0 / (1.0 + results["visits"]),
        "disagreement": results["disagreement"],
        "bonus": results["bonus"],
    }
    rows = {
        label: [_picture(cells, results["right"]) for cells in quantity[shown]]
        for label, quantity in quantities.items()
    }
    rows = {label: pictures for label, pictures in rows.items() if not np.isnan(pictures).all()}
    pitch = min(1.4, (style.TEXT_WIDTH - 1.1) / len(shown))  # inches from panel to panel
    figure = style.new_figure(width=1.1 + pitch * len(shown), height=0.58 + pitch * len(rows))
    figure.set_layout_engine("compressed", w_pad=0.035, h_pad=0.025)
    panels = figure.subplots(len(rows), len(shown), sharex=True, sharey=True, squeeze=False)
    for line, (label, pictures) in zip(panels, rows.items(), strict=True):
        image = _draw_row(line, pictures, size)
        figure.colorbar(
            image, ax=list(line), aspect=14, pad=0.02, format="%g", label=label,
            ticks=MaxNLocator(3, steps=[1, 2, 5, 10]),
        )  # fmt: skip
    for axes, index in zip(panels[0], shown, strict=True):
        axes.set_title(f"episode {results['episode'][index]:.0f}", pad=4, fontsize=7.5)
    for axes in panels.flat:
        place = axes.get_subplotspec()
        axes.tick_params(left=place.is_first_col(), bottom=place.is_last_row())
    label = "column\n(in each cell: action left | action right)"
    figure.supxlabel(label, fontsize=8, linespacing=1.1)
    figure.supylabel("row", fontsize=8)
    return figure


def _picture(cells: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Arrange cells as [N, 2N], with left and right side by side; NaN if unreachable."""
    size = len(right)
    reachable = np.tri(size, dtype=bool)[..., None]
    cells = np.where(reachable & np.isfinite(cells), cells, np.nan)
    pair = np.stack([1 - right, right], axis=-1).astype(int)
    return np.take_along_axis(cells, pair, axis=-1).reshape(size, 2 * size)


def _draw_row(line: Iterable[Axes], pictures: list[np.ndarray], size: int) -> AxesImage:
    """Draw one quantity at all times on one scale; return the last image, for a colour bar."""
    # A square root, because an untrained agent's values are far above all later ones.
    low, high = min(0.0, float(np.nanmin(pictures))), float(np.nanmax(pictures))
    scale = PowerNorm(0.5, low, high if high > low else low + 1.0)
    edges = np.arange(size + 1) - 0.5
    extent = (-0.5, size - 0.5, size - 0.5, -0.5)
    for axes, picture in zip(line, pictures, strict=True):
        image = axes.imshow(picture, norm=scale, interpolation="nearest", extent=extent)
        if size <= _LARGEST_GRID:
            axes.vlines(edges, edges, size - 0.5, color="white", linewidth=0.5)
            axes.hlines(edges[1:-1], -0.5, edges[2:], color="white", linewidth=0.5)
        axes.spines[:].set_visible(False)
        axes.set(xticks=[0, size - 1], yticks=[0, size - 1])
    return image
