"""Summarise a study: its trials, their calibrated scores, and the importance of parameters."""

from typing import Any, NamedTuple

import numpy as np
import optuna
from jaxtyping import Float
from optuna.trial import FrozenTrial, TrialState, create_trial

from winkel.errors import InputError
from winkel.search.problem import FIRST_SEED
from winkel.search.space import MILESTONES, Space, space_from
from winkel.search.study import Study, hide_password, storage_errors
from winkel.search.trials import DISCARDED, REASON, calibrated_scores, is_counted, raw_scores

MIN_TRIALS = 4
"""Complete trials that an importance needs."""


class CompleteTrial(NamedTuple):
    """A trial that trained in all environments.

    Attributes:
        number: Optuna's number.
        params: the configuration, as Optuna stores it.
        raw: scores at T by environment.
        calibrated: the same, calibrated.
        total: their sum, the final score.
        updates: updates of all its runs.
    """

    number: int
    params: dict[str, Any]
    raw: Float[np.ndarray, " environments"]
    calibrated: Float[np.ndarray, " environments"]
    total: float
    updates: int


class Summary(NamedTuple):
    """A study at the time of reading.

    Attributes:
        name: the study's name.
        url: its storage, without a password.
        description: agent, space, seeds, fixed fields, version.
        space: the search space.
        complete: the best first.
        pruned: trials stopped below the median.
        failed: reasons, by trial number.
        unfinished: number of trials that are running or queued.
        requeued: number of trials whose process ended, and which were queued again.
        updates: updates of all trials, pruned ones included.
        importance: share of each parameter; empty with too few trials.
        scores: scores of complete and pruned trials by Optuna's step, by trial number.
    """

    name: str
    url: str
    description: dict[str, Any]
    space: Space
    complete: list[CompleteTrial]
    pruned: list[FrozenTrial]
    failed: dict[int, str]
    unfinished: int
    requeued: int
    updates: int
    importance: dict[str, float]
    scores: dict[int, dict[int, float]]

    @property
    def agent(self) -> str:
        """Name of the agent."""
        return self.description["agent"]

    @property
    def num_trials(self) -> int:
        """Number of trials in all."""
        return len(self.complete) + len(self.pruned) + len(self.failed) + self.unfinished

    def best(self) -> CompleteTrial:
        """Return the winner; raise if no trial is complete."""
        if not self.complete:
            raise InputError(f"study {self.name} has no complete trial yet; continue with --resume")
        return self.complete[0]

    def budget(self) -> str:
        """Describe what every configuration was given."""
        environments = ", ".join(
            f"{entry.id} for {entry.episodes or entry.steps:,} "
            f"{'episodes' if entry.episodes else 'steps'} ({entry.score})"
            for entry in self.space.environments
        )
        seeds = self.description["seeds"]
        last = FIRST_SEED + seeds - 1
        numbers = f"seed ({FIRST_SEED})" if seeds == 1 else f"seeds ({FIRST_SEED} to {last})"
        return f"{environments}; {seeds} {numbers}"


def summarise(study: Study) -> Summary:
    """Read and summarise a study."""
    with storage_errors(study.url):
        trials, description = study.trials(), study.description
    space = space_from(description["space"])
    counted = list(filter(is_counted, trials))
    complete = [trial for trial in counted if trial.state == TrialState.COMPLETE]
    pruned = [trial for trial in counted if trial.state == TrialState.PRUNED]
    failed = [trial for trial in counted if trial.state == TrialState.FAIL]
    raw = raw_scores(complete, len(space.environments))
    calibrated = calibrated_scores(complete, len(space.environments))
    totals = calibrated.sum(axis=1)
    rows = [
        CompleteTrial(
            number=trial.number,
            params=dict(trial.params),
            raw=raw[i],
            calibrated=calibrated[i],
            total=float(totals[i]),
            updates=trial.user_attrs["updates"],
        )
        for i, trial in enumerate(complete)
    ]
    return Summary(
        name=study.study.study_name,
        url=hide_password(study.url),
        description=description,
        space=space,
        complete=sorted(rows, key=lambda row: (-row.total, row.number)),
        pruned=pruned,
        failed={trial.number: trial.user_attrs[REASON] for trial in failed},
        unfinished=sum(not trial.state.is_finished() for trial in counted),
        requeued=sum(not is_counted(t) and DISCARDED not in t.user_attrs for t in trials),
        updates=sum(trial.user_attrs.get("updates", 0) for trial in trials),
        importance=_importance(complete, totals),
        scores={trial.number: dict(trial.intermediate_values) for trial in (*complete, *pruned)},
    )


def name_step(space: Space, step: int) -> str:
    """Name Optuna's step, such as 'deep_sea/20 at 2T/5'."""
    environment, milestone = (step - 1) // MILESTONES, (step - 1) % MILESTONES + 1
    at = "T" if milestone == MILESTONES else f"{'' if milestone == 1 else milestone}T/{MILESTONES}"
    return f"{space.environments[environment].id} at {at}"


def _importance(
    complete: list[FrozenTrial], totals: Float[np.ndarray, " trials"]
) -> dict[str, float]:
    """Importance of parameters for the final scores by Optuna's PED-ANOVA; shares of 1."""
    if len(complete) < MIN_TRIALS or len(set(totals)) == 1:
        return {}
    copy = optuna.create_study(direction="maximize")
    for trial, total in zip(complete, totals, strict=True):
        copy.add_trial(
            create_trial(params=trial.params, distributions=trial.distributions, value=total)
        )
    return optuna.importance.get_param_importances(copy)
