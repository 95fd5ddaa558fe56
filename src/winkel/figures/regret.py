"""Fig. 4b: episodes without treasure against the size of deep sea; low is better."""

import itertools

import numpy as np
from matplotlib.figure import Figure

from winkel.figures import common, style
from winkel.figures.common import agent_of, size_of
from winkel.files import Arrays
from winkel.runs.results import Results

TITLE = "Deep sea: regret by size (Fig. 4b)"


def collect(results: Results) -> dict[str, np.ndarray]:
    """Median number of episodes without treasure and its quartiles, [agents, sizes].

    Only runs of one budget are compared. A run that never finds the treasure has a regret of
    infinity, not of the budget, so that a median or quartile that depends on it is infinite too.
    """
    selection = common.deep_sea_runs(results, "bad")
    budget = common.keep_one_budget(selection, one_size=False)
    agents, sizes = selection.agents(), sorted(set(map(size_of, selection.records)))
    regret = common.seed_table(
        selection.records,
        itertools.product(agents, sizes),
        lambda r: (agent_of(r), size_of(r)),
        common.regret_of,
    ).reshape(len(agents), len(sizes), -1)
    selection.notes += common.note_unsolved(agents, regret)
    return selection.arrays(regret, agents=agents, sizes=sizes, seed_regrets=regret, budget=budget)


def draw(results: Arrays) -> Figure:
    """Draw medians and quartiles: agents on the left, PE-DQN's ablations on the right.

    What is infinite, because of runs that never found the treasure, is drawn at the budget with an
    open marker.
    """
    agents = style.in_order(results["agents"])
    ours = [name for name in agents if name.startswith("pe_dqn")]
    sides = {
        "agents": [name for name in agents if name not in ours or name == "pe_dqn"],
        "ablations of PE-DQN": ours if ours != ["pe_dqn"] else [],
    }
    sizes, budget = results["sizes"], float(results["budget"])
    gap = float(np.diff(sizes).min()) if len(sizes) > 1 else 1.0
    figure, panels = style.split_panels(sides)
    for axes, shown in panels:
        style.draw_limit(axes, budget)
        for place, name in enumerate(shown):
            spread = style.spread_at(results, agents[name])
            have = ~np.isnan(spread[0])
            x = sizes[have] + 0.15 * gap * (place / max(len(shown) - 1, 1) - 0.5)
            at_most = [np.minimum(values[have], budget) for values in spread]
            style.draw_band(axes, x, at_most, name, len(shown))
            style.draw_markers(axes, x, spread[0][have], budget, name, size=3.5)
        axes.set_xlim(sizes[0] - 0.3 * gap, sizes[-1] + 0.3 * gap)
        axes.set_xticks(sizes[:: -(-len(sizes) // 11)])
        axes.set_xlabel("size of deep sea")
    panels[0][0].set_ylabel("episodes without treasure")
    style.legend_above(figure, agents, markers=True)
    caption = f"{style.medians_text(results).capitalize()} within a budget of "
    caption += f"{budget:,.0f} episodes (dashed)"
    if np.isinf(results["estimate"]).any():
        caption += "; open markers: the median run never found the treasure"
    style.write_below(figure, f"{caption}.", results["notes"])
    return figure
