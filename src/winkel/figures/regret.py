"""Fig. 4b: episodes without treasure against the size of deep sea, low is better."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.figures import lines, shapes, style
from winkel.files import Arrays

SHAPES = {
    "agents": "agents",
    "sizes": "sizes",
    "estimate": "agents sizes",
    "low": "agents sizes",
    "high": "agents sizes",
    "seed_regrets": "agents sizes seeds",
    "budget": "",
}
NEEDS = shapes.needs(SHAPES)

_BESIDE = 0.3, 0.04  # of a step between sizes and of their range, over which agents are set apart


def draw(results: Arrays) -> Figure:
    """Medians and quartiles: agents on the left, PE-DQN's ablations on the right.

    What is infinite, as a run that it depends on never found the treasure, stands at the budget
    with an open marker.
    """
    shapes.check(results, SHAPES)
    agents = [str(name) for name in results["agents"]]
    order = style.in_order(agents)
    ours = [i for i in order if agents[i].startswith("pe_dqn")]
    sides = {
        "agents": [i for i in order if i not in ours or agents[i] == "pe_dqn"],
        "ablations of PE-DQN": ours if any(agents[i] != "pe_dqn" for i in ours) else [],
    }
    sides = {title: shown for title, shown in sides.items() if shown}
    figure = style.new_figure(height=2.2, width=style.TEXT_WIDTH if len(sides) > 1 else 3.3)
    panels = figure.subplots(1, len(sides), sharex=True, sharey=True, squeeze=False)[0]
    for axes, letter, (title, shown) in zip(panels, "ab", sides.items(), strict=False):
        _draw_panel(axes, results, shown)
        if len(sides) > 1:
            style.label_panel(axes, letter, title)
        axes.set_xlabel("size of deep sea")
    panels[0].set_ylabel("episodes without treasure")
    lines.legend_above(figure, [agents[i] for i in order], markers=True)
    seeds = (~np.isnan(results["seed_regrets"])).sum(axis=-1)
    open_ones = np.isinf(results["estimate"]).any()
    style.write_below(
        figure,
        f"Medians and interquartile ranges of {style.seeds_text(seeds)} within a budget of "
        f"{int(results['budget']):,} episodes (dashed)"
        + ("; open markers: the median run never found the treasure." if open_ones else "."),
        results["notes"],
    )
    return figure


def _draw_panel(axes: Axes, results: Arrays, shown: list[int]) -> None:
    sizes, budget = results["sizes"], float(results["budget"])
    axes.axhline(budget, color=style.FAINT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=0)
    gap = float(np.diff(sizes).min()) if len(sizes) > 1 else 1.0
    apart = min(_BESIDE[0] * gap, _BESIDE[1] * max(float(sizes[-1] - sizes[0]), gap))
    for place, agent in enumerate(shown):
        name = str(results["agents"][agent])
        spread = lines.spread_of(results, agent)
        have = ~np.isnan(spread[0])
        x = sizes[have] + apart * (place / max(len(shown) - 1, 1) - 0.5)
        at_most = [np.minimum(values[have], budget) for values in spread]
        lines.draw_band(axes, x, at_most, name, len(shown))
        lines.draw_open(axes, x, spread[0][have], budget, name, size=3.5)
    axes.set_ylim(0, 1.06 * budget)
    axes.set_xlim(sizes[0] - 0.3 * gap, sizes[-1] + 0.3 * gap)
    axes.set_xticks(sizes[:: -(-len(sizes) // 11)])
