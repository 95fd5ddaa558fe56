"""Lines of agents with bands, and what goes with them: ticks and a legend."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from winkel.figures import style
from winkel.files import Arrays

_ENTRY, _LETTER = 0.46, 0.047  # inches of a legend's entry without its name, and of a letter


def draw_band(
    axes: Axes, x: np.ndarray, spread: Sequence[np.ndarray], agent: str, among: int = 1
) -> None:
    """A line and its band (estimate, low, high), fainter the more there are; one point is a dot."""
    estimate, low, high = spread
    look = style.agent_style(agent)
    axes.fill_between(
        x, low, high, color=look.colour, alpha=0.2 / (1 + among / 5), linewidth=0, zorder=1
    )
    alone = np.isfinite(estimate).sum() == 1
    axes.plot(
        x, estimate, color=look.colour, linestyle=look.dashes, linewidth=1.1, label=agent,
        marker=look.marker if alone else "", markersize=3,
    )  # fmt: skip


def draw_open(
    axes: Axes, x: np.ndarray, values: np.ndarray, limit: float, agent: str, size: float
) -> None:
    """Markers; those of infinite values are open and stand at the limit."""
    look = style.agent_style(agent)
    for where, face in ((np.isfinite(values), look.colour), (np.isinf(values), "white")):
        if where.any():  # an empty line has a place, and layouts make room for it
            axes.plot(
                x[where], np.minimum(values, limit)[where], look.marker, color=look.colour,
                markerfacecolor=face, markersize=size,
                markeredgewidth=min(0.7, size / 5), clip_on=False,
            )  # fmt: skip


def spread_of(results: Arrays, *place: int) -> list[np.ndarray]:
    """Estimate, low and high at a place; the estimate may be called mean."""
    first = "mean" if "mean" in results else "estimate"
    return [results[name][place] for name in (first, "low", "high")]


def count_axis(axes: Axes, bins: int = 4) -> None:
    """Few round ticks from zero on the horizontal axis, as 0, 5k, 10k or 2M."""
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(bins, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """Such as 500, 2.5k or 1M."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def legend_above(
    figure: Figure, agents: Sequence[str], *, markers: bool = False, bars: bool = False
) -> None:
    """All agents once, read from left to right in as few rows as fit; the figure grows by them."""
    looks = [style.agent_style(agent) for agent in agents]
    handles: list[Artist] = [
        Patch(color=look.colour, alpha=0.75, linewidth=0, label=look.label)
        if bars
        else Line2D(
            [], [], color=look.colour, linestyle=look.dashes, label=look.label, linewidth=1.2,
            marker=look.marker if markers else "", markersize=3.5, markeredgewidth=0.7,
        )
        for look in looks
    ]  # fmt: skip
    place_legend(figure, handles)


def place_legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Labelled handles above all panels, as `legend_above` has them."""
    width, height = figure.get_size_inches()
    columns = _columns([len(str(handle.get_label())) for handle in handles], width)
    rows = -(-len(handles) // columns)
    figure.set_size_inches(width, height + 0.15 * rows)
    # Legends fill columns first.
    places = [row * columns + column for column in range(columns) for row in range(rows)]
    patches = any(isinstance(handle, Patch) for handle in handles)
    figure.legend(
        handles=[handles[place] for place in places if place < len(handles)],
        loc="outside upper center",
        ncols=columns,
        handlelength=1.0 if patches else 2.6,
        columnspacing=1.2,
    )


def _columns(letters: Sequence[int], width: float) -> int:
    """As many as fit into a width in inches, in rows of equal numbers where possible."""
    for columns in range(len(letters), 1, -1):
        widths = [_ENTRY + _LETTER * max(letters[place::columns]) for place in range(columns)]
        if sum(widths) <= width:
            rows = -(-len(letters) // columns)
            return -(-len(letters) // rows)
    return 1
