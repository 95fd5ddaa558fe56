"""The page of a search: the winner, all trials, importance of parameters, and the budget."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from winkel.figures.search import Slice, draw_importance, draw_milestones, draw_slices
from winkel.files import ensure_folder, write_text
from winkel.report.page import PAGE, render
from winkel.report.pictures import svg_of
from winkel.search.space import MILESTONES, Parameter, labels
from winkel.search.summary import Summary, name_step
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
    text = render(
        "study.html",
        summary=summary,
        figures=_draw_figures(summary),
        median=np.median([trial.total for trial in summary.complete] or [np.nan]),
        pruned=[
            (trial, name_step(summary.space, step), trial.intermediate_values[step])
            for trial in summary.pruned
            for step in [max(trial.intermediate_values)]
        ],
        apply=f"winkel search apply {shlex.quote(str(study))}",
    )
    write_text(page, text)
    return page


def _draw_figures(summary: Summary) -> dict[str, Markup]:
    """Draw the figures for which there are enough trials."""
    figures = {}
    if summary.importance:
        names, shares = list(summary.importance), np.array(list(summary.importance.values()))
        figures["importance"] = svg_of(
            lambda: draw_importance(names, shares), "importance", "Importance of the parameters"
        )
    if summary.complete:
        slices = [_slice(summary, name, p) for name, p in summary.space.parameters.items()]
        figures["slices"] = svg_of(
            lambda: draw_slices(slices), "slices", "Final score by parameter"
        )
    if summary.scores:
        figures["milestones"] = svg_of(
            lambda: _draw_milestones(summary), "milestones", "Scores at milestones"
        )
    return figures


def _slice(summary: Summary, name: str, part: Parameter) -> Slice:
    ticks = labels(part) if isinstance(part, list) else []

    def places(params: Sequence[dict[str, Any]]) -> np.ndarray:
        values = [p[name] for p in params]
        return np.array([ticks.index(value) if ticks else value for value in values], float)

    return Slice(
        name=name,
        ticks=tuple(f"{tick:g}" if isinstance(tick, float) else str(tick) for tick in ticks),
        log=isinstance(part, dict) and part["log"],
        at=places([trial.params for trial in summary.complete]),
        scores=np.array([trial.total for trial in summary.complete]),
        pruned=places([trial.params for trial in summary.pruned]),
    )


def _draw_milestones(summary: Summary) -> Figure:
    environments, numbers = summary.space.environments, sorted(summary.scores)
    complete = {trial.number for trial in summary.complete}
    steps = [
        [step_of(environment, milestone) for milestone in range(1, MILESTONES + 1)]
        for environment in range(len(environments))
    ]
    scores = np.array(
        [[[summary.scores[n].get(s, np.nan) for s in row] for n in numbers] for row in steps]
    )
    return draw_milestones(
        [f"{environment.id}: {environment.score}" for environment in environments],
        np.where(np.isfinite(scores), scores, np.nan),
        np.array([number in complete for number in numbers]),
        numbers.index(summary.complete[0].number) if summary.complete else None,
    )
