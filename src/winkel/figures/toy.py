"""Fig. 1: quantile curves of a categorical and a quantile model of the same data."""

import numpy as np
from matplotlib.figure import Figure

from winkel.figures import style
from winkel.files import Arrays

NEEDS = {"x": 1, "y": 1, "grid": 1, "levels": 1, "categorical": 2, "quantile": 2}


def draw(results: Arrays) -> Figure:
    """Contour lines of the quantiles; bands between symmetric levels, the median bold."""
    figure = style.new_figure(height=2.3, width=4.6)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    models = (("categorical", style.CATEGORICAL), ("quantile", style.QUANTILE))
    levels, grid = results["levels"], results["grid"]
    middle = len(levels) // 2
    for axes, letter, (name, colour) in zip(panels, "ab", models, strict=True):
        curves = results[name]  # [G, L]
        for low in range(middle):
            axes.fill_between(
                grid, curves[:, low], curves[:, -1 - low], color=colour, alpha=0.09, linewidth=0
            )
        for index, curve in enumerate(curves.T):
            weight = 1.3 if index == middle else 0.6
            axes.plot(grid, curve, color=colour, linewidth=weight, solid_joinstyle="round")
        axes.plot(
            results["x"], results["y"], "o", color=style.INK, markersize=1.6, alpha=0.55, mew=0
        )
        style.label_panel(axes, letter, f"{name} projection")
        axes.set_xlabel("$x$")
        axes.set_xlim(grid[0], grid[-1])
        axes.set_xticks([-1, 0, 1])
    panels[0].set_ylabel("$y$")
    reach = 1.4 * np.abs(results["y"]).max()
    panels[0].set_ylim(-reach, reach)
    return figure
