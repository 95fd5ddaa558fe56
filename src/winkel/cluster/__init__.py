"""Sweeps beyond one process: a manifest of shards, which any scheduler may run anywhere."""
