"""Run a sweep in shards: by hand, on a Ray cluster, or as a job array of SLURM."""
