"""Fig. 5b: returns over steps in VizDoom's maze, a panel for each sparsity."""

from matplotlib.figure import Figure

from winkel.figures import lines, shapes, style
from winkel.files import Arrays

SHAPES = {
    "settings": "settings",
    "agents": "agents",
    "greedy": "settings",
    "x": "settings points",
    "mean": "settings agents points",
    "low": "settings agents points",
    "high": "settings agents points",
    "num_seeds": "settings agents",
}
NEEDS = shapes.needs(SHAPES)


def draw(results: Arrays) -> Figure:
    """Mean returns and their 90 % Student t bands."""
    shapes.check(results, SHAPES)
    names, agents = results["settings"], results["agents"]
    order = style.in_order(agents)
    figure = style.new_figure(height=1.85, width=min(style.TEXT_WIDTH, 1.1 + 1.75 * len(names)))
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for index, axes in enumerate(panels):
        for agent in order:
            if results["num_seeds"][index, agent]:
                curve = lines.spread_of(results, index, agent)
                lines.draw_band(axes, results["x"][index], curve, str(agents[agent]), len(order))
        axes.set_title(str(names[index]).replace("_", " "), pad=4)
        lines.count_axis(axes, bins=3 if len(names) > 1 else 5)
        axes.set_xlabel("environment steps")
    panels[0].set_ylabel("return of the greedy policy" if results["greedy"].all() else "return")
    lines.legend_above(figure, [str(agents[i]) for i in order])
    kinds = {0: "training returns", 1: "greedy evaluations"}
    shown = " and ".join(kinds[kind] for kind in sorted(set(results["greedy"].tolist())))
    bands = " with 90 % Student t bands" if results["num_seeds"].max() > 1 else ""
    seeds = style.seeds_text(results["num_seeds"])
    below = f"{shown.capitalize()}: means over {seeds}{bands}."
    style.write_below(figure, below, results["notes"])
    return figure
