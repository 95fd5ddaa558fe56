"""Measures of deep sea. Regret is the number of episodes without treasure, at most the budget."""

from collections.abc import Collection, Sequence

import numpy as np

from winkel.experiments.collect import (
    collect_ensemble_size,
    collect_regret,
    collect_statistics,
)
from winkel.experiments.collect.common import num_episodes
from winkel.experiments.collect.sea import QUANTITIES, say_budget, sea_runs, size_of
from winkel.experiments.collect.seen import shares
from winkel.report.measures.common import (
    Found,
    Part,
    Samples,
    compare,
    counts,
    known,
    median_gap,
    median_ratio,
    notes_of,
    only,
)
from winkel.runs.results import Results


def regret_ratio(results: Results, *, agent: str, others: Sequence[str]) -> Found:
    """Ratio of median regrets over all common sizes, and as details at each size."""
    missing = _absent(results, [agent, *others])
    present = [name for name in others if not _absent(results, [name])]
    if _absent(results, [agent]) or not present:
        return Found(missing=missing)
    arrays = collect_regret(only(results, {agent, *present}))
    regrets = np.minimum(arrays["seed_regrets"], arrays["budget"])  # [agents, sizes, seeds]
    sizes = arrays["sizes"].tolist()
    parts: list[Part] = []
    seeds: list[int] = []
    reached: list[int] = []
    for other in present:
        xs, ys = (_by_size(regrets, arrays["agents"].tolist(), who) for who in (agent, other))
        both = [i for i in range(len(sizes)) if len(xs[i]) and len(ys[i])]
        if not both:
            missing += (f"deep_sea of one size and budget by both {agent} and {other}",)
            continue
        parts.append(_ratio(other, [xs[i] for i in both], [ys[i] for i in both]))
        if len(both) > 1:
            parts += [
                _ratio(f"{other}, size {sizes[i]}", [xs[i]], [ys[i]], judged=False) for i in both
            ]
        seeds += [min(len(xs[i]), len(ys[i])) for i in both]
        reached.append(sizes[both[-1]])
    scale = {"seeds": min(seeds), "size": min(reached)} if seeds else {}
    return Found(
        tuple(parts), missing, scale | {"episodes": int(arrays["budget"])}, notes_of(arrays)
    )


def members_ratio(results: Results, *, members: Sequence[int]) -> Found:
    """Ratio of median regrets, PE-DQN's to BDQN+P's with each number of members that there is.

    `members` are numbers that must be among them.
    """
    if missing := _absent(results, ["pe_dqn"]):
        return Found(missing=missing)
    bdqn = {r.config["agent"] for r in results.records if r.config.get("algorithm") == "bdqn"}
    arrays = collect_ensemble_size(only(results, {"pe_dqn", *bdqn}))
    budget, size = int(arrays["budget"]), int(arrays["size"])
    regret = QUANTITIES.index("regret")
    ours = known(np.minimum(arrays["reference_seed_values"][regret], budget))
    theirs = {
        n: known(np.minimum(values, budget))
        for n, values in zip(arrays["members"].tolist(), arrays["seed_values"][regret], strict=True)
    }
    missing = tuple(f"deep_sea by bdqn with {n} members" for n in members if n not in theirs)
    if not len(ours):
        return Found(missing=(f"deep_sea of size {size} by pe_dqn", *missing))
    parts = tuple(_ratio(f"{n} members", [ours], [row]) for n, row in theirs.items())
    scale = {"episodes": budget, "seeds": min(map(len, [ours, *theirs.values()]))}
    return Found(parts, missing, scale, (f"deep sea of size {size}", *notes_of(arrays)))


def projection_gap(results: Results, *, moments: Sequence[str]) -> Found:
    """Difference of the median shares of state-actions seen, quantile minus categorical."""
    names = [f"statistic_{p}_{m}" for m in moments for p in ("quantile", "categorical")]
    missing = _absent(results, names)
    if len(missing) == len(names):
        return Found(missing=missing)
    arrays = collect_statistics(only(results, names))
    parts: list[Part] = []
    seeds: list[int] = []
    for moment in moments:
        column = arrays["moments"].tolist().index(moment)
        quantile, categorical = (known(rows[column]) for rows in arrays["seed_shares"])
        if len(quantile) and len(categorical):
            x, y = [quantile], [categorical]
            parts.append(Part(moment, compare(x, y, median_gap), counts(x, y)))
            seeds.append(min(len(quantile), len(categorical)))
    scale = {"seeds": min(seeds), "size": int(arrays["size"])} if seeds else {}
    notes = tuple(note for note in notes_of(arrays) if not note.startswith("no runs of"))
    return Found(tuple(parts), missing, scale, notes)


def coverage_gap(results: Results, *, agent: str, other: str) -> Found:
    """Difference of the medians of the share of state-actions seen, averaged over episodes."""
    if missing := _absent(results, [agent, other]):
        return Found(missing=missing)
    selection = sea_runs(only(results, {agent, other}), having=("seen",))
    size = selection.keep_most(size_of, lambda n: f"of size {n}")
    budget = selection.keep_most(num_episodes, say_budget)
    selection.keep_first(lambda r: (r.config["agent"], r.config["seed"]), "agent and seed")
    x, y = (
        [np.array([shares(r).mean() for r in selection.records if r.config["agent"] == name])]
        for name in (agent, other)
    )
    if not len(x[0]) or not len(y[0]):
        return Found(missing=(f"deep_sea of one size and budget by both {agent} and {other}",))
    scale = {"seeds": min(len(x[0]), len(y[0])), "episodes": budget, "size": size}
    notes = tuple(map(str, selection.closing_notes()))
    return Found((Part(other, compare(x, y, median_gap), counts(x, y)),), (), scale, notes)


def _absent(results: Results, agents: Collection[str]) -> tuple[str, ...]:
    have = {r.config["agent"] for r in results.records if r.experiment == "deep_sea"}
    return tuple(f"deep_sea by {name}" for name in agents if name not in have)


def _by_size(regrets: np.ndarray, agents: list[str], agent: str) -> list[np.ndarray]:
    """For each size the regrets of an agent's seeds; empty where there are none."""
    if agent not in agents:
        return [np.zeros(0)] * regrets.shape[1]
    return [known(row) for row in regrets[agents.index(agent)]]


def _ratio(label: str, xs: Samples, ys: Samples, *, judged: bool = True) -> Part:
    return Part(label, compare(xs, ys, median_ratio), counts(xs, ys), judged)
