"""XLA's flag for reproducible results on a GPU."""

DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
"""XLA's flag for a GPU that gives the same bits each time."""
