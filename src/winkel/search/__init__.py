"""The search for hyperparameters of appendix B.1: a population of trials in lanes. Needs Optuna."""
