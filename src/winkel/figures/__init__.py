"""Figures: one file each. A figure reads named arrays and knows nothing of how they came about."""

from winkel.figures import iteration, operator, toy

FIGURES = {"toy": toy, "operator": operator, "iteration": iteration}

__all__ = ["FIGURES"]
