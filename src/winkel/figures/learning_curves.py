"""Returns over time in any environment; bsuite's experiments are a panel each (App. B.4)."""

import math
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from winkel.analysis.scores import OFFICIAL_IDS
from winkel.analysis.statistics import Interval, student_interval
from winkel.envs.registry import EXPERIMENTS
from winkel.figures import common, style
from winkel.figures.common import Selection, agent_of, num_episodes
from winkel.files import Arrays
from winkel.runs.results import Results, RunRecord

Curve = tuple[np.ndarray, np.ndarray]
"""Numbers of episodes or steps, which rise, and returns after them."""

TITLE = "Learning curves"
POINTS = 50
"""Points of a curve, at most."""
LEVEL = 0.9
"""Confidence of the intervals over seeds."""
WINDOW = 0.05
"""Share of the episodes over which training returns are averaged."""

_LETTERS, _LINE = 20, 0.11  # letters of a title to the inch, and inches from line to line


def panel_of(record: RunRecord) -> str:
    """The experiment of one of bsuite's own settings, else the environment."""
    env = str(record.config["env"])
    return OFFICIAL_IDS.get(env, env)


def panel_names(records: Iterable[RunRecord]) -> list[str]:
    """All panels: bsuite's experiments in their order, then other environments by name."""
    found = set(map(panel_of, records))

    def by_name(name: str) -> list[str | int]:  # size=8 before size=10
        return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]

    others = sorted(found - EXPERIMENTS.keys(), key=by_name)
    return [*(name for name in EXPERIMENTS if name in found), *others]


def scale_of(record: RunRecord) -> float:
    """What returns are divided by: the scale of bsuite's '_scale' experiments, else 1."""
    official = record.config["env"] in OFFICIAL_IDS
    return record.config.get("setting", {}).get("reward_scale", 1.0) if official else 1.0


def collect(
    results: Results, over: str | None = None, returns: str | None = None
) -> dict[str, np.ndarray]:
    """Returns over time of all agents in each environment, [environments, agents, points].

    bsuite's settings are averaged by experiment, and divided by the scale in '_scale' experiments.
    `over` is 'steps' or 'episodes', by default what budgets count; `returns` are 'greedy' or
    'training', by default greedy where all runs of an environment have evaluations. Only runs of
    the commonest budget are shown. Curves are padded with NaN to `POINTS`; bands are cut at the
    lowest and the highest return.
    """
    selection = common.select(results, "training", lambda *_: True)
    if returns == "greedy":
        selection.keep(_is_evaluated, "with greedy evaluations", "without greedy evaluations")
    names = panel_names(selection.records)
    agents = selection.agents()
    shape = (len(names), len(agents), POINTS)
    x = np.full((len(names), POINTS), np.nan)
    bands = Interval(*(np.full(shape, np.nan) for _ in Interval._fields))
    greedy, num_seeds = np.zeros(len(names), int), np.zeros(shape[:2], int)
    clocks: list[str] = []
    records, selection.records = selection.records, []
    for panel, name in enumerate(names):
        part = Selection(name, [record for record in records if panel_of(record) == name])
        _, unit = part.keep_most(_planned, lambda budget: "of {:,} {}".format(*budget))
        clocks.append(over or unit)
        curves, greedy[panel] = _returns(part, clocks[-1], returns)
        ends = [steps[-1] for steps, _ in curves]
        if max(ends) > 1.05 * min(ends):
            end = f"{min(ends):,.0f} {clocks[-1]}"
            part.notes.append(f"curves end after {end}, as the shortest run does")
        first, last = max(x[0] for x, _ in curves), min(ends)  # the time that all curves cover
        at = np.linspace(first, max(first, last), min(POINTS, *(len(x) for x, _ in curves)))
        values = [np.interp(at, x, y) for x, y in curves]
        x[panel, : len(at)] = at
        everything = np.concatenate([y for _, y in curves])
        for agent, seeds in average_settings(part.records, values).items():
            place = panel, agents.index(agent)
            num_seeds[place] = len(seeds)
            for band, found in zip(bands, student_interval(seeds, LEVEL), strict=True):
                band[place][: len(at)] = np.clip(found, everything.min(), everything.max())
        selection.notes += [f"{name}: {note}" for note in part.notes]
        selection.records += part.records
    return {
        "environments": np.array(names),
        "agents": np.array(agents),
        "clocks": np.array(clocks),
        "greedy": greedy,
        "x": x,
        **bands._asdict(),
        "num_seeds": num_seeds,
        "notes": selection.all_notes(),
    }


def _is_evaluated(record: RunRecord) -> bool:
    return len(record.evaluations.get("returns", ())) > 0


def _planned(record: RunRecord) -> tuple[int, str]:
    """The length of a whole run, also of one that has not ended: steps if planned, or episodes."""
    horizon = record.config.get("horizon") or {}
    if horizon.get("steps"):
        return horizon["steps"], "steps"
    episodes = record.config.get("until") or horizon.get("episodes") or num_episodes(record)
    return episodes, "episodes"


def _returns(part: Selection, clock: str, wanted: str | None) -> tuple[list[Curve], bool]:
    """The returns of each run, and whether they are greedy.

    All or none are: evaluations of some runs cannot be compared with training returns of others.
    """
    without = [record for record in part.records if not _is_evaluated(record)]
    if wanted is None and 0 < len(without) < len(part.records):
        lacking = ", ".join(sorted(set(map(agent_of, without))))
        part.notes.append(f"training returns, for {lacking} lacks evaluations")
    greedy = wanted != "training" and not without
    return [_curve(record, clock, greedy) for record in part.records], greedy


def _curve(record: RunRecord, clock: str, greedy: bool) -> Curve:
    table = record.evaluations if greedy else record.episodes
    returned = np.mean(table["returns"], axis=-1) if greedy else _average(table["return"])
    if clock == "steps":
        at = table["env_steps"] if "env_steps" in table else np.cumsum(table["length"])
    else:
        at = table["episodes"] if greedy else np.arange(1, len(returned) + 1)
    return np.asarray(at, float), returned / scale_of(record)


def _average(returns: np.ndarray) -> np.ndarray:
    """Average over the last episodes, a share of all."""
    total, end = np.append(0.0, np.cumsum(returns)), np.arange(1, len(returns) + 1)
    begin = np.maximum(end - math.ceil(WINDOW * len(returns)), 0)
    return (total[end] - total[begin]) / (end - begin)


def average_settings(
    records: Sequence[RunRecord], values: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """The mean over settings of each seed, by agent [seeds, …], of a value for each run."""
    seeds: dict[str, dict[int, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    for record, curve in zip(records, values, strict=True):
        seeds[agent_of(record)][record.config["seed"]].append(curve)
    return {
        agent: np.stack([np.mean(settings, axis=0) for settings in by_seed.values()])
        for agent, by_seed in seeds.items()
    }


def draw(results: Arrays) -> Figure:
    """Draw returns and their bands; hard exploration is in bold.

    Bands may leave a panel: they exceed the curves by no more than the range of the curves.
    """
    names = results["environments"].tolist()
    agents = style.in_order(results["agents"])
    columns = min(4, len(names))
    rows = math.ceil(len(names) / columns)
    width = style.TEXT_WIDTH if columns > 2 else 1.3 + 1.9 * columns
    titles = [_title(name, (width - 0.6) / columns) for name in names]
    breaks = [title.count("\n") for title in titles]
    lines = sum(max(breaks[i : i + columns]) for i in range(0, len(names), columns))
    height = 0.45 + (1.7 if rows == 1 else 1.13) * rows + _LINE * lines
    figure = style.new_figure(height=height, width=width)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    greedy, clocks = results["greedy"], results["clocks"].tolist()
    mixed = len(set(greedy.tolist())) > 1
    ticks = 3 if columns > 3 else 5
    kind = "return" if mixed else "greedy return" if greedy.all() else "training return"
    for axes in panels[len(names) :]:
        axes.remove()
    for index, (axes, title) in enumerate(zip(panels, titles, strict=False)):
        for agent, row in agents.items():
            if results["num_seeds"][index, row]:
                curve = style.spread_at(results, index, row)
                style.draw_band(axes, results["x"][index], curve, agent, len(agents))
        axes.set_title(
            title + ("*" if mixed and not greedy[index] else ""),
            fontweight=common.weight_of(names[index]), fontsize=7, pad=3, linespacing=0.95,
        )  # fmt: skip
        style.count_axis(axes, bins=ticks)
        axes.set_xlim(right=float(np.nanmax(results["x"][index])))
        axes.yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
        axes.ticklabel_format(axis="y", scilimits=(-2, 4), useMathText=True)
        axes.yaxis.get_offset_text().set_fontsize(5.5)
        shown = results["estimate"][index]
        low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
        room = max(high - low, 0.02 * max(abs(low), abs(high))) or 1.0
        bottom, top = axes.get_ylim() if high > low else (-np.inf, np.inf)
        axes.set_ylim(max(bottom, low - room), min(top, high + room))
        axes.tick_params(labelsize=6, pad=1.5, length=2)
        if index + columns >= len(names) or len(set(clocks)) > 1:
            clock = clocks[index].replace("steps", "environment steps")
            axes.set_xlabel(clock, fontsize=7, labelpad=2)
        if index % columns == 0:
            axes.set_ylabel(kind, fontsize=7)
    style.legend_above(figure, agents)
    _write_caption(figure, results)
    return figure


def _title(name: str, width: float) -> str:
    """The name of a panel, in at most three lines of so many inches."""
    if name in EXPERIMENTS:
        return name.replace("_", " ")
    parts = re.sub(r"([:/,])", r"\1 ", name)
    lines = textwrap.wrap(parts, int(_LETTERS * width), max_lines=3, placeholder="…")
    return "\n".join(line.replace(" ", "") for line in lines)


def _write_caption(figure: Figure, results: Arrays) -> None:
    """Write beneath a figure what its curves and bands are."""
    names = results["environments"].tolist()
    caption = f"Means over {style.seeds_text(results['num_seeds'])}"
    if any(name in EXPERIMENTS for name in names):
        caption += ", each the mean of all settings"
    if results["num_seeds"].max() > 1:
        caption += ", with 90 % Student t bands, cut at the lowest and highest return"
    if 0 < results["greedy"].mean() < 1:
        caption += "; returns of the greedy policy, but in panels with * of training"
    if not results["greedy"].all():
        caption += f"; training returns are averaged over {100 * WINDOW:g} % of the episodes"
    if any(name.endswith("_scale") for name in names):
        caption += "; returns of scale experiments are divided by the scale"
    style.write_below(figure, f"{caption}.", results["notes"])
