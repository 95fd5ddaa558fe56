"""App. B.3: BDQN+P with different numbers of members beside PE-DQN, low is better."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.figures import lines, shapes, style
from winkel.files import Arrays

SHAPES = {
    "quantities": "quantities",
    "members": "members",
    "estimate": "quantities members",
    "low": "quantities members",
    "high": "quantities members",
    "seed_values": "quantities members seeds",
    "reference_estimate": "quantities",
    "reference_low": "quantities",
    "reference_high": "quantities",
    "reference_seed_values": "quantities seeds",
    "size": "",
    "budget": "",
}
NEEDS = shapes.needs(SHAPES)

_LOGARITHMIC = 50
"""The axis is, where the budget is more than so many times the least value."""

_TITLES = {"first": "first episode with treasure", "regret": "episodes without treasure"}


def draw(results: Arrays) -> Figure:
    """Medians and quartiles against the number of members, seeds as small markers; PE-DQN beside.

    What is infinite, as a run that it depends on never found the treasure, stands at the budget
    with an open marker.
    """
    shapes.check(results, SHAPES)
    names = [str(name) for name in results["quantities"]]
    figure = style.new_figure(height=2.05)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for index, (axes, name) in enumerate(zip(panels, names, strict=True)):
        _draw_panel(axes, results, index)
        style.label_panel(axes, "abcdef"[index], _TITLES.get(name, name))
        axes.set_xlabel("members of BDQN+P")
    panels[0].set_ylabel("episodes")
    reference = not np.isnan(results["reference_estimate"]).all()
    shown = ["bdqn", "pe_dqn"] if reference else ["bdqn"]
    lines.legend_above(figure, shown, markers=True)
    values = results["seed_values"], results["reference_seed_values"][:, None]
    seeds = (~np.isnan(np.concatenate(values, axis=1))).sum(axis=-1)
    style.write_below(
        figure,
        f"Deep sea of size {int(results['size'])}: medians and interquartile ranges of "
        f"{style.seeds_text(seeds)} within a budget of {int(results['budget']):,} episodes; small "
        "markers are seeds, open ones never found the treasure.",
        results["notes"],
    )
    return figure


def _draw_panel(axes: Axes, results: Arrays, index: int) -> None:
    budget, members = float(results["budget"]), results["members"]
    x = np.arange(len(members), dtype=float)
    axes.axhline(budget, color=style.FAINT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=0)
    at_most = [np.minimum(values, budget) for values in lines.spread_of(results, index)]
    lines.draw_band(axes, x, at_most, "bdqn")
    _draw_seeds(axes, x, results["estimate"][index], results["seed_values"][index], budget, "bdqn")
    labels = [f"{n}" for n in members]
    estimate, low, high = (
        results[f"reference_{key}"][index : index + 1] for key in ("estimate", "low", "high")
    )
    if not np.isnan(estimate[0]):
        place, look = np.array([len(members) + 0.2]), style.agent_style("pe_dqn")
        level = min(float(estimate[0]), budget)
        axes.axhline(level, color=look.colour, linewidth=0.9, zorder=1)
        axes.vlines(place, low, np.minimum(high, budget), color=look.colour, linewidth=5, alpha=0.2)
        seeds = results["reference_seed_values"][index : index + 1]
        _draw_seeds(axes, place, estimate, seeds, budget, "pe_dqn")
        x, labels = np.append(x, place), [*labels, look.label]
    axes.set_xticks(x, labels)
    axes.set_xlim(-0.5, x[-1] + 0.5)
    values = np.append(results["seed_values"][index], results["reference_seed_values"][index])
    least = float(np.nanmin(values))
    if least > 0 and budget / least > _LOGARITHMIC:
        axes.set_yscale("log")
        axes.set_ylim(0.7 * least, 1.3 * budget)
    else:
        axes.set_ylim(0, 1.06 * budget)


def _draw_seeds(
    axes: Axes,
    x: np.ndarray,
    estimate: np.ndarray,
    seeds: np.ndarray,
    budget: float,
    agent: str,
) -> None:
    """Medians [members], and beside them all seeds [members, seeds]."""
    places = x[:, None] + np.linspace(0.14, 0.34, seeds.shape[1])
    lines.draw_open(axes, places, seeds, budget, agent, size=1.8 if seeds.shape[1] <= 10 else 1.2)
    lines.draw_open(axes, x, estimate, budget, agent, size=4.2)
