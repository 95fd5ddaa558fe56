"""Which configuration to try next: TPE on the calibrated sums as they are now.

Each trial that completes moves the average and the best of its environments, and so the calibrated
scores of all before it. Optuna keeps one value for each trial for good; so the sampler is asked
about a copy of the study in memory, in which the values are today's.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from winkel.search.calibration import final_scores
from winkel.search.pruning import LOOKS, step_of
from winkel.search.space import Choice, Range

PATIENCE = 30
"""Suggestions of what was tried already, before the first of what is left is taken."""
RANDOM = 10
"""Configurations drawn at random before TPE has anything to go by, Optuna's own number."""


def distributions(parameters: Mapping[str, Choice | Range]) -> dict[str, BaseDistribution]:
    """A space as Optuna has it."""
    return {name: _distribution(part) for name, part in parameters.items()}


def sums(trials: Sequence[FrozenTrial], environments: int) -> dict[int, float]:
    """The final score of every complete trial, by its number."""
    complete = [t for t in trials if t.state == TrialState.COMPLETE]
    _, totals = final_scores(scores(complete, environments))
    return {t.number: float(total) for t, total in zip(complete, totals, strict=True)}


def scores(complete: Sequence[FrozenTrial], environments: int) -> np.ndarray:
    """Scores at T, `[trials, environments]`."""
    rows = [
        [t.intermediate_values[step_of(e, LOOKS)] for e in range(environments)] for t in complete
    ]
    return np.array(rows, float).reshape(len(complete), environments)


def suggest(
    space: Mapping[str, BaseDistribution],
    trials: Sequence[FrozenTrial],
    environments: int,
    seed: int,
    count: int = 1,
) -> list[dict[str, Any]]:
    """The next configurations, none of them tried; the same for the same trials, seed and count.

    Trials under way count as bad ones, so that a batch is spread out; pruned ones rank by how far
    they came. Where a space has nothing new left, one is suggested again.
    """
    values = sums(trials, environments)
    advisor = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(
            n_startup_trials=RANDOM, seed=(seed * 1_000_003 + len(trials)) % 2**32
        ),
    )
    tried = []
    for trial in trials:
        kept = trial.system_attrs.get("fixed_params") or trial.params
        if set(kept) != set(space):
            continue
        tried.append(kept)
        if trial.state == TrialState.FAIL:
            continue
        waiting = trial.state in (TrialState.RUNNING, TrialState.WAITING)
        advisor.add_trial(
            create_trial(
                state=TrialState.RUNNING if waiting else trial.state,
                value=values.get(trial.number, trial.value),
                params=kept,
                distributions=dict(space),
                intermediate_values=trial.intermediate_values,
            )
        )
    found = []
    for _ in range(count):
        found.append(_untried(advisor, space, tried))
        tried.append(found[-1])
    return found


def _untried(
    advisor: optuna.Study, space: Mapping[str, BaseDistribution], tried: list[dict[str, Any]]
) -> dict[str, Any]:
    for _ in range(PATIENCE):
        found = dict(advisor.ask(dict(space)).params)
        if found not in tried:
            return found
    listed = [_values(part) or [found[name]] for name, part in space.items()]
    everything = (dict(zip(space, values, strict=True)) for values in itertools.product(*listed))
    return next((one for one in everything if one not in tried), found)


def size_of(space: Mapping[str, BaseDistribution]) -> int | float:
    """How many configurations a space has; ∞ where a parameter is any number of a range."""
    listed = [_values(part) for part in space.values()]
    return math.inf if None in listed else math.prod(len(values or ()) for values in listed)


def _values(part: BaseDistribution) -> list[Any] | None:
    """Those that a parameter can have; None where they are any numbers of a range."""
    if isinstance(part, CategoricalDistribution):
        return list(part.choices)
    if isinstance(part, IntDistribution):
        return list(range(part.low, part.high + 1, part.step))
    if not isinstance(part, FloatDistribution) or part.step is None:
        return None
    return [part.low + part.step * i for i in range(round((part.high - part.low) / part.step) + 1)]


def _distribution(part: Choice | Range) -> BaseDistribution:
    if isinstance(part, Choice):
        return CategoricalDistribution(part.labels)
    if part.whole:
        step = 1 if part.step is None else int(part.step)
        return IntDistribution(int(part.low), int(part.high), log=part.log, step=step)
    return FloatDistribution(part.low, part.high, log=part.log, step=part.step)
