"""Figures: one file each. A figure reads named arrays and knows nothing of how they came about."""

from winkel.figures import heatmaps, inspect, iteration, operator, toy

FIGURES = {"toy": toy, "operator": operator, "iteration": iteration}
"""Figures whose arrays `winkel figure` computes."""

RUN_FIGURES = {"inspect": inspect, "heatmaps": heatmaps}
"""Figures of arrays that a trained agent or its run has left."""

__all__ = ["FIGURES", "RUN_FIGURES"]
