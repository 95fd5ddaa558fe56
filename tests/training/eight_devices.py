"""Lanes over eight simulated devices, in a process of their own: what `test_mesh.py` checks.

Prints a line of JSON. Of runs in as many lanes on one device and over eight, and of as many as one
of the eight devices has: the largest difference in what is learned, and whether records are equal.
"""

import json

import jax
import numpy as np

from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.runs.spec import configure
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes
from winkel.training.steps import Horizon, Plan

RUNS, LANES, CHUNK = 20, 14, 20
FIELDS = {"hidden": (8,), "batch_size": 4, "burn_in": 8, "capacity": 32}


def plans(task, hyper):
    return [Plan(task.params, hyper, Horizon(episodes=10), seed) for seed in range(RUNS)]


def make_lanes(task, configured, num_lanes, devices):
    world = CompiledWorld(task.env)
    agent, hyper = configured
    runs = plans(task, hyper)
    return Lanes(agent, world, runs, num_lanes, CHUNK, devices=devices)


def learners(lanes):
    return [np.asarray(x) for x in jax.tree.leaves(lanes.rows[0].states.learner)]


def whole(task, configured, num_lanes, devices):
    """All runs to their end: episodes of each, and what is learned after the first chunks."""
    lanes = make_lanes(task, configured, num_lanes, devices)
    episodes = {plan: [] for plan in range(RUNS)}
    early, estimates = None, []
    while reports := lanes.advance():
        if early is None:
            early = learners(lanes)
            estimates = [lanes.evaluate([0, 1], 1, 2), lanes.survey([0, 1])]
            spread = lanes.rows[0].states.clock.updates.sharding
        for report in reports:
            episodes[report.run].append(report.episodes)
            if report.finished:
                lanes.release(report.run)
    tables = {
        plan: {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for plan, parts in episodes.items()
    }
    return lanes, tables, early, estimates, len(spread.device_set)


def difference(ours, theirs):
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return max(float(np.max(np.abs(np.asarray(a, float) - np.asarray(b, float)))) for a, b in pairs)


def same(ours, theirs):
    return all(
        np.array_equal(ours[plan][name], theirs[plan][name]) for plan in ours for name in ours[plan]
    )


def main():
    task = make("deep_sea:size=4")
    configured = configure("dqn", FIELDS, task)
    lanes, over_eight, early, estimates, devices = whole(task, configured, LANES, 8)
    _, on_one, early_one, estimates_one, one = whole(task, configured, lanes.num_lanes, 1)
    _, on_two, _, _, _ = whole(task, configured, lanes.num_lanes // 8, 1)
    try:
        make_lanes(task, configured, 8, devices=9)
    except InputError as error:
        refusal = str(error)
    print(  # noqa: T201
        json.dumps(
            {
                "devices": [devices, one],
                "lanes": lanes.num_lanes,
                "learned": difference(early, early_one),
                "estimates": difference(estimates, estimates_one),
                "same as on one": same(over_eight, on_one),
                "same as a share alone": same(over_eight, on_two),
                "episodes": sum(len(table["return"]) for table in over_eight.values()),
                "refusal": refusal,
            }
        )
    )


if __name__ == "__main__":
    main()
