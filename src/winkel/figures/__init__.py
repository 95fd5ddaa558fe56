"""Figures, one file each: how its arrays are made, how it is drawn, its title.

A module has `draw(arrays)` and either `compute` or `collect(results)`, which makes the arrays from
runs, with seeds as the unit, and says in `notes` what is missing, censored or unequal. `collect`
raises `InputError` if there is nothing to show.
"""

from importlib import import_module

COMPUTED = ("toy", "operator", "iteration")
"""Figures that need no runs."""

COLLECTED = (
    "radar", "scores", "learning-curves", "regret", "statistics", "coverage", "ensemble-size",
    "heatmaps",
)  # fmt: skip
"""Figures made from runs; each has a `TITLE` for the report."""

FIGURES = {
    name: import_module(f"winkel.figures.{name.replace('-', '_')}")
    for name in (*COMPUTED, *COLLECTED)
}
"""The modules of `winkel figure`, by name."""
