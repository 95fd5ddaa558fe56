"""bsuite's scores by experiment: bars with intervals, a dot for each seed where there are few."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.analysis.scores import OFFICIAL_IDS, note_incomplete, score_runs
from winkel.analysis.statistics import student_interval
from winkel.envs.registry import EXPERIMENTS
from winkel.figures import common, style
from winkel.files import Arrays
from winkel.runs.results import Results

Scores = Mapping[tuple[str, int], Mapping[str, float]]
"""By agent and seed, then by experiment or capability."""

TITLE = "bsuite by experiment"

_FEW_SEEDS = 10  # with fewer there is a dot for each
_BARS_OF_A_ROW = 84


def collect(results: Results) -> dict[str, np.ndarray]:
    """Mean scores by experiment, with intervals."""
    scored, notes = score_seeds(results)
    present = {name for scores in scored.values() for name in scores}
    experiments = [name for name in EXPERIMENTS if name in present]
    return {
        "experiments": np.array(experiments),
        **tabulate(scored, experiments),
        "notes": notes,
    }


def score_seeds(results: Results) -> tuple[Scores, np.ndarray]:
    """Score the official settings by agent and seed, and note what is missing from the scores."""
    selection = common.select(results, "bsuite", lambda experiment, _: experiment in EXPERIMENTS)
    selection.keep(
        lambda r: r.config["env"] in OFFICIAL_IDS,
        "in bsuite's own settings (such as deep_sea/0)",
        "in settings not among bsuite's 468",
    )
    selection.notes += note_incomplete(selection.records)
    return score_runs(selection.records), selection.all_notes()


def tabulate(scores: Scores, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """Agents, scores [agents, columns, seeds] with NaN where a seed has none, and their means.

    The means [agents, columns] have 95 % Student t intervals over seeds, within [0, 1].
    """
    agents = list(dict.fromkeys(agent for agent, _ in scores))
    table = common.seed_table(
        scores.items(),
        agents,
        lambda item: item[0][0],
        lambda item: [item[1].get(column, np.nan) for column in columns],
    ).swapaxes(1, 2)
    mean, low, high = common.over_seeds(table, partial(student_interval, confidence=0.95))
    return {
        "agents": np.array(agents),
        "seed_scores": table,
        "estimate": mean,
        "low": np.clip(low, 0, 1),
        "high": np.clip(high, 0, 1),
    }


def draw(results: Arrays) -> Figure:
    """Draw a bar per agent and experiment, in as many rows as the bars need.

    Hard exploration is in bold. A score that is missing has no bar, but a small cross.
    """
    names, agents = results["experiments"], style.in_order(results["agents"])
    per_row = math.ceil(len(names) / math.ceil(len(names) * len(agents) / _BARS_OF_A_ROW))
    rows = math.ceil(len(names) / per_row)
    figure = style.new_figure(height=0.15 + 1.45 * rows)
    panels = figure.subplots(rows, 1, sharey=True, squeeze=False)[:, 0]
    for row, axes in enumerate(panels):
        _draw_row(axes, results, agents, np.arange(len(names))[row * per_row :][:per_row])
        axes.set_xlim(-0.55, per_row - 0.45)
        axes.set_ylabel("score")
    panels[0].set_ylim(0, 1.03)
    panels[0].set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    style.legend_above(figure, agents, bars=True)
    seeds = (~np.isnan(results["seed_scores"])).sum(axis=-1)
    dots = ", a dot for each seed" if 1 < seeds.max() < _FEW_SEEDS else ""
    caption = f"bsuite's scores, means over {style.seeds_text(seeds)} with 95 % Student t intervals"
    style.write_below(figure, f"{caption}{dots}; exploration in bold.", results["notes"])
    return figure


def _draw_row(axes: Axes, results: Arrays, agents: dict[str, int], shown: np.ndarray) -> None:
    width = min(0.82 / len(agents), 0.35)
    for place, (name, agent) in enumerate(agents.items()):
        x = np.arange(len(shown)) + (place - (len(agents) - 1) / 2) * width
        spread = [values[shown] for values in style.spread_at(results, agent)]
        seeds = results["seed_scores"][agent, shown]  # [E, K]
        colour = style.agent_style(name).colour
        style.draw_bars(axes, x, width, spread, seeds, colour, name, _FEW_SEEDS)
    names = results["experiments"][shown].tolist()
    labels = [name.replace("_", " ") for name in names]
    axes.set_xticks(
        range(len(shown)), labels, rotation=28, ha="right", rotation_mode="anchor", fontsize=6.5
    )
    axes.tick_params(axis="x", length=0, pad=2)
    for label, name in zip(axes.get_xticklabels(), names, strict=True):
        label.set_fontweight(common.weight_of(name))
