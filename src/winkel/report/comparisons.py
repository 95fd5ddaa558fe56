"""Comparisons with intervals over seeds, as measures of claims make them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from winkel.analysis.statistics import Interval, bootstrap

REPETITIONS = 10_000
"""Resamples of a bootstrap; its generator is seeded with 0."""

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

    `scale` is how large our experiment is: the fewest seeds, episodes, steps, the largest size. It
    has no seeds where the unit of replication is another one, such as bsuite's experiments.
    """

    comparisons: tuple[Comparison, ...] = ()
    missing: tuple[str, ...] = ()
    scale: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()


def of_one_sample(label: str, values: np.ndarray, statistic: Callable[..., Any]) -> Comparison:
    """A statistic of one value for each seed, with its 95 % percentile bootstrap interval."""
    interval = bootstrap([values], partial(statistic, axis=-1), repetitions=REPETITIONS)
    return Comparison(label, interval, str(len(values)))


def compare(
    label: str, xs: Samples, ys: Samples, statistic: Statistic, *, decisive: bool = True
) -> Comparison:
    """Compare two agents: a statistic with its 95 % percentile bootstrap interval over seeds.

    Seeds of each agent are resampled independently in each task.
    """

    def rounded(*samples: np.ndarray) -> Any:
        # Equal means of equal scores must not differ by the order of their sums.
        return np.round(statistic(samples[: len(xs)], samples[len(xs) :]), 9)

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
