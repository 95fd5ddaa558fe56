"""Aggregates of scores over runs and tasks, with intervals over seeds.

Scores are `scores[runs, tasks]`: a row is one seed, and an entry is one number about one training
run. Do not pass episodes or checkpoints as runs: within a run they are correlated, and intervals
would be far too narrow. A missing run raises `InputError`; it is never averaged over.

Interquartile mean, optimality gap, stratified bootstrap and probability of improvement are those of
Agarwal et al. (NeurIPS 2021), and equal those of rliable. Resampling is `scipy.stats`'.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from winkel.errors import InputError

_QUARTILES = (0.5, 0.25, 0.75)
_BATCH = 500  # resamples at a time; another number changes the random stream


class Interval(NamedTuple):
    """Estimates and the ends of their intervals: numbers, or arrays of one shape."""

    estimate: Any
    low: Any
    high: Any


def median_iqr(values: Float[np.ndarray, "runs"]) -> Interval:
    """Median and quartiles of times until an event; inf for runs in which it never happened.

    A quantile with any weight on inf is inf: leaving unsolved runs out would favour the agent that
    solves only the easy seeds. All runs need the same budget, or a short run counts as a failure.
    """
    known = _check("values", values, axes=1, finite=False)
    finite = known[np.isfinite(known)]
    quartiles = np.quantile(np.minimum(known, finite.max(initial=0)), _QUARTILES)
    never = np.isinf(np.quantile(known, _QUARTILES, method="higher"))
    return Interval(*np.where(never, np.inf, quartiles).tolist())


def iqm(scores: Float[np.ndarray, "*batch runs tasks"]) -> Any:
    """Interquartile mean of all scores, over runs and tasks together.

    Scores are pooled before a quarter is cut at each end, so tasks need comparable scales.
    """
    known = _check("scores", scores)
    return stats.trim_mean(known.reshape(*known.shape[:-2], -1), 0.25, axis=-1)


def optimality_gap(scores: Float[np.ndarray, "*batch runs tasks"], gamma: float = 1.0) -> Any:
    """Mean shortfall below gamma over runs and tasks; lower is better.

    A score above gamma counts as gamma, so that it does not compensate for another task.
    """
    return np.mean(np.maximum(gamma - _check("scores", scores), 0), axis=(-2, -1))


def bootstrap(
    samples: Sequence[np.ndarray],
    statistic: Callable[..., Any],
    *,
    repetitions: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap of a statistic of independent samples, each over runs.

    `statistic(*samples)` must reduce the last axis of every sample. Samples are sorted first, so
    that the order of runs does not matter. Quantiles are not interpolated, so that replicates may
    be infinite. A sample of one run has no interval: low = high = nan.
    """
    estimate = float(statistic(*samples))
    if min(map(len, samples)) < 2:
        return Interval(estimate, np.nan, np.nan)
    with np.errstate(invalid="ignore"):  # SciPy interpolates between infinite replicates
        found = stats.bootstrap(
            [np.sort(sample) for sample in samples],
            lambda *resampled, axis: statistic(*resampled),
            vectorized=True,
            method="percentile",
            n_resamples=repetitions,
            batch=_BATCH,
            rng=np.random.default_rng(seed),
        )
    tail = (1 - confidence) / 2
    tails = [tail, 1 - tail]
    ends = np.quantile(found.bootstrap_distribution, tails, method="inverted_cdf")
    return Interval(estimate, *ends.tolist())


def stratified_bootstrap(
    scores: Float[np.ndarray, "runs tasks"], statistic: Callable[[np.ndarray], Any], **options: Any
) -> Interval:
    """Percentile bootstrap of a statistic; the runs of each task are resampled independently.

    Tasks are fixed: the interval is about other seeds on these tasks, not about other tasks. The
    statistic must work over leading axes, as `iqm` does. Options are those of `bootstrap`.

    With few runs the interval is too narrow: measured for the mean of normal scores, 95 % are 93 %
    at 10 runs of 23 tasks, 90 % at 10 of one and 85 % at 5 of one.
    """
    matrix = _check("scores", scores, axes=2)
    return bootstrap([*matrix.T], lambda *tasks: statistic(np.stack(tasks, axis=-1)), **options)


def probability_of_improvement(
    x: Float[np.ndarray, "runs_x tasks"], y: Float[np.ndarray, "runs_y tasks"], **options: Any
) -> Interval:
    """Mean over tasks of P(X > Y) + P(X = Y) / 2 for one run of each, by Mann and Whitney's count.

    1/2 means no difference. It says how often x is better, not by how much. Runs of x and y are
    resampled independently and may differ in number. Higher must be better. Scores may be infinite.
    """
    samples = [_check("x", x, axes=2, finite=False).T, _check("y", y, axes=2, finite=False).T]
    num_tasks = len(samples[0])
    if len(samples[1]) != num_tasks:
        raise InputError(f"need the same tasks in x and y, got shapes {x.shape} and {y.shape}")

    def share_of_wins(*tasks: np.ndarray) -> Any:
        mine, theirs = np.stack(tasks[:num_tasks]), np.stack(tasks[num_tasks:])
        mine, theirs = mine[..., :, None], theirs[..., None, :]  # [tasks, ..., runs_x, runs_y]
        wins = (mine > theirs).astype(float) + (mine >= theirs)
        return wins.mean(axis=(0, -2, -1)) / 2

    return bootstrap([*samples[0], *samples[1]], share_of_wins, **options)


def student_interval(values: Float[np.ndarray, "runs *rest"], confidence: float = 0.9) -> Interval:
    """Mean over runs, the first axis, and Student's t interval; for learning curves.

    Pointwise, and exact for normal values only: it may leave the range of the scores. One run has
    no interval: low = high = nan. The paper's VizDoom curves have 90 % of 10 seeds.
    """
    known = _check("values", values)
    mean = np.asarray(np.mean(known, axis=0))
    if len(known) == 1:
        return Interval(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    half = stats.t.ppf((1 + confidence) / 2, len(known) - 1) * stats.sem(known, axis=0)
    return Interval(mean, np.asarray(mean - half), np.asarray(mean + half))


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Share of seeds that succeeded, and Wilson's (1927) score interval.

    Unlike ± z standard errors it stays in [0, 1] and has a width when none or all succeed. It is
    not centred at the estimate. Trials are seeds, not episodes.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise InputError(f"need 0 <= successes <= trials >= 1, got {successes} of {trials}")
    ends = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return Interval(successes / trials, float(ends.low), float(ends.high))


def _check(
    name: str, values: np.ndarray, *, axes: int | None = None, finite: bool = True
) -> np.ndarray:
    """Return float64; raise if a number is missing or infinite, or the number of axes is wrong."""
    known = np.asarray(values, np.float64)
    if axes is not None and known.ndim != axes:
        wanted = "[runs, tasks], a row for each seed" if axes == 2 else "[runs], one for each seed"
        raise InputError(f"need {name}{wanted}, got shape {known.shape}")
    if known.size == 0:
        raise InputError(f"need at least one number in {name}, got shape {known.shape}")
    if len(bad := np.argwhere(~np.isfinite(known) if finite else np.isnan(known))):
        place = bad[0].tolist()
        raise InputError(
            f"need {'a finite' if finite else 'a'} number for every run, got {name}{place} = "
            f"{known[tuple(place)]} ({len(bad)} such of {known.size})"
        )
    return known
