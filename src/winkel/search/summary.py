"""What a study found: its trials, their calibrated scores, and what mattered."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import optuna
from jaxtyping import Float
from optuna.trial import FrozenTrial, TrialState, create_trial

from winkel.errors import InputError
from winkel.search import claims
from winkel.search.calibration import final_scores
from winkel.search.problem import FIRST_SEED
from winkel.search.pruning import LOOKS
from winkel.search.storage import Shared, reachable, shown
from winkel.search.suggest import scores

ENOUGH = 4
"""Complete trials that an importance is computed from, at least."""


class Tried(NamedTuple):
    """A trial that went through all environments.

    Attributes:
        number: Optuna's.
        values: the configuration.
        raw: its scores at T, by environment.
        calibrated: the same calibrated.
        total: their sum.
        updates: that it took.
    """

    number: int
    values: dict[str, Any]
    raw: Float[np.ndarray, " envs"]
    calibrated: Float[np.ndarray, " envs"]
    total: float
    updates: int


class Summary(NamedTuple):
    """A study as it is now.

    Attributes:
        name: the study's.
        where: its storage.
        identity: agent, space, seeds, version.
        complete: the best first.
        pruned: trials stopped below the median, with the last look of each: configuration, the
            number of that look, its score.
        failed: why, by the trial's number.
        unfinished: trials under way or queued.
        died: trials whose process ended, and which were queued anew.
        updates: made in all, also by pruned trials.
        importance: share of each parameter; empty where there are too few trials.
        looks: scores of complete and pruned trials by look, in the order of their numbers.
    """

    name: str
    where: str
    identity: dict[str, Any]
    complete: list[Tried]
    pruned: list[tuple[int, dict[str, Any], int, float]]
    failed: dict[int, str]
    unfinished: int
    died: int
    updates: int
    importance: dict[str, float]
    looks: dict[int, dict[int, float]]

    @property
    def environments(self) -> list[dict[str, Any]]:
        """As the space has them."""
        return self.identity["space"]["environments"]

    @property
    def agent(self) -> str:
        """Whose search it is."""
        return self.identity["agent"]

    @property
    def counted(self) -> int:
        """Trials in all."""
        return len(self.complete) + len(self.pruned) + len(self.failed) + self.unfinished

    def best(self) -> Tried:
        """The winner; raises where no trial is complete."""
        if not self.complete:
            raise InputError(f"study {self.name} has no complete trial yet; go on with --resume")
        return self.complete[0]

    def budget(self) -> str:
        """What every configuration was given: the same for all agents with the same space."""
        places = ", ".join(
            f"{where['id']} for {where['episodes'] or where['steps']:,} "
            f"{'episodes' if where['episodes'] else 'steps'} ({where['score']})"
            for where in self.environments
        )
        seeds = self.identity["seeds"]
        last = FIRST_SEED + seeds - 1
        numbers = f"{FIRST_SEED}" if seeds == 1 else f"{FIRST_SEED} to {last}"
        return f"{places}; {seeds} seed{'s' if seeds > 1 else ''} ({numbers})"


def summarise(shared: Shared) -> Summary:
    """Read a study."""
    with reachable(shared.url):
        trials = shared.trials()
        identity = shared.identity
    counted = [t for t in trials if claims.counts(t, trials)]
    complete = [t for t in counted if t.state == TrialState.COMPLETE]
    environments = len(identity["space"]["environments"])
    raw = scores(complete, environments)
    columns, totals = final_scores(raw)
    tried = [
        Tried(
            number=trial.number,
            values=dict(trial.params),
            raw=raw[i],
            calibrated=columns[i],
            total=float(totals[i]),
            updates=trial.user_attrs.get("updates", 0),
        )
        for i, trial in enumerate(complete)
    ]
    tried.sort(key=lambda one: (-one.total, one.number))
    pruned = [t for t in counted if t.state == TrialState.PRUNED]
    return Summary(
        name=shared.study.study_name,
        where=shown(shared.url),
        identity=identity,
        complete=tried,
        pruned=[(t.number, dict(t.params), *_last(t)) for t in pruned],
        failed={
            t.number: t.user_attrs.get(claims.REASON, "")
            for t in counted
            if t.state == TrialState.FAIL and not t.user_attrs.get(claims.DIED)
        },
        unfinished=sum(
            not t.state.is_finished() or bool(t.user_attrs.get(claims.DIED)) for t in counted
        ),
        died=sum(bool(t.user_attrs.get(claims.DIED)) for t in trials),
        updates=sum(t.user_attrs.get("updates", 0) for t in trials),
        importance=_importance(complete, {one.number: one.total for one in tried}),
        looks={t.number: dict(t.intermediate_values) for t in (*complete, *pruned)},
    )


def look_name(environments: list[dict[str, Any]], step: int) -> str:
    """Such as 'deep_sea/20 at 2T/5'."""
    environment, look = (step - 1) // LOOKS, (step - 1) % LOOKS + 1
    at = "T" if look == LOOKS else f"{'' if look == 1 else look}T/{LOOKS}"
    return f"{environments[environment]['id']} at {at}"


def _last(trial: FrozenTrial) -> tuple[int, float]:
    step = max(trial.intermediate_values, default=1)
    return step, trial.intermediate_values.get(step, float("nan"))


def _importance(complete: list[FrozenTrial], totals: Mapping[int, float]) -> dict[str, float]:
    """PED-ANOVA, of the final scores as they are now; shares of 1."""
    if len(complete) < ENOUGH or len(set(totals.values())) == 1:
        return {}
    copy = optuna.create_study(direction="maximize")
    copy.add_trials(
        [
            create_trial(params=t.params, distributions=t.distributions, value=totals[t.number])
            for t in complete
        ]
    )
    found = optuna.importance.get_param_importances(copy)
    return {name: float(share) for name, share in found.items()}
