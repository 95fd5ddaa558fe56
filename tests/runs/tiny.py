"""Tiny runs on deep sea, and comparisons of what they leave."""

import winkel
from winkel.runs.checkpoint import load_checkpoint
from winkel.runs.spec import Options

# Chunks of 16 steps after 8 end in the middle of episodes of 5; 20 episodes are 6 chunks.
ENV, LENGTH, CHUNKS = "deep_sea:size=5", 5, 6
TINY = {"hidden": (16,), "num_atoms": 5, "batch_size": 8, "burn_in": 8, "capacity": 64}
EVALUATED = {"evaluate_every": 3, "evaluation_episodes": 2, "snapshots": 3}
OFTEN = Options(chunk_steps=16, checkpoint_seconds=0.0, **EVALUATED)
RARELY = Options(chunk_steps=16, checkpoint_seconds=1e9, **EVALUATED)
RECORDS = ("config.json", "episodes.npz", "evaluations.npz", "metrics.jsonl", "snapshots.npz")
SEED_0 = "deep_sea/pe_dqn/size=5/seed-0"


def learn(out=None, agent="pe_dqn", env=ENV, **changed):
    settings = {"episodes": 20, "lanes": 1, "options": OFTEN, **TINY, **changed}
    return winkel.train(env, agent, out=out, **settings)


def files(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def records(folder):
    """Everything that a run leaves, except the number of its checkpoints."""
    state = load_checkpoint(folder / "checkpoint")[0]
    return {name: (folder / name).read_bytes() for name in RECORDS} | {
        name: (str(array.dtype), array.shape, array.tobytes()) for name, array in state.items()
    }


def assert_same_records(folder, other):
    ours, theirs = records(folder), records(other)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def stop_after(chunks, error=KeyboardInterrupt):
    """A progress callback that interrupts."""
    calls = []

    def progress(statuses):
        calls.append(statuses)
        if len(calls) == chunks:
            raise error

    return progress
