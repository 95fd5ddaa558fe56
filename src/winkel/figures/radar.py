"""Fig. 4a: scores by bsuite's seven capabilities; wide is better."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from winkel.analysis.scores import score_tags
from winkel.envs.registry import TAGS
from winkel.figures import style
from winkel.figures.scores import score_seeds, tabulate
from winkel.files import Arrays
from winkel.runs.results import Results

TITLE = "bsuite by capability (Fig. 4a)"


def collect(results: Results) -> dict[str, np.ndarray]:
    """The mean over seeds of each seed's score by capability, [agents, capabilities]."""
    scored, notes = score_seeds(results)
    by_tag = {key: score_tags(scores) for key, scores in scored.items()}
    return {"tags": np.array(TAGS), **tabulate(by_tag, TAGS), "notes": notes}


def draw(results: Arrays) -> Figure:
    """Draw a closed line for each agent.

    A capability without any score is named in grey; where an agent lacks one its line is broken.
    """
    agents, mean = style.in_order(results["agents"]), results["estimate"]
    figure = style.new_figure(height=2.55, width=3.4)
    axes: Any = figure.add_subplot(projection="polar", theta_offset=np.pi / 2, theta_direction=-1)
    angles = 2 * np.pi * np.arange(len(results["tags"])) / len(results["tags"])
    missing: Any = np.isnan(mean).all(axis=0)
    names = np.char.add(results["tags"], np.where(missing, "_(no runs)", ""))
    axes.set_xticks(angles, [name.replace("_", "\n") for name in names.tolist()])
    for label, x, absent in zip(axes.get_xticklabels(), np.sin(angles), missing, strict=True):
        label.set_horizontalalignment("center" if abs(x) < 0.3 else "left" if x > 0 else "right")
        label.set(color=style.FAINT if absent else style.INK, fontsize=7.5, linespacing=0.95)
    axes.tick_params(pad=-1)
    axes.set_ylim(0, 1)
    axes.set_yticks([0.25, 0.5, 0.75, 1.0], ["", "0.5", "", "1"], color=style.FAINT, fontsize=6)
    axes.set_rlabel_position(-12)
    axes.grid(visible=True, color=style.FAINT, linewidth=0.35)
    axes.spines["polar"].set(color=style.FAINT, visible=True)
    for name, agent in agents.items():
        line = style.agent_style(name)
        axes.plot(
            np.append(angles, angles[0]), np.append(mean[agent], mean[agent, 0]), label=name,
            color=line.colour, linestyle=line.dashes, linewidth=1.2,
            marker=line.marker, markersize=2.8, markeredgewidth=0, clip_on=False,
        )  # fmt: skip
    style.legend_above(figure, agents, markers=True)
    seeds = (~np.isnan(results["seed_scores"])).any(axis=1).sum(axis=-1)
    caption = (
        f"bsuite's scores by capability, wide is better: means over {style.seeds_text(seeds)}."
    )
    style.write_below(figure, caption, results["notes"])
    return figure
