"""App. B.3: state-actions of deep sea visited over episodes; high is better."""

import numpy as np
from matplotlib.figure import Figure

from winkel.figures import common, style
from winkel.figures.common import agent_of, visited_shares
from winkel.files import Arrays
from winkel.runs.results import Results

TITLE = "Deep sea: state-actions visited (Fig. 7b)"
POINTS = 200
"""Episodes at which coverage is shown, at most."""

_BASELINES = ("dltv", "ids")


def collect(results: Results) -> dict[str, np.ndarray]:
    """Median and quartiles of the share of state-actions visited, [agents, episodes]."""
    selection = common.deep_sea_runs(
        results, "visited", lambda name: not name.startswith("statistic")
    )
    budget = common.keep_one_budget(selection)
    agents = selection.agents()
    episodes = np.unique(np.linspace(1, budget, min(budget, POINTS)).round().astype(int))
    shares = common.seed_table(
        selection.records, agents, agent_of, lambda r: visited_shares(r)[episodes - 1]
    )  # [agents, seeds, episodes]
    size = common.size_of(selection.records[0])
    return selection.arrays(
        shares.swapaxes(1, 2), agents=agents, episodes=episodes, size=size, budget=budget
    )


def draw(results: Arrays) -> Figure:
    """Draw medians and quartiles: DLTV and IDS with their variants left, all others right."""
    agents = style.in_order(results["agents"])
    baselines = [name for name in agents if name.startswith(_BASELINES)]
    others = [name for name in agents if name not in baselines]
    figure, panels = style.split_panels({"DLTV and IDS": baselines, "other agents": others})
    for axes, shown in panels:
        for name in shown:
            spread = [100 * values for values in style.spread_at(results, agents[name])]
            style.draw_band(axes, results["episodes"], spread, name, len(shown))
        axes.set_xlabel("episodes")
        axes.set_ylim(0, 102)
        style.count_axis(axes)
        axes.set_xlim(0, float(results["budget"]))
    panels[0][0].set_ylabel("state-actions visited [%]")
    style.legend_above(figure, agents)
    caption = f"Deep sea of size {results['size']}: {style.medians_text(results)}."
    style.write_below(figure, caption, results["notes"])
    return figure
