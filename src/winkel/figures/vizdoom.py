"""Fig. 5b: returns over steps in VizDoom's maze, a panel for each sparsity."""

import numpy as np
from matplotlib.figure import Figure

from winkel.figures import common, style
from winkel.figures.learning_curves import collect_panels
from winkel.files import Arrays
from winkel.runs.results import Results, RunRecord

TITLE = "VizDoom (Fig. 5b)"
EXPERIMENT = "doom"
"""The experiment of VizDoom's runs."""
SHAPES = {
    "settings": "settings",
    "agents": "agents",
    "greedy": "settings",
    "x": "settings points",
    "mean": "settings agents points",
    "low": "settings agents points",
    "high": "settings agents points",
    "num_seeds": "settings agents",
    "notes": "notes",
}

_SPARSITY = ("dense", "sparse", "very-sparse")


def collect(results: Results) -> dict[str, np.ndarray]:
    """Mean returns with 90 % Student t bands over environment steps.

    Returns are of greedy evaluations if all runs of a setting have them, else of training, averaged
    over fiftieths of the time.
    """
    selection = common.select(results, "vizdoom", experiments=(EXPERIMENT,))
    names = {setting_of(r) for r in selection.records}
    settings = [name for name in _SPARSITY if name in names] + sorted(names - set(_SPARSITY))
    arrays = collect_panels(
        selection,
        settings,
        setting_of,
        clock="env_steps",
        budget=_planned,
        describe=_describe_plan,
    )
    return {"settings": common.text(settings), **arrays, "notes": selection.all_notes()}


def setting_of(record: RunRecord) -> str:
    """Such as 'very-sparse' of 'doom:my-way-home/very-sparse', with options where it has some."""
    return str(record.config["env"]).rpartition("/")[2]


def _planned(record: RunRecord) -> tuple[int, int]:
    """Planned steps and episodes; zero where the run does not say."""
    horizon = record.config.get("horizon") or {}
    return horizon.get("steps") or 0, horizon.get("episodes") or 0


def _describe_plan(plan: tuple[int, int]) -> str:
    steps, episodes = plan
    if not steps and not episodes:
        return "of no stated budget"
    return f"of {steps:,} steps" if steps else f"of {episodes:,} episodes"


def draw(results: Arrays) -> Figure:
    """Draw mean returns and their 90 % Student t bands."""
    common.check(results, SHAPES)
    names, agents = results["settings"], results["agents"]
    order = style.in_order(agents)
    figure = style.new_figure(height=1.85, width=min(style.TEXT_WIDTH, 1.1 + 1.75 * len(names)))
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for index, axes in enumerate(panels):
        for agent in order:
            if results["num_seeds"][index, agent]:
                curve = style.spread_at(results, index, agent)
                style.draw_band(axes, results["x"][index], curve, str(agents[agent]), len(order))
        axes.set_title(str(names[index]).replace("_", " "), pad=4)
        style.count_axis(axes, bins=3 if len(names) > 1 else 5)
        axes.set_xlabel("environment steps")
    panels[0].set_ylabel("return of the greedy policy" if results["greedy"].all() else "return")
    style.legend_above(figure, [str(agents[i]) for i in order])
    kinds = {0: "training returns", 1: "greedy evaluations"}
    shown = " and ".join(kinds[kind] for kind in sorted(set(results["greedy"].tolist())))
    bands = " with 90 % Student t bands" if results["num_seeds"].max() > 1 else ""
    seeds = style.seeds_text(results["num_seeds"])
    below = f"{shown.capitalize()}: means over {seeds}{bands}."
    style.write_below(figure, below, results["notes"])
    return figure
