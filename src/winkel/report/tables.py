"""Tables of results: bsuite's scores, aggregates over experiments, and deep sea."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np

from winkel.errors import InputError
from winkel.experiments.collect import collect_radar, collect_scores
from winkel.experiments.collect.common import num_episodes, over_seeds
from winkel.experiments.collect.sea import first_treasure, size_of
from winkel.experiments.score import OFFICIAL_IDS
from winkel.experiments.statistics import (
    Band,
    Interval,
    iqm,
    median_iqr,
    optimality_gap,
    probability_of_improvement,
    stratified_bootstrap,
    student_interval,
    wilson_interval,
)
from winkel.figures.style import agent_style, in_order
from winkel.report.html import (
    Cell,
    Html,
    agent,
    bullets,
    count_cell,
    details,
    element,
    interval_cell,
    join,
    number,
    paragraph,
    plural,
    section,
    table,
)
from winkel.runs.results import Arrays, Record, Results

OURS = "pe_dqn"
_SEAS = ("deep_sea", "deep_sea_stochastic")


def scores_section(results: Results) -> Html:
    """Official scores by capability and by experiment, and aggregates."""
    try:
        tags, experiments = collect_radar(results), collect_scores(results)
    except InputError as error:
        reason = str(error).strip(" ,")
        return section("bsuite scores", paragraph(f"No data: {reason}."), anchor="scores")
    by_tag = over_seeds(tags["seed_scores"], partial(student_interval, confidence=0.95))
    by_tag = Band(by_tag[0], np.clip(by_tag[1], 0, 1), np.clip(by_tag[2], 0, 1))
    by_experiment = Band(experiments["mean"], experiments["low"], experiments["high"])
    notes = [str(note) for note in experiments["notes"]]
    return section(
        "bsuite scores",
        paragraph(
            "Official scores, equal to bsuite 0.3.6: computed for each seed, then averaged, with "
            "95 % Student t intervals over seeds, cut at 0 and 1."
        ),
        details(f"{plural(len(notes), 'note')} on the data", bullets(notes)) if notes else "",
        _score_table(tags, "capability", tags["tags"].tolist(), by_tag),
        _aggregates(experiments),
        _score_table(experiments, "experiment", experiments["experiments"].tolist(), by_experiment),
        anchor="scores",
    )


def _score_table(arrays: Arrays, what: str, names: Sequence[str], found: Band) -> Html:
    order = in_order(arrays["agents"])
    seeds = (~np.isnan(arrays["seed_scores"])).sum(axis=-1)  # [agents, names]
    rows: list[list[Cell | str]] = []
    for column, name in enumerate(names):
        scored = seeds[order, column]
        have = scored[scored > 0]
        if not have.size:
            continue
        said = f"{have.min()}" if have.min() == have.max() else f"{have.min()}–{have.max()}"
        cells = [
            interval_cell(Interval(*(float(part[i, column]) for part in found))) for i in order
        ]
        rows.append([name.replace("_", " "), *cells, Cell(said, float(have.min()), numeric=True)])
    labels = [agent(str(arrays["agents"][i])) for i in order]
    return table([what, *labels, "seeds"], rows, caption=f"Score by {what}", class_="wide")


def _aggregates(arrays: Arrays) -> Html:
    """IQM, optimality gap and probability of improvement of agents that have every experiment.

    Every experiment is what the agent with most of them has in full, for each of its seeds.
    """
    names = arrays["agents"].tolist()
    scores = [rows[:, ~np.isnan(rows).all(axis=0)] for rows in arrays["seed_scores"]]
    full = [~np.isnan(rows).any(axis=1) for rows in scores]  # for each agent [experiments]
    whole = max(full, key=lambda have: int(have.sum()))
    chosen = [i for i in in_order(names) if full[i][whole].all()]
    if not whole.any():
        return paragraph("No agent has an experiment in full for all of its seeds: no aggregates.")
    matrices = {names[i]: scores[i][whole].T for i in chosen}  # [seeds, experiments]
    rows: list[list[Cell | str]] = []
    for name, matrix in matrices.items():
        better = Cell("–", float("nan"), numeric=True)
        if OURS in matrices and name != OURS:
            better = interval_cell(probability_of_improvement(matrices[OURS], matrix))
        middle = interval_cell(stratified_bootstrap(matrix, iqm))
        gap = interval_cell(stratified_bootstrap(matrix, optimality_gap))
        rows.append([agent(name), middle, gap, better, count_cell(len(matrix))])
    others = [agent_style(name).label for name in names if name not in matrices]
    return table(
        ("agent", "IQM", "optimality gap", "P(PE-DQN better)", "seeds"),
        rows,
        caption=f"Over {plural(int(whole.sum()), 'experiment')} with 95 % stratified bootstrap "
        "intervals (2,000 resamples, generator seeded with 0)"
        + (f"; without {', '.join(others)}, which lack some" if others else ""),
    )


def sea_section(results: Results) -> Html:
    """Deep sea by size and agent: found, first goal, regret; unsolved runs are censored."""
    groups: dict[tuple[str, int, str, int], list[Record]] = defaultdict(list)
    for r in results.records:
        if r.experiment in _SEAS and "bad" in r.episodes and num_episodes(r):
            sweep = "bsuite" if r.config["env"] in OFFICIAL_IDS else "extension"
            kind = f"{sweep} stochastic" if r.experiment == _SEAS[1] else sweep
            groups[kind, size_of(r), r.config["agent"], num_episodes(r)].append(r)
    if not groups:
        return section("Deep sea", paragraph("No data: no deep_sea runs."), anchor="deep-sea")
    agents = [r.config["agent"] for r in results.records]
    rank = {agents[i]: place for place, i in enumerate(in_order(agents))}
    ordered = sorted(groups.items(), key=lambda g: (g[0][0], g[0][1], rank[g[0][2]], g[0][3]))
    headers = ("size", "agent", "found", "first goal", "regret", "never found", "episodes", "sweep")
    return section(
        "Deep sea",
        paragraph(
            "Found: seeds that reached the treasure at all, with Wilson's 95 % interval. First "
            "goal: the episode, median and quartiles over all seeds; a seed that never got there "
            "counts as ∞, not left out. Regret: episodes without treasure, median and quartiles, "
            "at most the budget (then censored: the seeds under “never found”). "
            "bsuite's own settings and the extension beyond them are told apart in the last column."
        ),
        table(
            headers,
            [_sea_row(*g) for g in ordered],
            caption="Deep sea by size and agent",
            class_="sea",
        ),
        anchor="deep-sea",
    )


def _sea_row(key: tuple[str, int, str, int], runs: Sequence[Record]) -> list[Cell | str]:
    sweep, size, name, budget = key
    first = np.array([first_treasure(r) for r in runs])
    regret = np.array([float(np.sum(r.episodes["bad"])) for r in runs])
    found = int(np.isfinite(first).sum())
    never = len(runs) - found
    share = wilson_interval(found, len(runs))
    ends = element("small", f"[{number(share.low)}, {number(share.high)}]")
    return [
        count_cell(size) if size else Cell("–", float("nan"), numeric=True),
        agent(name),
        Cell(join([f"{found}/{len(runs)} ", ends]), share.estimate, numeric=True),
        interval_cell(median_iqr(first), 0),
        interval_cell(median_iqr(regret), 0),
        Cell(element("b", f"{never}") if never else "0", float(never), numeric=True),
        count_cell(budget),
        sweep,
    ]
