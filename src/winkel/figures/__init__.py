"""Figures: one file each. A figure reads named arrays and knows nothing of how they came about."""

from winkel.figures import (
    coverage,
    ensemble_size,
    heatmaps,
    iteration,
    learning_curves,
    operator,
    radar,
    regret,
    scores,
    statistics_study,
    toy,
    vizdoom,
)

FIGURES = {"toy": toy, "operator": operator, "iteration": iteration}
"""Figures whose arrays `winkel figure` computes."""

RUN_FIGURES = {
    "heatmaps": heatmaps,
    "radar": radar,
    "scores": scores,
    "learning-curves": learning_curves,
    "regret": regret,
    "statistics": statistics_study,
    "coverage": coverage,
    "ensemble-size": ensemble_size,
    "vizdoom": vizdoom,
}
"""Figures of arrays that a trained agent or its run has left, or that are collected from runs."""

__all__ = ["FIGURES", "RUN_FIGURES"]
