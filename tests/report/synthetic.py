"""Runs made by hand: deep sea with a given number of bad episodes, and whatever else is asked."""

import numpy as np

from winkel.envs.registry import EXPERIMENTS, FAMILIES, parse
from winkel.runs.record import RunRecord, save_run
from winkel.runs.spec import run_folder

EPISODES = 20
SEEDS = 5


def save(root, env, agent, seed, episodes, evaluations=None, **config):
    config = {
        "env": env, "agent": agent, "seed": seed, "algorithm": agent, "fingerprint": "f" * 16,
        "versions": {"winkel": "1", "jax": "2"}, "status": "finished", **config,
    }  # fmt: skip
    tables = {"evaluations": evaluations or {}}
    save_run(run_folder(root, env, agent, seed), RunRecord(config, episodes, tables=tables))


def deep_sea(root, agent, size, bads, *, visited=0.5, algorithm=None, config=None):
    """A seed for each number of bad episodes, which come first; `visited` is a share or several."""
    visited = np.broadcast_to(visited, len(bads))
    for seed, (bad, share) in enumerate(zip(bads, visited, strict=True)):
        flags = np.arange(EPISODES) < bad
        episodes = {
            "return": np.where(flags, 0.0, 0.99),
            "length": np.full(EPISODES, size),
            "bad": flags,
            "treasure": ~flags,
            "visited": np.full(EPISODES, round(share * size * (size + 1))),
        }
        setting = {"size": size, "mapping_seed": 42, "move_cost": 0.01}
        save(
            root, f"deep_sea:size={size}", agent, seed, episodes, setting=setting,
            algorithm=algorithm or agent, config=config or {},
        )  # fmt: skip


def official(root, name, index, agent, seed, bad_share=0.0, num=100):
    """A run of one of bsuite's own settings; only deep sea's facts mean something."""
    experiment = EXPERIMENTS[name]
    bad = np.arange(num) < bad_share * num
    episodes = {"return": np.where(bad, 0.0, 1.0), "length": np.full(num, 10)}
    for fact in FAMILIES[experiment.family].facts:
        episodes[fact] = bad if fact == "bad" else np.zeros(num)
    env = f"{name}/{index}"
    save(root, env, agent, seed, episodes, setting=parse(env)[1])


def doom(root, agent, setting, found):
    for seed, reward in enumerate(found):
        episodes = {"return": np.array([0.0, float(reward)]), "length": np.array([10, 10])}
        save(root, f"doom:my-way-home/{setting}", agent, seed, episodes)
