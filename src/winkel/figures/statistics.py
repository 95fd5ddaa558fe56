"""Fig. 3: how much of deep sea an agent visits that maximises a moment of its predictions."""

import numpy as np
from matplotlib.figure import Figure

from winkel.figures import common, style
from winkel.files import Arrays
from winkel.runs.results import Results

TITLE = "Deep sea: what a statistic explores (Fig. 3)"
PROJECTIONS = tuple(style.PROJECTIONS)
MOMENTS = ("mean", "variance", "skewness", "kurtosis")


def collect(results: Results) -> dict[str, np.ndarray]:
    """The share of state-actions visited at the end by statistic, [projections, moments]."""
    agents = [f"statistic_{p}_{m}" for p in PROJECTIONS for m in MOMENTS]
    selection = common.deep_sea_runs(results, "visited", agents.__contains__, "statistic")
    budget = common.keep_one_budget(selection)
    size = common.size_of(selection.records[0])
    shares = common.seed_table(
        selection.records, agents, common.agent_of, lambda r: common.visited_shares(r)[-1]
    ).reshape(len(PROJECTIONS), len(MOMENTS), -1)
    absent = [name for name in agents if name not in selection.agents()]
    if absent:
        selection.notes.append(f"no runs of {', '.join(absent)}")
    labels = {"projections": PROJECTIONS, "moments": MOMENTS}
    return selection.arrays(shares, seed_shares=shares, size=size, budget=budget, **labels)


def draw(results: Arrays) -> Figure:
    """Draw bars at the medians, whiskers at the quartiles, a dot for each seed; by moment."""
    projections = results["projections"].tolist()
    figure = style.new_figure(height=2.1, width=3.3)
    axes = figure.subplots()
    width = 0.78 / len(projections)
    groups = np.arange(len(results["moments"]))
    for place, name in enumerate(projections):
        x = groups + (place - (len(projections) - 1) / 2) * width
        spread = [100 * values for values in style.spread_at(results, place)]
        seeds = 100 * results["seed_shares"][place]  # [moments, seeds]
        style.draw_bars(axes, x, width, spread, seeds, style.PROJECTIONS[name], f"{name} model")
    axes.set_xticks(groups, results["moments"].tolist())
    axes.tick_params(axis="x", length=0)
    axes.set(ylim=(0, 100), ylabel="state-actions visited [%]")
    axes.set_xlabel("the statistic that is maximised")
    figure.legend(loc="outside upper center", ncols=len(projections), handlelength=1.0)
    caption = f"Deep sea of size {results['size']} after {int(results['budget']):,} episodes: "
    caption += f"{style.medians_text(results)}, a dot for each."
    style.write_below(figure, caption, results["notes"])
    return figure
