"""Runs: what makes one, its records and checkpoints, training, sweeps, loading."""
