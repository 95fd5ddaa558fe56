"""The page of a search: the winner, all trials, importance of parameters, and the budget."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from winkel.figures.search import Slice, draw_importance, draw_milestones, draw_slices
from winkel.files import ensure_folder, write_text
from winkel.report.page import PAGE, render
from winkel.report.pictures import svg_of
from winkel.search.problem import MILESTONES, SearchEnvironment
from winkel.search.study import Summary, hide_password
from winkel.search.trials import step_of


def write_study_page(summary: Summary, folder: Path, study: Path) -> Path:
    """Write `index.html` into a folder.

    Args:
        summary: the study.
        folder: for the page; an older page there is replaced.
        study: the study's own folder, for the command that the page shows.
    """
    ensure_folder(folder)
    page = folder / PAGE
    environments = summary.study.problem.environments
    text = render(
        "study.html",
        summary=summary,
        problem=summary.study.problem,
        figures=_draw_figures(summary),
        pruned=[
            (trial, name_step(environments, step), trial.intermediate_values[step])
            for trial in summary.pruned
            for step in [max(trial.intermediate_values)]
        ],
        median=np.median(summary.totals) if summary.complete else np.nan,
        url=hide_password(summary.study.url),
        apply=f"winkel search apply {shlex.quote(str(study))}",
    )
    write_text(page, text)
    return page


def name_step(environments: Sequence[SearchEnvironment], step: int) -> str:
    """Name Optuna's step, such as 'deep_sea/20 at 2T/5'."""
    environment, milestone = (step - 1) // MILESTONES, (step - 1) % MILESTONES + 1
    at = "T" if milestone == MILESTONES else f"{'' if milestone == 1 else milestone}T/{MILESTONES}"
    return f"{environments[environment].id} at {at}"


def _draw_figures(summary: Summary) -> dict[str, Markup]:
    """Draw the figures for which there are enough trials."""
    figures = {}
    if importance := summary.importance():
        shares = np.array(list(importance.values()))
        figures["importance"] = svg_of(
            lambda: draw_importance(list(importance), shares),
            "importance",
            "Importance of the parameters",
        )
    if summary.complete:
        slices = [_slice(summary, *item) for item in summary.study.problem.parameters.items()]
        figures["slices"] = svg_of(
            lambda: draw_slices(slices), "slices", "Final score by parameter"
        )
    if summary.complete or summary.pruned:
        figures["milestones"] = svg_of(
            lambda: _draw_milestones(summary), "milestones", "Scores at milestones"
        )
    return figures


def _slice(summary: Summary, name: str, part: BaseDistribution) -> Slice:
    ticks = part.choices if isinstance(part, CategoricalDistribution) else ()

    def places(trials: Sequence[FrozenTrial]) -> np.ndarray:
        values = [trial.params[name] for trial in trials]
        return np.array([ticks.index(value) if ticks else value for value in values], float)

    return Slice(
        name=name,
        ticks=tuple(f"{tick:g}" if isinstance(tick, float) else str(tick) for tick in ticks),
        log=getattr(part, "log", False),
        at=places(summary.complete),
        scores=summary.totals,
        pruned=places(summary.pruned),
    )


def _draw_milestones(summary: Summary) -> Figure:
    environments = summary.study.problem.environments
    trials = sorted([*summary.complete, *summary.pruned], key=lambda trial: trial.number)
    steps = [
        [step_of(environment, milestone) for milestone in range(1, MILESTONES + 1)]
        for environment in range(len(environments))
    ]
    scores = np.array(
        [[[t.intermediate_values.get(s, np.nan) for s in row] for t in trials] for row in steps]
    )
    return draw_milestones(
        [f"{environment.id}: {environment.score}" for environment in environments],
        np.where(np.isfinite(scores), scores, np.nan),
        np.array([trial.state == TrialState.COMPLETE for trial in trials]),
        trials.index(summary.complete[0]) if summary.complete else None,
    )
