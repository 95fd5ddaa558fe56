"""Figures, one file each: what it needs, how its arrays are made, how it is drawn, its title.

A module has `draw(arrays)` and either `compute` or `collect(results)`, which makes the arrays from
runs, with seeds as the unit, and says in `notes` what is missing, censored or unequal. `collect`
raises `InputError` if there is nothing to show.
"""

from types import ModuleType

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

FIGURES: dict[str, ModuleType] = {
    "toy": toy,
    "operator": operator,
    "iteration": iteration,
    "radar": radar,
    "scores": scores,
    "learning-curves": learning_curves,
    "regret": regret,
    "statistics": statistics_study,
    "coverage": coverage,
    "ensemble-size": ensemble_size,
    "heatmaps": heatmaps,
    "vizdoom": vizdoom,
}
"""Figures of `winkel figure`."""

COMPUTED = tuple(name for name, figure in FIGURES.items() if hasattr(figure, "compute"))
"""Figures that need no runs."""

COLLECTED = tuple(name for name in FIGURES if name not in COMPUTED)
"""Figures made from runs; each has a `TITLE` for the report."""

__all__ = ["COLLECTED", "COMPUTED", "FIGURES"]
