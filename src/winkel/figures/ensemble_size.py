"""App. B.3: BDQN+P with different numbers of members beside PE-DQN; low is better."""

import numpy as np
from matplotlib.figure import Figure

from winkel.errors import InputError
from winkel.figures import common, style
from winkel.files import Arrays
from winkel.runs.results import Results, RunRecord

TITLE = "Deep sea: members of the ensemble (compare Fig. 7a)"


def collect(results: Results) -> dict[str, np.ndarray]:
    """Episodes without treasure of BDQN+P by its number of members, and of PE-DQN, in one deep sea.

    PE-DQN is the column with 0 members. A run that never finds the treasure is infinite.
    """
    selection = common.deep_sea_runs(results, "bad")
    selection.records = [
        r for r in selection.records if _members(r) or r.config.get("algorithm") == "pe_dqn"
    ]
    if not any(map(_members, selection.records)):
        raise InputError("no deep_sea runs of bdqn")
    budget = common.keep_one_budget(selection, _members, "number of members")
    size = common.size_of(selection.records[0])
    columns = sorted(set(map(_members, selection.records)))
    regret = common.seed_table(selection.records, columns, _members, common.regret_of)
    names = [f"bdqn with {n} members" if n else "pe_dqn" for n in columns]
    selection.notes += common.note_unsolved(names, regret)
    return selection.arrays(regret, members=columns, seed_regrets=regret, size=size, budget=budget)


def _members(record: RunRecord) -> int:
    """The number of members of BDQN+P; 0 for any other agent."""
    if record.config.get("algorithm") != "bdqn":
        return 0
    return int(record.config.get("config", {}).get("num_members", 0))


def draw(results: Arrays) -> Figure:
    """Draw medians and quartiles against the number of members, with PE-DQN beside them.

    Small markers are seeds. What is infinite, because of runs that never found the treasure, is
    drawn at the budget with an open marker.
    """
    figure = style.new_figure(height=2.05, width=3.3)
    axes = figure.subplots()
    budget, members, seeds = float(results["budget"]), results["members"], results["seed_regrets"]
    spread = style.spread_at(results)
    at_most = [np.minimum(values, budget) for values in spread]
    style.draw_limit(axes, budget)
    bdqn, pe_dqn = members > 0, members == 0
    x = np.where(bdqn, np.cumsum(bdqn) - 1.0, bdqn.sum() + 0.2)
    style.draw_band(axes, x[bdqn], [values[bdqn] for values in at_most], "bdqn")
    if pe_dqn.any():
        colour = style.agent_style("pe_dqn").colour
        axes.axhline(at_most[0][pe_dqn][0], color=colour, linewidth=0.9, zorder=1)
        low, high = (values[pe_dqn] for values in at_most[1:])
        axes.vlines(x[pe_dqn], low, high, color=colour, linewidth=5, alpha=0.2)
    for agent, columns in (("bdqn", bdqn), ("pe_dqn", pe_dqn)):
        beside = x[columns, None] + np.linspace(0.14, 0.34, seeds.shape[1])
        style.draw_markers(axes, beside, seeds[columns], budget, agent, size=1.5)
        style.draw_markers(axes, x[columns], spread[0][columns], budget, agent, size=4.2)
    order = np.argsort(x)
    axes.set_xticks(x[order], [str(n) if n else "PE-DQN" for n in members[order].tolist()])
    axes.set_xlim(-0.5, x.max() + 0.5)
    axes.set(xlabel="members of BDQN+P", ylabel="episodes without treasure")
    style.legend_above(figure, ["bdqn", "pe_dqn"] if pe_dqn.any() else ["bdqn"], markers=True)
    caption = f"Deep sea of size {results['size']}: {style.medians_text(results)} within a budget "
    caption += (
        f"of {budget:,.0f} episodes; small markers are seeds, open ones never found the treasure."
    )
    style.write_below(figure, caption, results["notes"])
    return figure
