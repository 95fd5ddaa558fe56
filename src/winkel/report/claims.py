"""Claims of the paper, from `claims.toml`, and whether runs reproduce them.

A claim holds when its rule holds in all of its comparisons, does not hold when one contradicts it
or is inconclusive, and is untested when runs are missing (unless what is there contradicts it
already) or seeds are few. A measure, from `MEASURES`, compares agents on their runs alone. It
raises `InputError`, or says so in `missing`, where there are none.
"""

import itertools
import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy import stats

from winkel.analysis.scores import OFFICIAL_IDS, score_tags
from winkel.analysis.statistics import Interval, bootstrap, wilson_interval
from winkel.envs.registry import EXPERIMENTS
from winkel.errors import InputError
from winkel.figures import common
from winkel.figures.common import agent_of, num_episodes, size_of
from winkel.figures.scores import score_seeds
from winkel.runs.results import Results, RunRecord

Claim = dict[str, Any]
"""One entry of `claims.toml`, which describes the fields."""
Verdict = Literal["holds", "holds in part", "does not hold", "untested"]
Outcome = Literal["holds", "contradicted", "inconclusive"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
FEWEST_SEEDS = 5
"""On each side, for a verdict: intervals of fewer are far too narrow."""

REPETITIONS = 10_000
"""Resamples of a bootstrap; its generator is seeded with 0."""

_DIGITS = 9  # equal means of equal scores must not differ by the order of their sums

Samples = Sequence[np.ndarray]
"""For each task one value for each seed, seeds on the last axis; statistics keep other axes."""
Statistic = Callable[[Samples, Samples], Any]


class Comparison(NamedTuple):
    """One comparison, against an agent or in a setting; `seeds` are such as '10 and 10'.

    The interval has NaN ends for a single seed. Comparisons that are not decisive are details.
    """

    label: str
    interval: Interval
    seeds: str
    decisive: bool = True


class Measured(NamedTuple):
    """The result of a measure; `missing` are runs without which something was not compared.

    `scale` is how large our experiment is: the fewest seeds, episodes, steps, the largest size.
    """

    comparisons: tuple[Comparison, ...] = ()
    missing: tuple[str, ...] = ()
    scale: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()


def load_claims() -> list[Claim]:
    """Load all claims, in the order of the file."""
    return tomllib.loads(Path(__file__).with_name("claims.toml").read_text("utf-8"))["claim"]


def assess(claim: Claim, results: Results) -> tuple[Measured, Verdict, str]:
    """Measure a claim and apply its rule: the verdict, and why unless the claim holds.

    A claim holds in part if its rule holds in some comparisons, details included, and not in all.
    """
    try:
        measured = MEASURES[claim["measure"]](results, **claim["with"])
    except InputError as error:
        measured = Measured(missing=(str(error).removeprefix("no "),))
    places: dict[str, list[str]] = {"holds": [], "contradicted": [], "inconclusive": []}
    decisive = []
    for one in measured.comparisons:
        outcome = apply_rule(claim["rule"], one.interval)
        places[outcome].append(one.label)
        decisive += [outcome] if one.decisive else []
    seeds = measured.scale.get("seeds", 0)
    if decisive and seeds < FEWEST_SEEDS:
        return measured, "untested", f"needs {FEWEST_SEEDS} seeds or more, has {seeds}"
    if not decisive or (measured.missing and not places["contradicted"]):
        holds = decisive.count("holds")
        so_far = f"; holds in {holds} of {len(decisive)} measured" if decisive else ""
        needs = "; ".join(measured.missing) or "runs"
        return measured, "untested", f"needs {needs}{so_far}"
    if set(decisive) == {"holds"} and not places["contradicted"]:
        return measured, "holds", ""
    if places["holds"]:
        parts = [f"{outcome}: {', '.join(names)}" for outcome, names in places.items() if names]
        return measured, "holds in part", "; ".join(parts)
    return measured, "does not hold", "contradicted" if places["contradicted"] else "inconclusive"


def deviations(claim: Claim, measured: Measured) -> list[str]:
    """Say where our experiment is smaller than the paper's."""
    return [
        f"{name} {'up to ' if name == 'size' else ''}{measured.scale[name]:,} (paper {theirs:,})"
        for name, theirs in claim["paper"].items()
        if measured.comparisons and measured.scale.get(name, theirs) < theirs
    ]


def apply_rule(rule: dict[str, Any], interval: Interval) -> Outcome:
    """Decide whether a rule holds in one comparison."""
    estimate, low, high = interval
    if math.isnan(low) or math.isnan(high):
        return "inconclusive"
    outcomes: list[Outcome] = []
    for name, value in rule.items():
        least, most = value if name == "interval_within" else (value, value)
        holds, contradicted = {
            "interval_below": (high < most, low > most),
            "interval_above": (low > least, high < least),
            "interval_excludes": (not low <= least <= high, False),
            "interval_within": (least <= low and high <= most, high < least or low > most),
            "estimate_at_most": (estimate <= most, low > most),
            # For shares of runs, whose interval reaches 1 only if all runs succeeded.
            "estimate_at_least": (estimate >= least, estimate < least),
        }[name]
        outcomes.append("holds" if holds else "contradicted" if contradicted else "inconclusive")
    return min(outcomes, key=("contradicted", "inconclusive", "holds").index)


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
    scored, notes = score_seeds(chosen)
    samples: dict[str, list[float]] = defaultdict(list)
    for (name, _), scores in scored.items():
        samples[name].append(score_tags(scores)[tag])
    arrays = {name: np.array(found) for name, found in samples.items()}
    comparisons = tuple(
        compare(name, [arrays[agent]], [arrays[name]], mean_gap) for name in complete
    )
    # Settings run for bsuite's number of episodes, by the agent and seed with fewest.
    in_full: Counter[tuple[str, int]] = Counter()
    for r in chosen.records:
        whole = num_episodes(r) >= EXPERIMENTS[r.experiment].num_episodes
        in_full[agent_of(r), r.config["seed"]] += whole
    scale = {"seeds": min(map(len, arrays.values())), "settings in full": min(in_full.values())}
    # Missing experiments of other capabilities do not matter here.
    kept = tuple(note for note in notes.tolist() if "experiments" not in note)
    return Measured(comparisons, missing, scale, kept)


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

    For each run it is the mean over its snapshots but the first, when nothing has been visited. 0
    means no relation, −1 that the estimate falls wherever visits rise.
    """
    deep_sea = [r for r in results.of(agent=agent) if r.experiment == "deep_sea"]
    by_size: dict[int, list[float]] = defaultdict(list)
    for record in deep_sea:
        if len(record.snapshots.get("visits", ())) > 1:
            by_size[size_of(record)].append(_correlation(record, column))
    if not by_size:
        return Measured(missing=(f"deep_sea by {agent} with snapshots",))
    comparisons = []
    for size, found in sorted(by_size.items()):
        mean = partial(np.mean, axis=-1)
        interval = bootstrap([np.array(found)], mean, repetitions=REPETITIONS)
        comparisons.append(Comparison(f"size {size}", interval, str(len(found))))
    scale = {"seeds": min(map(len, by_size.values())), "size": max(by_size)}
    return Measured(tuple(comparisons), (), scale)


def _correlation(record: RunRecord, column: str) -> float:
    visits, values = record.snapshots["visits"][1:], record.snapshots[column][1:]
    pairs = [(n[n > 0], x[n > 0]) for n, x in zip(visits, values, strict=True)]
    return float(np.mean([stats.spearmanr(*pair).statistic for pair in pairs]))


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


_MEASURES = (score_lead, regret_ratio, visited_gap, members_ratio, found_share, counts_correlation)
MEASURES: dict[str, Callable[..., Measured]] = {one.__name__: one for one in _MEASURES}


def compare(
    label: str, xs: Samples, ys: Samples, statistic: Statistic, *, decisive: bool = True
) -> Comparison:
    """Compare two agents: a statistic with its 95 % percentile bootstrap interval over seeds.

    Seeds of each agent are resampled independently in each task.
    """

    def rounded(*samples: np.ndarray) -> Any:
        return np.round(statistic(samples[: len(xs)], samples[len(xs) :]), _DIGITS)

    interval = bootstrap([*xs, *ys], rounded, repetitions=REPETITIONS)
    seeds = [sorted({min(map(len, side)), max(map(len, side))}) for side in (xs, ys)]
    sides = " and ".join("–".join(map(str, ends)) for ends in seeds)
    return Comparison(label, interval, sides, decisive)


def median_ratio(xs: Samples, ys: Samples) -> Any:
    """Ratio of medians, summed over tasks first; 1 where both are 0."""
    above, below = (sum(np.median(x, axis=-1) for x in samples) for samples in (xs, ys))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(above) / np.asarray(below)
    return np.where(np.isnan(ratio), 1.0, ratio)


def _gap(centre: Callable[..., Any], xs: Samples, ys: Samples) -> Any:
    """Difference of the medians or means of one task."""
    return centre(xs[0], axis=-1) - centre(ys[0], axis=-1)


median_gap, mean_gap = partial(_gap, np.median), partial(_gap, np.mean)


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


def _missing(results: Results, agents: Iterable[str]) -> tuple[str, ...]:
    have = {agent_of(r) for r in results.records if r.experiment == "deep_sea"}
    return tuple(f"deep_sea by {name}" for name in agents if name not in have)
