"""Claim: VizDoom runs as fast as there are cores for it, and cheap pictures look like the paper's.

Frames per second of MyWayHome under random actions, nothing else running in this process: a pool of
`--envs` environments on `--workers` processes, against one environment in this process, in the same
run. Processor time a frame changes less with other work on the machine. `--difference N` compares N
frames of both renderings instead, as an agent would see them; `--success N` counts how often random
actions find the vest in about N episodes.

    python benchmarks/doom.py [--envs 32] [--workers W] [--rendering fast paper] [--seconds 5]
    python benchmarks/doom.py --difference 2000
    python benchmarks/doom.py --success 400 [--variant dense sparse very-sparse]
"""

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in the workers

import resource
import time

import numpy as np

from winkel.simulators.pool import Pool
from winkel.simulators.vizdoom import DoomMaker, MyWayHome
from winkel.simulators.vizdoom.scenario import STARTS

NUM_ACTIONS = MyWayHome.num_actions


def speed(maker, envs, workers, seconds):
    """Frames per second, and seconds of processors (engines and workers) spent on each."""
    idle, _, _ = run(maker, envs, workers, seconds=0.0)
    spent, frames, wall = run(maker, envs, workers, seconds)
    return frames / wall, (spent - idle) / frames


def run(maker, envs, workers, seconds):
    """Processor time with that of starting, frames, and how long they took."""
    before = processor_time()
    frames, wall = play(maker, envs, workers, seconds)
    return processor_time() - before, frames, wall


def processor_time():
    """Of this process and all that it has waited for, in seconds."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)


def play(maker, envs, workers, seconds):
    actions = np.random.default_rng(0).integers(NUM_ACTIONS, size=(10_000, envs))
    with Pool(maker, seeds=range(envs), num_workers=workers) as pool:
        pool.reset()
        for row in actions[:50]:
            pool.step(row)
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            pool.step(actions[steps % len(actions)])
            steps += 1
        return steps * envs, time.perf_counter() - start


def differences(variant, num_frames):
    """Of the gray levels of frames in both renderings, [frames, 42, 42].

    Four in five actions repeat the last one, so that the player gets about; episodes are cut after
    200 steps, so that all rooms are seen.
    """
    rng = np.random.default_rng(0)
    fast, paper = (MyWayHome(variant, rendering=name) for name in ("fast", "paper"))
    found, over, action = [], True, 0
    while len(found) < num_frames:
        if over or len(found) % 200 == 0:
            seed = None if found else 0
            pair = fast.reset(seed), paper.reset(seed)
            over = False
        else:
            action = int(rng.integers(NUM_ACTIONS)) if rng.random() < 0.2 else action
            one, other = fast.step(action), paper.step(action)
            assert one.probes == other.probes
            pair, over = (one.obs, other.obs), one.boundary
        found.append(np.abs(pair[0].astype(int) - pair[1]))
    fast.close()
    paper.close()
    return np.array(found)


def random_success(maker, workers, num_episodes, envs=10):
    """Vests found, and episodes that ended."""
    rng = np.random.default_rng(1)
    found = ended = 0
    with Pool(maker, seeds=range(envs), num_workers=workers) as pool:
        pool.reset()
        while ended < num_episodes:
            moves = pool.step(rng.integers(NUM_ACTIONS, size=envs))
            found += int(moves.facts["goal"].sum())
            ended += int(moves.boundary.sum())
    return found, ended


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=int, default=32)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rendering", nargs="+", default=["fast"], choices=["fast", "paper"])
    parser.add_argument("--variant", nargs="+", default=["dense"], choices=list(STARTS))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--difference", type=int, metavar="FRAMES")
    parser.add_argument("--success", type=int, metavar="EPISODES")
    args = parser.parse_args()
    for variant in args.variant:
        report(args, variant)


def report(args, variant):
    if args.difference:
        gaps = differences(variant, args.difference)
        by_frame = gaps.mean(axis=(1, 2))
        print(
            f"{len(gaps)} frames of {variant}, fast against paper, in levels of 255: "
            f"mean {gaps.mean():.2f}, 99 % of pixels within {np.percentile(gaps, 99):.0f}, "
            f"largest {gaps.max()}; mean of a frame at most {by_frame.max():.2f}"
        )
        return
    if args.success:
        found, ended = random_success(DoomMaker(variant), args.workers, args.success)
        print(f"{variant}: random actions found the vest in {found} of {ended} episodes")
        return
    for rendering in args.rendering:
        maker = DoomMaker(variant, rendering=rendering)
        alone, cost_alone = speed(maker, envs=1, workers=0, seconds=args.seconds)
        pooled, cost_pooled = speed(maker, args.envs, args.workers, args.seconds)
        print(
            f"{variant}, {rendering}: {args.envs} environments on {args.workers} workers "
            f"{pooled:,.0f} frames/s, one alone {alone:,.0f}, ratio {pooled / alone:.2f}; "
            f"processor time a frame {1e6 * cost_pooled:.0f} µs, alone {1e6 * cost_alone:.0f} µs"
        )


if __name__ == "__main__":
    main()
