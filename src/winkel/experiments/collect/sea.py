"""Deep sea: regret against size, and against the number of members of an ensemble."""

import json
from collections.abc import Callable

import numpy as np

from winkel.errors import InputError
from winkel.experiments.collect.common import (
    Selection,
    num_episodes,
    over_seeds,
    seed_table,
    select,
    text,
)
from winkel.experiments.statistics import median_iqr
from winkel.runs.results import Arrays, Record, Results

QUANTITIES = ("first", "regret")
"""Of the figure of ensemble sizes: the first episode with treasure, and episodes without it."""


def collect_regret(results: Results) -> Arrays:
    """Median number of episodes without treasure and its quartiles, [agents, sizes].

    Only runs of one budget are compared. A run that never finds the treasure has a regret of
    infinity, not of the budget, so that a median or quartile that it decides is infinite too.
    """
    selection = sea_runs(results, having=("bad",))
    budget = selection.keep_most(num_episodes, say_budget)
    selection.keep_first(
        lambda r: (r.config["agent"], size_of(r), r.config["seed"]), "agent, size and seed"
    )
    agents, sizes = selection.agents(), sorted({size_of(r) for r in selection.records})
    regret = seed_table(
        selection.records, [(agents, lambda r: r.config["agent"]), (sizes, size_of)], regret_of
    )
    selection.notes += _unsolved(agents, regret)
    return {
        "agents": text(agents),
        "sizes": np.array(sizes),
        "seed_regrets": regret,
        **over_seeds(regret, median_iqr)._asdict(),
        "budget": np.asarray(budget),
        "notes": selection.closing_notes(),
    }


def collect_ensemble_size(results: Results) -> Arrays:
    """BDQN+P by its number of members, and PE-DQN, in one sea: first treasure and regret.

    Arrays are [quantities, numbers of members], those of PE-DQN [quantities]; infinite as above.
    """
    selection = sea_runs(results, having=("bad",))
    selection.records = [r for r in selection.records if _members(r) or _is_pe_dqn(r)]
    if not any(_members(r) for r in selection.records):
        raise InputError("no deep_sea runs of bdqn")
    size = _keep_size(selection)
    budget = selection.keep_most(num_episodes, say_budget)
    selection.keep_first(lambda r: (_members(r), r.config["seed"]), "number of members and seed")
    members = sorted({_members(r) for r in selection.records} - {0})
    columns = [([0, *members], _members)]  # no members: PE-DQN
    values = np.stack(
        [seed_table(selection.records, columns, value) for value in (first_treasure, regret_of)]
    )
    names = ["pe_dqn", *(f"bdqn with {n} members" for n in members)]
    selection.notes += _unsolved(names, values[1])
    found = {"seed_values": values, **over_seeds(values, median_iqr)._asdict()}
    return {
        "quantities": text(QUANTITIES),
        "members": np.array(members),
        **{name: array[:, 1:] for name, array in found.items()},
        **{f"reference_{name}": array[:, 0] for name, array in found.items()},
        "size": np.asarray(size),
        "budget": np.asarray(budget),
        "notes": selection.closing_notes(),
    }


def sea_runs(
    results: Results,
    what: str = "deep_sea",
    *,
    having: tuple[str, ...],
    agent: Callable[[str], bool] = lambda _: True,
) -> Selection:
    """Runs of deep sea, of any size but otherwise of one kind."""
    selection = select(results, what, experiment="deep_sea".__eq__, agent=agent, having=having)
    selection.keep(lambda r: size_of(r) > 0, "that do not say their size")
    if not selection.records:
        raise InputError(f"no {what} runs that say their size")
    selection.keep_most(_kind, lambda kind: f"in seas of {kind}")
    return selection


def size_of(record: Record) -> int:
    """N; 0 where a run does not say."""
    return int(record.config.get("setting", {}).get("size", 0))


def say_budget(episodes: int) -> str:
    """For notes."""
    return f"of {episodes:,} episodes"


def regret_of(record: Record) -> float:
    """Episodes without treasure; infinity when there was none at all."""
    bad = np.asarray(record.episodes["bad"], bool)
    return np.inf if bad.all() else float(bad.sum())


def first_treasure(record: Record) -> float:
    """The first episode that is not bad, counted from 1; infinity when all are."""
    good = np.flatnonzero(~np.asarray(record.episodes["bad"], bool))
    return float(good[0] + 1) if len(good) else np.inf


def _kind(record: Record) -> str:
    """All that makes a sea but its size and which action means right."""
    setting = dict(record.config["setting"])
    rest = {k: v for k, v in setting.items() if k not in ("size", "mapping_seed")}
    return json.dumps(rest, sort_keys=True)


def _members(record: Record) -> int:
    """Of BDQN+P; 0 for any other agent."""
    if record.config.get("algorithm") != "bdqn":
        return 0
    return int(record.config.get("config", {}).get("num_members", 0))


def _is_pe_dqn(record: Record) -> bool:
    return record.config.get("algorithm") == "pe_dqn"


def _keep_size(selection: Selection) -> int:
    """Runs in the largest of the seas with most numbers of members."""
    found: dict[int, set[int]] = {}
    for record in selection.records:
        found.setdefault(size_of(record), set()).add(_members(record))
    size = max(found, key=lambda n: (len(found[n] - {0}), n))
    others = sorted(set(found) - {size})
    selection.keep(lambda r: size_of(r) == size, f"in seas of size {', '.join(map(str, others))}")
    return size


def _unsolved(names: list[str], regret: np.ndarray) -> list[str]:
    """One line that counts runs without any treasure, in all cells of each name."""
    counts = [
        f"{name} {np.isinf(runs).sum()}/{(~np.isnan(runs)).sum()}"
        for name, runs in zip(names, regret, strict=True)
        if np.isinf(runs).any()
    ]
    return (
        [f"runs without any treasure, shown at the budget: {', '.join(counts)}"] if counts else []
    )
