"""Pallas kernels for what a GPU spends its time on; every one has a plain twin that tests it."""
