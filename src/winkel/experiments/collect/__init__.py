"""From runs to the arrays of a figure: one function for each figure of `winkel figure NAME RUNS`.

A collector computes all statistics, with seeds as the unit, and says in `notes` what is missing,
censored or unequal. It raises `InputError` where there is nothing to show, without naming the
folder, which the command adds.
"""

from collections.abc import Callable

from winkel.experiments.collect.bsuite import collect_radar, collect_scores
from winkel.experiments.collect.learning import collect_learning_curves, collect_vizdoom
from winkel.experiments.collect.sea import collect_ensemble_size, collect_regret
from winkel.experiments.collect.seen import (
    collect_coverage,
    collect_heatmaps,
    collect_statistics,
)
from winkel.runs.results import Arrays, Results

COLLECTORS: dict[str, Callable[[Results], Arrays]] = {
    "radar": collect_radar,
    "scores": collect_scores,
    "learning-curves": collect_learning_curves,
    "regret": collect_regret,
    "statistics": collect_statistics,
    "coverage": collect_coverage,
    "ensemble-size": collect_ensemble_size,
    "heatmaps": collect_heatmaps,
    "vizdoom": collect_vizdoom,
}

__all__ = ["COLLECTORS", *(collect.__name__ for collect in COLLECTORS.values())]
