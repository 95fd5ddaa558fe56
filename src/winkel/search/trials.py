"""What follows from the trials of a study: scores, pruning, what to try next."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from jaxtyping import Float
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from winkel.search.problem import MILESTONES, Problem, list_values

REASON, DISCARDED = "reason", "discarded"
"""Attributes of a trial: why it failed; true if it repeats another or is one too many."""
PATIENCE = 30
"""Suggestions of tried configurations before the first untried one of the grid is used."""
STARTUP = 5
"""Other trials that must have been scored before any is pruned; Optuna's number."""


def is_counted(trial: FrozenTrial) -> bool:
    """Whether a trial counts: not if it was discarded, or requeued after its process ended."""
    return trial.state != TrialState.FAIL or REASON in trial.user_attrs


def calibrate(scores: Float[np.ndarray, " trials"]) -> Float[np.ndarray, " trials"]:
    """½ exp(ln 2 (f − μ) / (sup f − μ)): 1 for the best, ½ for an average configuration.

    Half the paper's formula, whose values are 2 and 1 where its text says 1 and 0.5, and ln 2 in
    place of 0.693; the ranking is the same. If all scores are equal, each is average: ½.
    """
    scores = np.asarray(scores, float)
    if not len(scores):
        return scores
    best, mean = float(np.max(scores)), float(np.mean(scores))
    if np.all(scores == best) or not best > mean:  # the mean of equal numbers may be rounded
        return np.full(len(scores), 0.5)
    return 0.5 * np.exp2((scores - mean) / (best - mean))


def raw_scores(
    complete: Sequence[FrozenTrial], environments: int
) -> Float[np.ndarray, "trials environments"]:
    """Return scores at T."""
    steps = [step_of(environment, MILESTONES) for environment in range(environments)]
    rows = [[trial.intermediate_values[step] for step in steps] for trial in complete]
    return np.array(rows, float).reshape(len(complete), environments)


def calibrated_scores(
    complete: Sequence[FrozenTrial], environments: int
) -> Float[np.ndarray, "trials environments"]:
    """Calibrate scores at T in each environment."""
    columns = raw_scores(complete, environments).T
    return np.stack([calibrate(column) for column in columns], axis=1)


def final_scores(trials: Sequence[FrozenTrial], environments: int) -> dict[int, float]:
    """Sum the calibrated scores of each complete trial; by number."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    totals = calibrated_scores(complete, environments).sum(axis=1)
    return {trial.number: float(total) for trial, total in zip(complete, totals, strict=True)}


def step_of(environment: int, milestone: int) -> int:
    """Optuna's step for a milestone (from 1) of an environment (from 0)."""
    return environment * MILESTONES + milestone


def is_below_median(number: int, step: int, trials: Sequence[FrozenTrial]) -> bool:
    """Whether a trial scores below the median of the others at a step.

    Unlike Optuna's MedianPruner, compare the scores of the step itself, not the best so far, and
    count running trials. A trial pruned earlier in the same environment counts as −∞: otherwise
    each milestone would halve the trials that are left.
    """
    others = [score_at(t, step) for t in trials if t.number != number and is_counted(t)]
    known = [score for score in others if score is not None]
    score = next(t for t in trials if t.number == number).intermediate_values[step]
    return len(known) >= STARTUP and score < float(np.median(known))


def score_at(trial: FrozenTrial, step: int) -> float | None:
    """Score of a trial at a step; −∞ if it was pruned before in the same environment, else None."""
    if step in trial.intermediate_values:
        return trial.intermediate_values[step]
    first = step - (step - 1) % MILESTONES  # step of the environment's first milestone
    last = max(trial.intermediate_values, default=0)
    pruned_here = trial.state == TrialState.PRUNED and first <= last < step
    return -np.inf if pruned_here else None


def suggest(
    problem: Problem, trials: Sequence[FrozenTrial], seed: int, count: int
) -> list[dict[str, Any]]:
    """Suggest configurations that were not tried, by Optuna's TPE on the calibrated scores of now.

    Every complete trial changes the mean and the best score of its environments, and so the
    calibrated scores of all trials. Optuna stores one value of a trial for good, so TPE samples
    from a copy of the study in memory with values computed again. It takes running trials as bad
    ones, which spreads a batch. The result depends on the trials, the seed and the count only.
    """
    if count < 1:
        return []
    parameters: dict[str, BaseDistribution] = dict(problem.parameters)
    sampler = optuna.samplers.TPESampler(seed=(seed * 1_000_003 + len(trials)) % 2**32)
    copy = optuna.create_study(direction="maximize", sampler=sampler)
    counted = [t for t in trials if is_counted(t) and set(t.params) == set(parameters)]
    totals = final_scores(counted, len(problem.environments))
    for trial in counted:
        if trial.state != TrialState.FAIL:
            queued = trial.state == TrialState.WAITING
            copy.add_trial(
                create_trial(
                    state=TrialState.RUNNING if queued else trial.state,
                    value=totals.get(trial.number, trial.value),
                    params=trial.params,
                    distributions=parameters,
                    intermediate_values=trial.intermediate_values,
                )
            )
    tried = [trial.params for trial in counted]
    for _ in range(count):
        for _ in range(PATIENCE):
            params = copy.ask(parameters).params
            if params not in tried:
                break
        else:
            if problem.size() < math.inf:  # take the first of the grid
                lists = map(list_values, problem.parameters.values())
                grid = (dict(zip(parameters, r, strict=True)) for r in itertools.product(*lists))
                params = next((row for row in grid if row not in tried), params)
        tried.append(params)
    return tried[-count:]
