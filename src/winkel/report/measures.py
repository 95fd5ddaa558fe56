"""Measures of the paper's claims: from runs to comparisons with intervals, listed in `MEASURES`.

A measure reads only runs of the agents that it compares. It raises `InputError`, or says so in
`missing`, where there are none. Regret is the number of episodes without treasure, at most the
budget.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from winkel.analysis.scores import OFFICIAL_IDS
from winkel.analysis.statistics import Interval, bootstrap, wilson_interval
from winkel.envs.registry import EXPERIMENTS
from winkel.figures import common, ensemble_size, radar, regret, vizdoom
from winkel.figures.common import agent_of, num_episodes
from winkel.runs.results import Arrays, Results

REPETITIONS = 10_000
"""Resamples of a bootstrap; its generator is seeded with 0."""

_DIGITS = 9  # equal means of equal scores must not differ by the order of their sums

Samples = Sequence[np.ndarray]
"""For each task one value for each seed, seeds on the last axis."""


class Comparison(NamedTuple):
    """One comparison of a claim.

    Attributes:
        label: against which agent, or in which setting.
        interval: the measured value and its 95 % interval; NaN ends for a single seed.
        seeds: how many on each side, such as '10 and 10'.
        decisive: whether the verdict depends on it; other comparisons are details.
    """

    label: str
    interval: Interval
    seeds: str
    decisive: bool = True


class Measured(NamedTuple):
    """The result of a measure.

    Attributes:
        comparisons: all of them.
        missing: runs without which something was not compared.
        scale: how large our experiment is: the fewest seeds, episodes, steps, the largest size.
        notes: what else a reader should know.
    """

    comparisons: tuple[Comparison, ...] = ()
    missing: tuple[str, ...] = ()
    scale: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()


def score_lead(results: Results, *, agent: str, others: Sequence[str], tag: str) -> Measured:
    """Difference of mean scores of a capability; each agent needs all of its experiments."""
    wanted = {name for name, experiment in EXPERIMENTS.items() if tag in experiment.tags}
    official = [
        r
        for r in _only(results, {agent, *others}).records
        if r.experiment in wanted and r.config["env"] in OFFICIAL_IDS
    ]
    lacking = {
        name: sorted(wanted - {r.experiment for r in official if agent_of(r) == name})
        for name in (agent, *others)
    }
    missing = tuple(f"{', '.join(names)} by {who}" for who, names in lacking.items() if names)
    complete = [name for name in others if not lacking[name]]
    if lacking[agent] or not complete:
        return Measured(missing=missing)
    chosen = _only(Results(tuple(official), ()), {agent, *complete})
    arrays = radar.collect(chosen)
    column, agents = arrays["tags"].tolist().index(tag), arrays["agents"].tolist()
    scores = {
        name: _known(arrays["seed_scores"][agents.index(name), column])
        for name in (agent, *complete)
    }
    comparisons = tuple(
        _compare(other, [scores[agent]], [scores[other]], mean_gap) for other in complete
    )
    # Settings run for bsuite's number of episodes, by the agent and seed with fewest.
    in_full: Counter[tuple[str, int]] = Counter()
    for r in chosen.records:
        in_full[agent_of(r), r.config["seed"]] += (
            num_episodes(r) >= EXPERIMENTS[r.experiment].num_episodes
        )
    # Missing experiments of other capabilities do not matter here.
    notes = tuple(note for note in _notes(arrays) if "of 23 experiments" not in note)
    scale = {
        "seeds": min(map(len, scores.values())),
        "settings in full": min(in_full.values()),
    }
    return Measured(comparisons, missing, scale, notes)


def regret_ratio(results: Results, *, agent: str, others: Sequence[str]) -> Measured:
    """Ratio of median regrets over all common sizes, and as details at each size."""
    missing = _missing(results, [agent, *others])
    present = [name for name in others if not _missing(results, [name])]
    if _missing(results, [agent]) or not present:
        return Measured(missing=missing)
    arrays = regret.collect(_only(results, {agent, *present}))
    regrets = np.minimum(arrays["seed_regrets"], arrays["budget"])  # [agents, sizes, seeds]
    by_agent = dict(zip(arrays["agents"].tolist(), regrets, strict=True))
    none = np.full(regrets.shape[1:], np.nan)
    sizes = arrays["sizes"].tolist()
    comparisons: list[Comparison] = []
    scale = {"episodes": int(arrays["budget"])}
    for other in present:
        xs, ys = ([_known(row) for row in by_agent.get(who, none)] for who in (agent, other))
        both = [i for i in range(len(sizes)) if len(xs[i]) and len(ys[i])]
        if not both:
            missing += (f"deep_sea of one size and budget by both {agent} and {other}",)
            continue
        xs, ys = [xs[i] for i in both], [ys[i] for i in both]
        comparisons.append(_compare(other, xs, ys, median_ratio))
        if len(both) > 1:
            comparisons += [
                _compare(f"{other}, size {sizes[i]}", [x], [y], median_ratio, decisive=False)
                for i, x, y in zip(both, xs, ys, strict=True)
            ]
        fewest, largest = min(map(len, (*xs, *ys))), sizes[both[-1]]
        scale["seeds"] = min(scale.get("seeds", fewest), fewest)
        scale["size"] = min(scale.get("size", largest), largest)
    return Measured(tuple(comparisons), missing, scale, _notes(arrays))


def members_ratio(results: Results, *, members: Sequence[int]) -> Measured:
    """Ratio of median regrets, PE-DQN's to BDQN+P's for each number of members that was run.

    `members` are numbers that must be among them.
    """
    if missing := _missing(results, ["pe_dqn"]):
        return Measured(missing=missing)
    bdqn = {agent_of(r) for r in results.records if r.config.get("algorithm") == "bdqn"}
    arrays = ensemble_size.collect(_only(results, {"pe_dqn", *bdqn}))
    budget, size = int(arrays["budget"]), int(arrays["size"])
    regrets = arrays["seed_values"][arrays["quantities"].tolist().index("regret")]
    theirs = {
        n: _known(np.minimum(values, budget))
        for n, values in zip(arrays["members"].tolist(), regrets, strict=True)
    }
    ours = theirs.pop(0, np.zeros(0))
    missing = tuple(f"deep_sea by bdqn with {n} members" for n in members if n not in theirs)
    if not len(ours):
        return Measured(missing=(f"deep_sea of size {size} by pe_dqn", *missing))
    comparisons = tuple(
        _compare(f"{n} members", [ours], [values], median_ratio) for n, values in theirs.items()
    )
    scale = {"episodes": budget, "seeds": min(map(len, [ours, *theirs.values()]))}
    return Measured(comparisons, missing, scale, (f"deep sea of size {size}", *_notes(arrays)))


def visited_gap(results: Results, *, pairs: Mapping[str, Sequence[str]], when: str) -> Measured:
    """Difference of the median shares of state-actions visited, first minus second agent of a pair.

    `pairs` are two agents by label; `when` is 'end', or 'mean' for the average over episodes.
    """
    names = [name for pair in pairs.values() for name in pair]
    missing = _missing(results, names)
    if len(missing) == len(names):
        return Measured(missing=missing)
    selection = common.deep_sea_runs(_only(results, names), having=("visited",))
    size, budget = common.keep_one_size(selection)
    shares: dict[str, list[float]] = {name: [] for name in names}
    for record in selection.records:
        visited = common.visited_shares(record)
        shares[agent_of(record)].append(visited[-1] if when == "end" else visited.mean())
    comparisons: list[Comparison] = []
    seeds: list[int] = []
    for label, (agent, other) in pairs.items():
        if shares[agent] and shares[other]:
            x, y = [np.array(shares[agent])], [np.array(shares[other])]
            comparisons.append(_compare(label, x, y, median_gap))
            seeds += [len(x[0]), len(y[0])]
        elif not _missing(results, [agent, other]):
            missing += (f"deep_sea of one size and budget by both {agent} and {other}",)
    if not comparisons:
        return Measured(missing=missing)
    scale = {"seeds": min(seeds), "episodes": budget, "size": size}
    return Measured(tuple(comparisons), missing, scale, tuple(selection.all_notes().tolist()))


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


def compare(xs: Samples, ys: Samples, statistic: Callable[[Samples, Samples], Any]) -> Interval:
    """Compare two agents: a statistic with its 95 % percentile bootstrap interval over seeds.

    Seeds of each agent are resampled independently in each task. With a single seed the ends of the
    interval are NaN.
    """

    def rounded(*samples: np.ndarray) -> Any:
        return np.round(statistic(samples[: len(xs)], samples[len(xs) :]), _DIGITS)

    return Interval(*map(float, bootstrap([*xs, *ys], rounded, repetitions=REPETITIONS)))


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


def _compare(
    label: str,
    xs: Samples,
    ys: Samples,
    statistic: Callable[[Samples, Samples], Any],
    *,
    decisive: bool = True,
) -> Comparison:
    sides = []
    for samples in (xs, ys):
        least, most = min(map(len, samples)), max(map(len, samples))
        sides.append(f"{least}" if least == most else f"{least}–{most}")
    return Comparison(label, compare(xs, ys, statistic), " and ".join(sides), decisive)


def _only(results: Results, agents: Collection[str]) -> Results:
    """Runs of these agents; problems are elsewhere on the page."""
    return Results(tuple(r for r in results.records if agent_of(r) in agents), ())


def _known(values: np.ndarray) -> np.ndarray:
    """Leave out the NaN that fill a table of seeds."""
    return values[~np.isnan(values)]


def _missing(results: Results, agents: Collection[str]) -> tuple[str, ...]:
    have = {agent_of(r) for r in results.records if r.experiment == "deep_sea"}
    return tuple(f"deep_sea by {name}" for name in agents if name not in have)


def _notes(arrays: Arrays) -> tuple[str, ...]:
    return tuple(map(str, arrays["notes"]))
