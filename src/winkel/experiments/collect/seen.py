"""Deep sea: which state-actions an agent has seen, at the end, over time, and cell by cell."""

import math
from collections.abc import Callable

import numpy as np

from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.experiments.collect.common import (
    Selection,
    num_episodes,
    over_seeds,
    seed_table,
    text,
)
from winkel.experiments.collect.sea import say_budget, sea_runs, size_of
from winkel.experiments.statistics import median_iqr
from winkel.runs.results import Arrays, Record, Results

PROJECTIONS = ("quantile", "categorical")
MOMENTS = ("mean", "variance", "skewness", "kurtosis")
POINTS = 200
"""Episodes at which coverage is shown, at most."""


def collect_statistics(results: Results) -> Arrays:
    """The share of state-actions seen at the end by statistic, [projections, moments]."""
    names = {(p, m): f"statistic_{p}_{m}" for p in PROJECTIONS for m in MOMENTS}
    selection = sea_runs(
        results, "statistic", having=("seen",), agent=set(names.values()).__contains__
    )
    size, budget = _one_sea(selection)
    agents = list(names.values())
    share = seed_table(
        selection.records, [(agents, lambda r: r.config["agent"])], lambda r: shares(r)[-1]
    )
    absent = [name for name in agents if name not in selection.agents()]
    if absent:
        selection.notes.append(f"no runs of {', '.join(absent)}")
    share = share.reshape(len(PROJECTIONS), len(MOMENTS), -1)
    return {
        "projections": text(PROJECTIONS),
        "moments": text(MOMENTS),
        "seed_shares": share,
        **over_seeds(share, median_iqr)._asdict(),
        "size": np.asarray(size),
        "budget": np.asarray(budget),
        "notes": selection.closing_notes(),
    }


def collect_coverage(results: Results) -> Arrays:
    """The share of state-actions seen over episodes, median and quartiles, [agents, episodes]."""
    selection = sea_runs(
        results, having=("seen",), agent=lambda name: not name.startswith("statistic")
    )
    size, budget = _one_sea(selection)
    agents = selection.agents()
    episodes = np.unique(np.linspace(1, budget, min(budget, POINTS)).round().astype(int))
    by_agent = [(agents, lambda r: r.config["agent"])]
    share = np.stack(
        [seed_table(selection.records, by_agent, _share_after(n)) for n in episodes.tolist()],
        axis=1,
    )
    return {
        "agents": text(agents),
        "episodes": episodes,
        **over_seeds(share, median_iqr)._asdict(),
        "num_seeds": (~np.isnan(share[:, 0])).sum(axis=-1),
        "size": np.asarray(size),
        "budget": np.asarray(budget),
        "notes": selection.closing_notes(),
    }


def collect_heatmaps(results: Results) -> Arrays:
    """The snapshots of PE-DQN's first run with any, else of any first run, as grids."""
    records = [r for r in results.records if r.experiment in ("deep_sea", "deep_sea_stochastic")]
    if not records:
        raise InputError("no deep_sea runs")
    records.sort(key=lambda r: r.config["agent"] != "pe_dqn")
    found = ((r, r.snapshots()) for r in records)
    record, snapshots = next((pair for pair in found if pair[1]), (None, {}))
    if record is None:
        raise InputError("no deep_sea runs with snapshots")
    task = make(record.config["env"])
    right = np.asarray(task.params.right)
    side = math.isqrt(snapshots["visits"].shape[1])  # a sweep pads small seas to its largest
    grids = {
        name: snapshots[name].reshape(-1, side, side, 2)[:, : len(right), : len(right)]
        for name in ("visits", "disagreement", "bonus")
    }
    where = "{agent} in {env}, seed {seed}".format(**record.config)
    return {
        **grids,
        "episode": snapshots["episodes"],
        "size": np.asarray(task.setting["size"]),
        "right": right,
        "notes": text([f"shown: {where}"]),
    }


def shares(record: Record) -> np.ndarray:
    """Distinct state-actions seen so far, of those that can be, after each episode."""
    size = size_of(record)
    return np.asarray(record.episodes["seen"], float) / (size * (size + 1))


def _share_after(episode: int) -> Callable[[Record], float]:
    return lambda record: float(shares(record)[episode - 1])


def _one_sea(selection: Selection) -> tuple[int, int]:
    """Leaves runs of one size and one budget."""
    size = selection.keep_most(size_of, lambda n: f"of size {n}")
    budget = selection.keep_most(num_episodes, say_budget)
    selection.keep_first(lambda r: (r.config["agent"], r.config["seed"]), "agent and seed")
    return size, budget
