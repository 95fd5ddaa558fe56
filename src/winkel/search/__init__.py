"""The search for hyperparameters, appendix B.1: a population of trials in lanes. Needs Optuna."""
