"""Claim: batched JAX environments outrun bsuite's Python ones, on the same CPU.

    python benchmarks/environments.py [--copies 1024] [--experiments catch deep_sea ...] [--alone]

Steps a second under random actions that are drawn beforehand: `--copies` copies of a setting in one
compiled program, against one Python environment of DeepMind's bsuite 0.3.6 (in the `test` extra).
"""

import argparse
import time

import jax
import numpy as np

from training import time_chunks
from winkel import envs

LAST = {"deep_sea": 20, "deep_sea_stochastic": 20, "umbrella_distract": 22, "memory_size": 16}


@jax.jit
def run(env, params, keys, actions):
    def one(key, actions):
        state, _ = env.reset(jax.random.fold_in(key, 0), params)

        def step(carry, action):
            state, key = carry
            key, key_step = (jax.random.fold_in(key, use) for use in range(2))
            state, result = env.step(key_step, state, action, params)
            return (state, key), (result.reward, result.boundary, result.obs.sum())

        _, results = jax.lax.scan(step, (state, key), actions)
        return [part.sum() for part in results]

    return jax.vmap(one)(keys, actions)


def our_rate(task, copies, steps=1_000):
    keys = jax.random.split(jax.random.key(0), copies)
    rng = np.random.default_rng(0)
    actions = rng.integers(task.env.num_actions, size=(copies, steps), dtype=np.int32)
    times = time_chunks(lambda: run(task.env, task.params, keys, actions))
    return copies * steps / min(times)


def bsuite_rate(task_id, seconds=1.0):
    import bsuite

    env = bsuite.load_from_id(task_id)
    actions = np.random.default_rng(0).integers(env.action_spec().num_values, size=500)
    env.reset()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        count += sum(not env.step(action).first() for action in actions)
    return count / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=1024)
    names = [name for name in envs.EXPERIMENTS if not name.startswith("mnist")]
    parser.add_argument("--experiments", nargs="+", default=names, choices=list(envs.EXPERIMENTS))
    parser.add_argument("--alone", action="store_true", help="leave bsuite out")
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, {options.copies} copies, random actions, steps/s")
    for name in options.experiments:
        task_id = f"{name}/{LAST.get(name, 0)}"
        ours = our_rate(envs.make(task_id), options.copies)
        theirs = float("nan") if options.alone else bsuite_rate(task_id)
        beside = f"bsuite {theirs:9,.0f}   ratio {ours / theirs:7.0f}"
        print(f"{task_id:24} winkel {ours:13,.0f}   {beside}", flush=True)


if __name__ == "__main__":
    main()
