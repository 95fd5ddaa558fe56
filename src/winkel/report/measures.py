"""Measures of the claims: what runs say, as comparisons with intervals.

Each compares agents on their runs alone. It raises `InputError`, or says so in `missing`, where
there are none. `MEASURES` has them by name.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
from scipy import stats

from winkel.analysis.scores import OFFICIAL_IDS, score_tags
from winkel.analysis.statistics import wilson_interval
from winkel.envs.registry import EXPERIMENTS, TAGS
from winkel.figures import common
from winkel.figures.common import agent_of, num_episodes, size_of
from winkel.figures.scores import score_seeds
from winkel.report.comparisons import (
    Comparison,
    Measured,
    Statistic,
    compare,
    mean_gap,
    median_gap,
    median_ratio,
    of_one_sample,
)
from winkel.runs.results import Results, RunRecord


def score_lead(
    results: Results, *, agent: str, others: Sequence[str], tags: Sequence[str]
) -> Measured:
    """Difference of mean scores of capabilities; each agent needs all of their experiments."""
    samples, measured = _score_samples(results, (agent, *others), tags)
    comparisons = tuple(
        compare(
            f"{name}, {tag}" if len(tags) > 1 else name,
            [samples[agent, tag]],
            [samples[name, tag]],
            mean_gap,
        )
        for name in others
        for tag in tags
        if (agent, tag) in samples and (name, tag) in samples
    )
    return measured._replace(comparisons=comparisons)


def strongest_tag(results: Results, *, agent: str, tag: str) -> Measured:
    """Difference of an agent's mean scores: of one capability, minus each of the others."""
    samples, measured = _score_samples(results, (agent,), TAGS)
    if measured.missing:
        return measured
    comparisons = tuple(
        compare(other, [samples[agent, tag]], [samples[agent, other]], mean_gap)
        for other in TAGS
        if other != tag
    )
    return measured._replace(comparisons=comparisons)


def _score_samples(
    results: Results, agents: Sequence[str], tags: Sequence[str]
) -> tuple[dict[tuple[str, str], np.ndarray], Measured]:
    """Scores over seeds by agent and capability, of agents with all experiments, and the rest."""
    wanted = {name for name in EXPERIMENTS if {*tags} & {*EXPERIMENTS[name].tags}}
    official = [
        r for r in results.records if r.experiment in wanted and r.config["env"] in OFFICIAL_IDS
    ]
    lacking = {
        name: sorted(wanted - {r.experiment for r in official if agent_of(r) == name})
        for name in agents
    }
    missing = tuple(
        f"{', '.join(names) if len(names) < 5 else f'{len(names)} experiments of bsuite'} by {who}"
        for who, names in lacking.items()
        if names
    )
    chosen = _only(official, {name for name in agents if not lacking[name]})
    if lacking[agents[0]] or len(agents) - len(missing) < min(len(agents), 2):
        return {}, Measured(missing=missing)
    scored, notes = score_seeds(chosen)
    lists: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (name, _), scores in scored.items():
        for tag, score in score_tags(scores).items():
            lists[name, tag].append(score)
    samples = {place: np.array(found) for place, found in lists.items()}
    # Settings run for bsuite's number of episodes, by the agent and seed with fewest.
    in_full: Counter[tuple[str, int]] = Counter()
    for r in chosen.records:
        whole = num_episodes(r) >= EXPERIMENTS[r.experiment].num_episodes
        in_full[agent_of(r), r.config["seed"]] += whole
    scale = {"seeds": min(map(len, samples.values())), "settings in full": min(in_full.values())}
    # Missing experiments of other capabilities do not matter here.
    kept = tuple(note for note in notes.tolist() if "experiments" not in note)
    return samples, Measured((), missing, scale, kept)


def curve_lead(results: Results, *, agent: str, others: Sequence[str]) -> Measured:
    """Share of bsuite's experiments whose greedy returns, averaged over training, are higher."""
    returns: dict[tuple[str, str], list[float]] = defaultdict(list)
    for r in results.records:
        if r.config["env"] in OFFICIAL_IDS and r.evaluations:
            returns[agent_of(r), r.experiment].append(float(np.mean(r.evaluations["returns"])))
    comparisons, missing = [], []
    for other in others:
        lacking = [
            who for who in (agent, other) for name in EXPERIMENTS if (who, name) not in returns
        ]
        if lacking:
            missing.append(
                f"evaluations of all of bsuite by {' and '.join(dict.fromkeys(lacking))}"
            )
            continue
        means = [[np.mean(returns[who, name]) for name in EXPERIMENTS] for who in (agent, other)]
        ahead = sum(bool(ours > theirs) for ours, theirs in zip(*means, strict=True))
        interval = wilson_interval(ahead, len(EXPERIMENTS))
        comparisons.append(Comparison(other, interval, f"{len(EXPERIMENTS)} experiments"))
    return Measured(tuple(comparisons), tuple(dict.fromkeys(missing)))


def regret_ratio(results: Results, *, agent: str, others: Sequence[str]) -> Measured:
    """Ratio of median regrets over all common sizes, and as details at each size.

    The paper does not say whether the episodes without reward are those of training or greedy ones.
    Both are judged where all of these agents' runs have evaluations.
    """
    pairs = {other: (agent, other) for other in others}
    training = _compare_pairs(results, pairs, "bad", training_regret, median_ratio)
    chosen = [r for r in _only(results.records, {agent, *others}).records if "bad" in r.episodes]
    if not chosen or not all(r.evaluations for r in chosen):
        return training
    pairs = {f"{other}, greedy": pair for other, pair in pairs.items()}
    greedy = _compare_pairs(results, pairs, "bad", common.greedy_regret, median_ratio)
    return training._replace(comparisons=training.comparisons + greedy.comparisons)


def training_regret(record: RunRecord) -> float:
    """The number of episodes without treasure, at most the budget."""
    return float(record.episodes["bad"].sum())


def visited_gap(results: Results, *, pairs: Mapping[str, Sequence[str]], when: str) -> Measured:
    """Difference of the median shares of state-actions visited, first minus second agent of a pair.

    `pairs` are two agents by label; `when` is 'end', or 'mean' for the average over episodes.
    """

    def share(record: RunRecord) -> float:
        shares = common.visited_shares(record)
        return shares[-1] if when == "end" else shares.mean()

    return _compare_pairs(results, pairs, "visited", share, median_gap, one_size=True)


def members_ratio(results: Results, *, members: Sequence[int]) -> Measured:
    """Ratio of median regrets, PE-DQN's to BDQN+P's for each number of members that was run.

    `members` are numbers that must be among them.
    """
    bdqn = [r for r in results.of(algorithm="bdqn") if r.experiment == "deep_sea"]
    agents = {r.config.get("config", {}).get("num_members", 0): agent_of(r) for r in bdqn}
    pairs = {f"{n} members": ("pe_dqn", name) for n, name in sorted(agents.items())}
    found = _compare_pairs(results, pairs, "bad", training_regret, median_ratio, one_size=True)
    absent = tuple(f"deep_sea by bdqn with {n} members" for n in members if n not in agents)
    return found._replace(missing=found.missing + absent)


def counts_correlation(results: Results, *, agent: str, column: str) -> Measured:
    """Rank correlation of an estimate and the number of visits, over all state-actions seen.

    0 means no relation, −1 that the estimate falls wherever visits rise.
    """

    def correlation(visits: np.ndarray, values: np.ndarray) -> float:
        return float(stats.spearmanr(visits[visits > 0], values[visits > 0]).statistic)

    return _at_snapshots(results, agent, column, correlation, until_all_visited=False)


def rank_of_start(results: Results, *, agent: str, column: str) -> Measured:
    """Share of visited cells with a smaller estimate (of the better action) than the first cell's.

    1 means that it is largest where episodes start, before all state-actions are visited.
    """

    def rank(visits: np.ndarray, values: np.ndarray) -> float:
        best, seen = values.max(axis=1), visits.any(axis=1)
        return float(np.mean(best[seen] < best[0]))

    return _at_snapshots(results, agent, column, rank, until_all_visited=True)


def _at_snapshots(
    results: Results,
    agent: str,
    column: str,
    statistic: Callable[[np.ndarray, np.ndarray], float],
    until_all_visited: bool,
) -> Measured:
    """Mean of a statistic of visits and an estimate [cells, 2] over the snapshots of each run.

    Only runs with snapshots during exploration count: three or more. The first one, when nothing
    has been visited, is left out.
    """
    by_size: dict[int, list[float]] = defaultdict(list)
    for record in results.of(agent=agent):
        if record.experiment != "deep_sea" or len(record.snapshots.get("visits", ())) < 3:
            continue
        tables = record.snapshots["visits"][1:], record.snapshots[column][1:]
        most = size_of(record) * (size_of(record) + 1)  # state-actions
        found = [
            statistic(visits, values)
            for visits, values in zip(*tables, strict=True)
            if np.count_nonzero(visits) < most or not until_all_visited
        ]
        if found:
            by_size[size_of(record)].append(float(np.mean(found)))
    if not by_size:
        return Measured(missing=(f"deep_sea by {agent} with snapshots during exploration",))
    comparisons = [
        of_one_sample(f"size {size}", np.array(found), np.mean)
        for size, found in sorted(by_size.items())
    ]
    scale = {"seeds": min(map(len, by_size.values())), "size": max(by_size)}
    return Measured(tuple(comparisons), (), scale)


def computed_ratio(results: Results, *, pairs: Mapping[str, Sequence[str]]) -> Measured:
    """Median ratio of two columns of `computed.npz`, or of one alone, over its rows (seeds)."""
    if not {*itertools.chain(*pairs.values())} <= {*results.computed}:
        return Measured(missing=("computed.npz, from `python results/computed.py`",))
    comparisons, seeds = [], []
    for label, (above, *below) in pairs.items():
        ratio = results.computed[above] / (results.computed[below[0]] if below else 1.0)
        comparisons.append(of_one_sample(label, ratio, np.median))
        seeds.append(len(ratio))
    return Measured(tuple(comparisons), (), {"seeds": min(seeds)})


def found_share(results: Results, *, agents: Sequence[str], settings: Sequence[str]) -> Measured:
    """The share of VizDoom runs with any reward, in the setting where an agent finds least."""
    comparisons: list[Comparison] = []
    missing: list[str] = []
    used: list[list[RunRecord]] = []
    for agent in agents:
        shares = []
        for setting in settings:
            runs = results.of(agent=agent, env=f"doom:my-way-home/{setting}")
            if runs:
                found = sum(bool((r.episodes["return"] > 0).any()) for r in runs)
                interval = wilson_interval(found, len(runs))
                shares.append(Comparison(f"{agent}, {setting}", interval, str(len(runs))))
                used.append(runs)
            else:
                missing.append(f"vizdoom {setting} by {agent}")
        if len(shares) == len(settings):
            comparisons.append(min(shares, key=lambda share: share.interval.estimate))
    scale = {}
    if used:
        steps = (int(r.episodes["length"].sum()) for runs in used for r in runs)
        scale = {"seeds": min(map(len, used)), "steps": min(steps)}
    return Measured(tuple(comparisons), tuple(missing), scale)


def setting_gap(results: Results, *, agents: Sequence[str], settings: Sequence[str]) -> Measured:
    """Difference of the mean returns over training in two of VizDoom's settings."""
    comparisons: list[Comparison] = []
    missing: list[str] = []
    for agent in agents:
        sides = [results.of(agent=agent, env=f"doom:my-way-home/{name}") for name in settings]
        missing += [
            f"vizdoom {n} by {agent}" for n, s in zip(settings, sides, strict=True) if not s
        ]
        xs, ys = (np.array([r.episodes["return"].mean() for r in side]) for side in sides)
        if len(xs) and len(ys):
            comparisons.append(compare(agent, [xs], [ys], mean_gap))
    seeds = [int(one.seeds.split()[0].split("–")[0]) for one in comparisons]
    return Measured(tuple(comparisons), tuple(missing), {"seeds": min(seeds, default=0)})


def speed_ratio(
    results: Results, *, agent: str, others: Sequence[str], experiment: str
) -> Measured:
    """Ratio of the medians of updates a second, over the groups of sweeps of an experiment."""
    rates: dict[str, list[float]] = defaultdict(list)
    for group in (group for sweep in results.sweeps for group in sweep["groups"]):
        name, _, envs = group["group"].partition(" in ")
        if envs.startswith(f"{experiment}:"):
            rates[name].append(group["updates_per_second"])
    missing = [f"a sweep of {experiment} by {name}" for name in (agent, *others) if not rates[name]]
    comparisons = tuple(
        compare(name, [np.array(rates[agent])], [np.array(rates[name])], median_ratio)
        for name in others
        if rates[agent] and rates[name]
    )
    return Measured(comparisons, tuple(missing))


_MEASURES = (
    score_lead, strongest_tag, curve_lead, regret_ratio, visited_gap, members_ratio,
    counts_correlation, rank_of_start, computed_ratio, found_share, setting_gap, speed_ratio,
)  # fmt: skip
MEASURES: dict[str, Callable[..., Measured]] = {one.__name__: one for one in _MEASURES}


def _compare_pairs(
    results: Results,
    pairs: Mapping[str, Sequence[str]],
    column: str,
    value: Callable[[RunRecord], float],
    statistic: Statistic,
    *,
    one_size: bool = False,
) -> Measured:
    """Compare values of the agents of each pair in deep sea, over all sizes of both and at each.

    `value` is the number of one run; only runs with the column are compared.
    """
    names = list(dict.fromkeys(itertools.chain(*pairs.values())))
    missing = _missing(results, names)
    present = {label: pair for label, pair in pairs.items() if not _missing(results, pair)}
    if not present:
        return Measured(missing=missing)
    selection = common.deep_sea_runs(_only(results.records, names), column)
    budget = common.keep_one_budget(selection, one_size=one_size)
    values: dict[tuple[str, int], list[float]] = defaultdict(list)
    for record in selection.records:
        values[agent_of(record), size_of(record)].append(value(record))
    samples = {place: np.array(found, float) for place, found in values.items()}
    comparisons: list[Comparison] = []
    largest, fewest = [], []
    for label, (agent, other) in present.items():
        sizes = sorted(n for who, n in samples if who == agent and (other, n) in samples)
        if not sizes:
            missing += (f"deep_sea of one size and budget by both {agent} and {other}",)
            continue
        xs, ys = ([samples[who, n] for n in sizes] for who in (agent, other))
        comparisons.append(compare(label, xs, ys, statistic))
        for size, x, y in zip(sizes, xs, ys, strict=True) if len(sizes) > 1 else ():
            detail = compare(f"{label}, size {size}", [x], [y], statistic, decisive=False)
            comparisons.append(detail)
        largest.append(max(sizes))
        fewest.append(min(map(len, (*xs, *ys))))
    if not comparisons:
        return Measured(missing=missing)
    scale = {"seeds": min(fewest), "episodes": budget, "size": min(largest)}
    return Measured(tuple(comparisons), missing, scale, tuple(selection.all_notes().tolist()))


def _only(records: Iterable[RunRecord], agents: Collection[str]) -> Results:
    """Runs of these agents; problems are elsewhere on the page."""
    return Results(tuple(r for r in records if agent_of(r) in agents), ())


def _missing(results: Results, agents: Iterable[str]) -> tuple[str, ...]:
    have = {agent_of(r) for r in results.records if r.experiment == "deep_sea"}
    return tuple(f"deep_sea by {name}" for name in agents if name not in have)
