"""Figures: one file each. A figure reads named arrays and knows nothing of how they came about."""

from winkel.figures import (
    coverage,
    doom_map,
    ensemble_size,
    heatmaps,
    inspect,
    iteration,
    learning_curves,
    operator,
    places,
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
    "inspect": inspect,
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

MAPS = {"map": doom_map, "places": places}
"""Figures of where the environments of a run have been, with walls or without."""

__all__ = ["FIGURES", "MAPS", "RUN_FIGURES"]
