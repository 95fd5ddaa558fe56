"""Returns over episodes, a panel for each experiment of bsuite (App. B.4)."""

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from winkel.figures import lines, shapes, style
from winkel.files import Arrays

SHAPES = {
    "experiments": "experiments",
    "agents": "agents",
    "hard": "experiments",
    "greedy": "experiments",
    "x": "experiments points",
    "mean": "experiments agents points",
    "low": "experiments agents points",
    "high": "experiments agents points",
    "num_seeds": "experiments agents",
}
NEEDS = shapes.needs(SHAPES)

_MOST_COLUMNS = 4


def draw(results: Arrays) -> Figure:
    """Mean returns and their bands. Titles of hard exploration are bold; scales are divided out."""
    shapes.check(results, SHAPES)
    names, agents = results["experiments"], results["agents"]
    columns = min(_MOST_COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    order = style.in_order(agents)
    width = style.TEXT_WIDTH if columns > 2 else 1.3 + 1.9 * columns
    figure = style.new_figure(height=0.45 + (1.7 if rows == 1 else 1.15) * rows, width=width)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    mixed = len(set(results["greedy"].tolist())) > 1
    kind = "return" if mixed else "greedy return" if results["greedy"].all() else "training return"
    for index, axes in enumerate(panels):
        if index >= len(names):
            axes.remove()
            continue
        for agent in order:
            if results["num_seeds"][index, agent]:
                curve = lines.spread_of(results, index, agent)
                lines.draw_band(axes, results["x"][index], curve, str(agents[agent]), len(order))
        mark = "*" if mixed and not results["greedy"][index] else ""
        axes.set_title(
            str(names[index]).replace("_", " ") + mark,
            fontweight="bold" if results["hard"][index] else "normal", fontsize=7, pad=3,
        )  # fmt: skip
        lines.count_axis(axes, bins=3)
        axes.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 2.5, 5, 10]))
        axes.ticklabel_format(axis="y", scilimits=(-2, 4), useMathText=True)
        axes.yaxis.get_offset_text().set_fontsize(5.5)
        axes.set_ylim(*_limits(results["mean"][index], axes.get_ylim()))
        axes.tick_params(labelsize=6, pad=1.5, length=2)
        if index + columns >= len(names):
            axes.set_xlabel("episodes", fontsize=7, labelpad=2)
        if index % columns == 0:
            axes.set_ylabel(kind, fontsize=7)
    lines.legend_above(figure, [str(agents[i]) for i in order])
    style.write_below(figure, _caption(results), results["notes"])
    return figure


def _limits(mean: np.ndarray, drawn: tuple[float, float]) -> tuple[float, float]:
    """What was drawn, but bands reach no further than the range of the means beyond it."""
    low, high = float(np.nanmin(mean)), float(np.nanmax(mean))
    room = max(high - low, 0.02 * max(abs(low), abs(high)), 1e-6)
    return max(drawn[0], low - room), min(drawn[1], high + room)


def _caption(results: Arrays) -> str:
    seeds = style.seeds_text(results["num_seeds"])
    caption = f"Means over settings, then over {seeds}, with 90 % Student t bands"
    if 0 < results["greedy"].mean() < 1:
        caption += "; returns of the greedy policy, but in panels with * of training"
    if not results["greedy"].all():
        points = int(np.isfinite(results["x"]).sum(axis=-1).max())
        caption += f"; training returns are averaged over 1/{points} of the episodes"
    if any(str(name).endswith("_scale") for name in results["experiments"]):
        caption += "; returns of scale experiments are divided by the scale"
    return caption + "."
