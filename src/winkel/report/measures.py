"""Measures of the paper's claims: from runs to comparisons with intervals, listed in `MEASURES`.

A measure reads only runs of the agents that it compares. It raises `InputError`, or says so in
`missing`, where there are none. Regret is the number of episodes without treasure, at most the
budget.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from winkel.analysis.scores import OFFICIAL_IDS
from winkel.analysis.statistics import Interval, bootstrap, wilson_interval
from winkel.envs.registry import EXPERIMENTS
from winkel.figures import common, ensemble_size, radar, vizdoom
from winkel.figures.common import agent_of, num_episodes, size_of
from winkel.runs.results import Results, RunRecord

REPETITIONS = 10_000
"""Resamples of a bootstrap; its generator is seeded with 0."""

_DIGITS = 9  # equal means of equal scores must not differ by the order of their sums

Samples = Sequence[np.ndarray]
"""For each task one value for each seed, seeds on the last axis."""
Statistic = Callable[[Samples, Samples], Any]
"""Compares two agents, over leading axes of their samples."""


class Comparison(NamedTuple):
    """One comparison of a claim."""

    label: str
    """Against which agent, or in which setting."""
    interval: Interval
    """The measured value and its 95 % interval; NaN ends for a single seed."""
    seeds: str
    """How many on each side, such as '10 and 10'."""
    decisive: bool = True
    """Whether the verdict depends on it; other comparisons are details."""


class Measured(NamedTuple):
    """The result of a measure."""

    comparisons: tuple[Comparison, ...] = ()
    missing: tuple[str, ...] = ()
    """Runs without which something was not compared."""
    scale: Mapping[str, int] = {}
    """How large our experiment is: the fewest seeds, episodes, steps, the largest size."""
    notes: tuple[str, ...] = ()


def score_lead(results: Results, *, agent: str, others: Sequence[str], tag: str) -> Measured:
    """Difference of mean scores of a capability; each agent needs all of its experiments."""
    wanted = {name for name, experiment in EXPERIMENTS.items() if tag in experiment.tags}
    official = [
        r for r in results.records if r.experiment in wanted and r.config["env"] in OFFICIAL_IDS
    ]
    lacking = {
        name: sorted(wanted - {r.experiment for r in official if agent_of(r) == name})
        for name in (agent, *others)
    }
    missing = tuple(f"{', '.join(names)} by {who}" for who, names in lacking.items() if names)
    complete = [name for name in others if not lacking[name]]
    if lacking[agent] or not complete:
        return Measured(missing=missing)
    chosen = _only(official, {agent, *complete})
    arrays = radar.collect(chosen)
    column = arrays["tags"].tolist().index(tag)
    rows = map(_known, arrays["seed_scores"][:, column])
    scores = dict(zip(arrays["agents"].tolist(), rows, strict=True))
    comparisons = tuple(
        compare(name, [scores[agent]], [scores[name]], mean_gap) for name in complete
    )
    # Settings run for bsuite's number of episodes, by the agent and seed with fewest.
    in_full: Counter[tuple[str, int]] = Counter()
    for r in chosen.records:
        whole = num_episodes(r) >= EXPERIMENTS[r.experiment].num_episodes
        in_full[agent_of(r), r.config["seed"]] += whole
    scale = {"seeds": min(map(len, scores.values())), "settings in full": min(in_full.values())}
    # Missing experiments of other capabilities do not matter here.
    notes = tuple(note for note in arrays["notes"].tolist() if "experiments" not in note)
    return Measured(comparisons, missing, scale, notes)


def regret_ratio(results: Results, *, agent: str, others: Sequence[str]) -> Measured:
    """Ratio of median regrets over all common sizes, and as details at each size."""
    pairs = {other: (agent, other) for other in others}
    return _compare_pairs(
        results, pairs, "bad", lambda record: record.episodes["bad"].sum(), median_ratio
    )


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
    if missing := _missing(results, ["pe_dqn"]):
        return Measured(missing=missing)
    bdqn = {agent_of(r) for r in results.of(algorithm="bdqn")}
    arrays = ensemble_size.collect(_only(results.records, {"pe_dqn", *bdqn}))
    budget, size = int(arrays["budget"]), int(arrays["size"])
    regrets = arrays["seed_values"][arrays["quantities"].tolist().index("regret")]
    theirs = {
        n: _known(np.minimum(values, budget))
        for n, values in zip(arrays["members"].tolist(), regrets, strict=True)
    }
    ours = theirs.pop(0, None)
    missing = tuple(f"deep_sea by bdqn with {n} members" for n in members if n not in theirs)
    if ours is None:
        return Measured(missing=(f"deep_sea of size {size} by pe_dqn", *missing))
    comparisons = tuple(
        compare(f"{n} members", [ours], [values], median_ratio) for n, values in theirs.items()
    )
    scale = {"episodes": budget, "seeds": min(map(len, [ours, *theirs.values()]))}
    notes = (f"deep sea of size {size}", *arrays["notes"].tolist())
    return Measured(comparisons, missing, scale, notes)


def found_share(results: Results, *, agents: Sequence[str], settings: Sequence[str]) -> Measured:
    """The share of VizDoom runs with any reward, in the setting where an agent finds least."""
    comparisons: list[Comparison] = []
    missing: list[str] = []
    seeds: list[int] = []
    steps: list[int] = []
    for agent in agents:
        shares: list[Comparison] = []
        doom = [r for r in results.of(agent=agent) if r.experiment == vizdoom.EXPERIMENT]
        for setting in settings:
            runs = [r for r in doom if vizdoom.setting_of(r) == setting]
            if not runs:
                missing.append(f"vizdoom {setting} by {agent}")
                continue
            found = sum(bool((r.episodes["return"] > 0).any()) for r in runs)
            interval = wilson_interval(found, len(runs))
            shares.append(Comparison(f"{agent}, {setting}", interval, str(len(runs))))
            seeds.append(len(runs))
            steps += [int(r.episodes["length"].sum()) for r in runs]
        if len(shares) == len(settings):
            comparisons.append(min(shares, key=lambda share: share.interval.estimate))
    scale = {"seeds": min(seeds), "steps": min(steps)} if seeds else {}
    return Measured(tuple(comparisons), tuple(missing), scale)


MEASURES: dict[str, Callable[..., Measured]] = {
    "score_lead": score_lead,
    "regret_ratio": regret_ratio,
    "visited_gap": visited_gap,
    "members_ratio": members_ratio,
    "found_share": found_share,
}


def compare(
    label: str, xs: Samples, ys: Samples, statistic: Statistic, *, decisive: bool = True
) -> Comparison:
    """Compare two agents: a statistic with its 95 % percentile bootstrap interval over seeds.

    Seeds of each agent are resampled independently in each task. With a single seed the ends of the
    interval are NaN.
    """

    def rounded(*samples: np.ndarray) -> Any:
        return np.round(statistic(samples[: len(xs)], samples[len(xs) :]), _DIGITS)

    interval = Interval(*map(float, bootstrap([*xs, *ys], rounded, repetitions=REPETITIONS)))
    seeds = [sorted({min(map(len, side)), max(map(len, side))}) for side in (xs, ys)]
    sides = " and ".join("–".join(map(str, ends)) for ends in seeds)
    return Comparison(label, interval, sides, decisive)


def median_ratio(xs: Samples, ys: Samples) -> Any:
    """Ratio of medians, summed over tasks first; 1 where both are 0."""
    above, below = (sum(np.median(x, axis=-1) for x in samples) for samples in (xs, ys))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(above) / np.asarray(below)
    return np.where(np.isnan(ratio), 1.0, ratio)


def median_gap(xs: Samples, ys: Samples) -> Any:
    """Difference of the medians of one task."""
    return np.median(xs[0], axis=-1) - np.median(ys[0], axis=-1)


def mean_gap(xs: Samples, ys: Samples) -> Any:
    """Difference of the means of one task."""
    return np.mean(xs[0], axis=-1) - np.mean(ys[0], axis=-1)


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
    selection = common.deep_sea_runs(_only(results.records, names), having=(column,))
    if one_size:
        selection.keep_most(size_of, lambda n: f"of size {n}")
    budget = common.keep_one_budget(selection)
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


def _known(values: np.ndarray) -> np.ndarray:
    """Leave out the NaN that fill a table of seeds."""
    return values[~np.isnan(values)]


def _missing(results: Results, agents: Iterable[str]) -> tuple[str, ...]:
    have = {agent_of(r) for r in results.records if r.experiment == "deep_sea"}
    return tuple(f"deep_sea by {name}" for name in agents if name not in have)
