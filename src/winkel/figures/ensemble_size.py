"""App. B.3: BDQN+P with different numbers of members beside PE-DQN; low is better."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.analysis.statistics import median_iqr
from winkel.errors import InputError
from winkel.experiments.results import Record, Results
from winkel.figures import common, style
from winkel.figures.common import num_episodes, size_of
from winkel.io.results import Arrays

TITLE = "Deep sea: members of the ensemble (compare Fig. 7a)"
QUANTITIES = ("first", "regret")
"""The first episode with treasure, and the number of episodes without it."""
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
    "notes": "notes",
}

_LOGARITHMIC = (
    50  # the axis is logarithmic if the budget is more than so many times the least value
)

_TITLES = {"first": "first episode with treasure", "regret": "episodes without treasure"}


def collect(results: Results) -> dict[str, np.ndarray]:
    """BDQN+P by its number of members, and PE-DQN, in one deep sea: first treasure and regret.

    Arrays are [quantities, members], those of PE-DQN [quantities]; infinite as in `regret`.
    """
    selection = common.deep_sea_runs(results, having=("bad",))
    selection.records = [
        r for r in selection.records if _members(r) or r.config.get("algorithm") == "pe_dqn"
    ]
    found: dict[int, set[int]] = {}
    for record in selection.records:
        found.setdefault(size_of(record), set()).add(_members(record))
    if not any(map(_members, selection.records)):
        raise InputError("no deep_sea runs of bdqn")
    # The largest of the sizes with most numbers of members.
    size = max(found, key=lambda n: (len(found[n] - {0}), n))
    others = ", ".join(str(n) for n in sorted(found) if n != size)
    selection.keep(lambda r: size_of(r) == size, f"of size {others}")
    budget = selection.keep_most(num_episodes, common.describe_budget)
    selection.keep_first(lambda r: (_members(r), r.config["seed"]), "number of members and seed")
    members = sorted(set(map(_members, selection.records)) - {0})
    values = common.seed_table(
        selection.records,
        [0, *members],  # no members: PE-DQN
        _members,
        lambda r: (common.first_treasure(r), common.regret_of(r)),
    )
    values = np.moveaxis(values, -1, 0)  # [quantities, members, seeds]
    names = ["pe_dqn", *(f"bdqn with {n} members" for n in members)]
    selection.notes += common.note_unsolved(names, values[1])
    arrays = {"seed_values": values, **common.over_seeds(values, median_iqr)._asdict()}
    return {
        "quantities": common.text(QUANTITIES),
        "members": np.array(members),
        **{name: array[:, 1:] for name, array in arrays.items()},
        **{f"reference_{name}": array[:, 0] for name, array in arrays.items()},
        "size": np.asarray(size),
        "budget": np.asarray(budget),
        "notes": selection.all_notes(),
    }


def _members(record: Record) -> int:
    """The number of members of BDQN+P; 0 for any other agent."""
    if record.config.get("algorithm") != "bdqn":
        return 0
    return int(record.config.get("config", {}).get("num_members", 0))


def draw(results: Arrays) -> Figure:
    """Draw medians and quartiles against the number of members, with PE-DQN beside them.

    Small markers are seeds. What is infinite, because of runs that never found the treasure, is
    drawn at the budget with an open marker.
    """
    common.check(results, SHAPES)
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
    style.legend_above(figure, shown, markers=True)
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
    at_most = [np.minimum(values, budget) for values in style.spread_at(results, index)]
    style.draw_band(axes, x, at_most, "bdqn")
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
    """Draw medians [members], and beside them all seeds [members, seeds]."""
    places = x[:, None] + np.linspace(0.14, 0.34, seeds.shape[1])
    style.draw_markers(
        axes, places, seeds, budget, agent, size=1.8 if seeds.shape[1] <= 10 else 1.2
    )
    style.draw_markers(axes, x, estimate, budget, agent, size=4.2)
