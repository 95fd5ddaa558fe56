"""Claim: batched JAX environments outrun bsuite's Python ones, on the same CPU.

Steps per second under random actions that are drawn beforehand on both sides: `--copies` copies of
a setting in one compiled program, against one Python environment of DeepMind's bsuite 0.3.6 (in the
`test` extra), in the same run.

    python benchmarks/environments.py [--copies 1024] [--experiments catch deep_sea ...] [--alone]
"""

import argparse
import time

import jax
import numpy as np

from winkel import envs

LAST = {"deep_sea": 20, "deep_sea_stochastic": 20, "umbrella_distract": 22, "memory_size": 16}


def our_steps_per_second(task, copies, num_steps=1_000):
    @jax.jit
    def run(env, params, keys, actions):
        def one(key, actions):
            key_reset, key_steps = jax.random.split(key)
            state, _ = env.reset(key_reset, params)

            def step(carry, action):
                state, key = carry
                key, key_step = (jax.random.fold_in(key, use) for use in range(2))
                state, result = env.step(key_step, state, action, params)
                return (state, key), (result.reward, result.boundary, result.obs.sum())

            _, (reward, boundary, seen) = jax.lax.scan(step, (state, key_steps), actions)
            return reward.sum(), boundary.sum(), seen.sum()

        return jax.vmap(one)(keys, actions)

    keys = jax.random.split(jax.random.key(0), copies)
    rng = np.random.default_rng(0)
    actions = rng.integers(task.env.num_actions, size=(copies, num_steps), dtype=np.int32)
    times = []
    for _ in range(4):  # the first one compiles
        start = time.perf_counter()
        jax.block_until_ready(run(task.env, task.params, keys, actions))
        times.append(time.perf_counter() - start)
    return copies * num_steps / min(times)


def their_steps_per_second(task_id, seconds=1.0):
    import bsuite

    env = bsuite.load_from_id(task_id)
    actions = np.random.default_rng(0).integers(env.action_spec().num_values, size=100_000)
    env.reset()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for action in actions[:500]:
            count += not env.step(action).first()
    return count / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=1024)
    names = [name for name in envs.EXPERIMENTS if not name.startswith("mnist")]
    parser.add_argument("--experiments", nargs="+", default=names, choices=list(envs.EXPERIMENTS))
    parser.add_argument(
        "--alone", action="store_true", help="without bsuite, where it is not installed"
    )
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, {options.copies} copies, random actions")
    for name in options.experiments:
        task_id = f"{name}/{LAST.get(name, 0)}"
        ours = our_steps_per_second(envs.make(task_id), options.copies)
        if options.alone:
            print(f"{task_id:24} winkel {ours:13,.0f} steps/s", flush=True)
            continue
        theirs = their_steps_per_second(task_id)
        print(
            f"{task_id:24} winkel {ours:13,.0f} steps/s   bsuite {theirs:9,.0f} steps/s   "
            f"ratio {ours / theirs:7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
