"""bsuite's scores by experiment: bars with intervals, a dot for each seed where there are few."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.figures import lines, shapes, style
from winkel.files import Arrays

SHAPES = {
    "agents": "agents",
    "experiments": "experiments",
    "hard": "experiments",
    "mean": "agents experiments",
    "low": "agents experiments",
    "high": "agents experiments",
    "seed_scores": "agents experiments seeds",
}
NEEDS = shapes.needs(SHAPES)

FEW_SEEDS = 10
"""Agents with fewer seeds than this show each."""

_BARS_OF_A_ROW = 84


def draw(results: Arrays) -> Figure:
    """Experiments side by side in as many rows as bars need to be told apart; a bar per agent.

    Hard exploration is in bold. A score that is missing has no bar, but a small cross.
    """
    shapes.check(results, SHAPES)
    names, order = results["experiments"], style.in_order(results["agents"])
    rows = math.ceil(len(names) * len(order) / _BARS_OF_A_ROW)
    per_row = math.ceil(len(names) / rows)
    rows = math.ceil(len(names) / per_row)
    figure = style.new_figure(height=0.15 + 1.45 * rows)
    panels = figure.subplots(rows, 1, sharey=True, squeeze=False)[:, 0]
    for row, axes in enumerate(panels):
        shown = np.arange(row * per_row, min((row + 1) * per_row, len(names)))
        _draw_row(axes, results, order, shown)
        axes.set_xlim(-0.55, per_row - 0.45)
        axes.set_ylabel("score")
    panels[0].set_ylim(0, 1.03)
    panels[0].set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    lines.legend_above(figure, [str(results["agents"][i]) for i in order], bars=True)
    seeds = (~np.isnan(results["seed_scores"])).sum(axis=-1)
    dots = ", a dot for each seed" if _shows_dots(results["seed_scores"]).any() else ""
    style.write_below(
        figure,
        f"bsuite's scores, means over {style.seeds_text(seeds)} with 95 % Student t intervals"
        f"{dots}; exploration in bold.",
        results["notes"],
    )
    return figure


def _shows_dots(scores: np.ndarray) -> np.ndarray:
    """Which agents have few seeds, but more than one."""
    most = (~np.isnan(scores)).sum(axis=-1).max(axis=-1)
    return (most > 1) & (most < FEW_SEEDS)


def _draw_row(axes: Axes, results: Arrays, order: list[int], shown: np.ndarray) -> None:
    width = min(0.82 / len(order), 0.35)
    dots = _shows_dots(results["seed_scores"])
    for place, agent in enumerate(order):
        look = style.agent_style(str(results["agents"][agent]))
        x = np.arange(len(shown)) + (place - (len(order) - 1) / 2) * width
        mean, low, high = (results[name][agent, shown] for name in ("mean", "low", "high"))
        axes.bar(
            x, mean, 0.88 * width, color=look.colour, alpha=0.75, label=results["agents"][agent]
        )
        axes.vlines(x, low, high, color=style.INK, linewidth=0.6)
        if dots[agent]:
            seeds = results["seed_scores"][agent, shown]  # [E, K]
            spread = np.linspace(-0.25, 0.25, seeds.shape[1]) * width
            axes.plot(
                (x[:, None] + spread).ravel(), seeds.ravel(), "o", color=style.INK,
                markersize=1.3, markeredgewidth=0, alpha=0.8, clip_on=False,
            )  # fmt: skip
        for gap in x[np.isnan(mean)]:
            axes.plot(gap, 0.025, "x", color=look.colour, markersize=2.2, markeredgewidth=0.6)
    names = [str(results["experiments"][index]).replace("_", " ") for index in shown]
    axes.set_xticks(
        range(len(shown)), names, rotation=28, ha="right", rotation_mode="anchor", fontsize=6.5
    )
    axes.tick_params(axis="x", length=0, pad=2)
    for label, index in zip(axes.get_xticklabels(), shown, strict=True):
        label.set_fontweight("bold" if results["hard"][index] else "normal")
