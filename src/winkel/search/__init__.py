"""The search for hyperparameters of appendix B.1: a population of trials in lanes. Needs Optuna."""

from winkel.errors import import_extra

import_extra("optuna", "search")
