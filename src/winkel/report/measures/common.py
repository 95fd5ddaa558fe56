"""What measures share: parts, the runs of some agents, and comparisons of two agents' seeds."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from winkel.experiments.statistics import Interval
from winkel.runs.results import Arrays, Results

REPETITIONS = 10_000
"""Resamples of a bootstrap; its generator is seeded with 0."""

_DIGITS = 9  # equal means of equal scores must not differ by the order of their sums

Samples = Sequence[np.ndarray]
"""For each task one value for each seed, seeds on the last axis."""


class Part(NamedTuple):
    """One comparison of a claim.

    Attributes:
        label: against whom or in what.
        interval: the measured value and its 95 % interval; NaN ends for a single seed.
        seeds: how many on each side, such as '10 and 10'.
        judged: whether the verdict depends on it; other parts are details.
    """

    label: str
    interval: Interval
    seeds: str
    judged: bool = True


class Found(NamedTuple):
    """What a measure found.

    Attributes:
        parts: comparisons.
        missing: runs for want of which something was not compared.
        scale: how large our experiment is: the fewest seeds, episodes, steps, the largest size.
        notes: what else a reader should know.
    """

    parts: tuple[Part, ...] = ()
    missing: tuple[str, ...] = ()
    scale: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()


def compare(xs: Samples, ys: Samples, statistic: Callable[[Samples, Samples], Any]) -> Interval:
    """A statistic of two agents with its 95 % percentile bootstrap interval over seeds.

    Seeds of each agent are redrawn with replacement, in each task alone. An agent with a single
    seed has no interval: NaN.
    """
    estimate = float(np.round(statistic(xs, ys), _DIGITS))
    if min(len(sample) for sample in (*xs, *ys)) < 2:
        return Interval(estimate, float("nan"), float("nan"))
    rng = np.random.default_rng(0)

    def redraw(sample: np.ndarray) -> np.ndarray:
        ordered = np.sort(sample)  # the order of runs does not matter
        return ordered[rng.integers(len(sample), size=(REPETITIONS, len(sample)))]

    found = np.round(statistic([redraw(x) for x in xs], [redraw(y) for y in ys]), _DIGITS)
    low, high = np.quantile(found, [0.025, 0.975], method="inverted_cdf")
    return Interval(estimate, float(low), float(high))


def median_ratio(xs: Samples, ys: Samples) -> Any:
    """Of medians, summed over tasks first; 1 where both are 0."""
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


def only(results: Results, agents: Collection[str]) -> Results:
    """Runs of these agents; problems are on the page already."""
    return Results(tuple(r for r in results.records if r.config["agent"] in agents), ())


def known(values: np.ndarray) -> np.ndarray:
    """Without the NaNs that fill up a table of seeds."""
    return values[~np.isnan(values)]


def place(arrays: Arrays, agent: str) -> int:
    """The row of an agent."""
    return arrays["agents"].tolist().index(agent)


def counts(xs: Samples, ys: Samples) -> str:
    """Seeds on each side, such as '10 and 8–10'."""

    def say(samples: Samples) -> str:
        least, most = min(map(len, samples)), max(map(len, samples))
        return f"{least}" if least == most else f"{least}–{most}"

    return f"{say(xs)} and {say(ys)}"


def notes_of(arrays: Arrays) -> tuple[str, ...]:
    """Of a collector."""
    return tuple(map(str, arrays["notes"]))
