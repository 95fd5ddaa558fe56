"""A tiny sweep, and its records, for tests of all that runs shards."""

from winkel.runs.spec import Options
from winkel.runs.sweep import deep_sea_envs

TINY = {
    "hidden": (8,), "num_atoms": 5, "num_members": 2, "batch_size": 4, "burn_in": 8,
    "capacity": 32,
}  # fmt: skip
SMALL = ("--hidden", "8", "--batch-size", "4", "--burn-in", "8", "--capacity", "32")
OPTIONS = Options(chunk_steps=20, checkpoint_seconds=0.0, snapshots=2)
RECORDS = ("config.json", "episodes.npz", "metrics.jsonl", "snapshots.npz")


def sea(**others):
    settings = {
        "envs": deep_sea_envs([3, 4]), "agents": ("dqn",), "seeds": (0, 1, 2, 3, 4),
        "episodes": 12, "fields": TINY,
    }  # fmt: skip
    return settings | others


def records(out):
    files = [path for name in RECORDS for path in out.glob(f"*/*/*/seed-*/{name}")]
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(files)}
