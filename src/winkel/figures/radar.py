"""Fig. 4a: scores by bsuite's seven capabilities; wide is better."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.analysis.scores import score_tags
from winkel.analysis.statistics import student_interval
from winkel.envs.registry import TAGS
from winkel.figures import common, style
from winkel.figures.scores import score_seeds, tabulate
from winkel.files import Arrays
from winkel.runs.results import Results

TITLE = "bsuite by capability (Fig. 4a)"

_LEVELS = (0.25, 0.5, 0.75, 1.0)
_WIDE, _HIGH = 1.75, 1.17  # limits of the axes around a circle of radius 1, with room for names


def collect(results: Results) -> dict[str, np.ndarray]:
    """The mean over seeds of each seed's score by capability, [agents, capabilities]."""
    scored, notes = score_seeds(results)
    by_tag = {key: score_tags(scores) for key, scores in scored.items()}
    agents, table = tabulate(by_tag, TAGS)
    return {
        "agents": np.array(agents),
        "tags": np.array(TAGS),
        "seed_scores": table,
        "estimate": common.over_seeds(table, student_interval).estimate,
        "notes": notes,
    }


def draw(results: Arrays) -> Figure:
    """Draw a closed line for each agent.

    A capability without any score is named in grey; where an agent lacks one its line is broken.
    """
    agents, mean = style.in_order(results["agents"]), results["estimate"]
    figure = style.new_figure(height=0.25 + 3.4 * _HIGH / _WIDE, width=3.4)
    axes = figure.subplots()
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_xlim(-_WIDE, _WIDE)
    axes.set_ylim(-_HIGH, _HIGH)
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(results["tags"])) / len(results["tags"])
    spokes = np.stack([np.cos(angles), np.sin(angles)])  # [2, tags], clockwise from above
    _draw_web(axes, spokes)
    _write_names(axes, spokes, results["tags"], [not np.isnan(scores).all() for scores in mean.T])
    for name, agent in agents.items():
        line = style.agent_style(name)
        corners = spokes * mean[agent]
        closed = np.append(corners, corners[:, :1], axis=1)
        axes.plot(
            *closed, color=line.colour, linestyle=line.dashes, linewidth=1.2, label=name,
            marker=line.marker, markersize=2.8, markeredgewidth=0,
        )  # fmt: skip
    style.legend_above(figure, agents, markers=True)
    seeds = (~np.isnan(results["seed_scores"])).any(axis=1).sum(axis=-1)
    style.write_below(
        figure,
        f"bsuite's scores by capability, wide is better: means over {style.seeds_text(seeds)}.",
        results["notes"],
    )
    return figure


def _draw_web(axes: Axes, spokes: np.ndarray) -> None:
    around = np.append(spokes, spokes[:, :1], axis=1)
    for level in _LEVELS:
        axes.plot(*(level * around), color=style.FAINT, linewidth=0.8 if level == 1 else 0.35)
    for spoke in spokes.T:
        axes.plot(*np.stack([np.zeros(2), spoke], axis=1), color=style.FAINT, linewidth=0.35)
    for level in (0.5, 1.0):
        axes.text(
            -0.03, level - 0.06, f"{level:g}", color=style.FAINT, fontsize=6, va="top", ha="right"
        )


def _write_names(axes: Axes, spokes: np.ndarray, tags: np.ndarray, scored: list[bool]) -> None:
    for (x, y), tag, known in zip(spokes.T, tags, scored, strict=True):
        axes.text(
            1.07 * x,
            1.07 * y,
            str(tag).replace("_", "\n") + ("" if known else "\n(no runs)"),
            ha="center" if abs(x) < 0.3 else "left" if x > 0 else "right",
            va="bottom" if y > 0.9 else "top" if y < -0.8 else "center",
            color=style.INK if known else style.FAINT,
            fontsize=7.5,
            linespacing=0.95,
        )
