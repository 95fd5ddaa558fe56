"""PE-DQN against a random policy on single settings of bsuite: the official score of each.

    python benchmarks/learning.py --envs catch/0 bandit/0 --seeds 4 [--agent pe_dqn] [--until N]

All of bsuite's episodes by default. The score is the experiment's, from that one setting.
"""

import argparse
import time

import numpy as np

import winkel
from winkel.envs.registry import make_batch
from winkel.experiments.score import log_of, score_experiment
from winkel.runs.rollout import make_policy, rollout
from winkel.runs.session import Options


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--envs", nargs="+", default=["catch/0"])
    parser.add_argument("--agent", default="pe_dqn")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--until", type=int, default=None)
    arguments = parser.parse_args()
    print(
        f"{'env':16}{'episodes':>9}{'random':>9}{arguments.agent + ' scores':>34}"
        f"{'random return':>15}{'last 10 %':>11}{'updates/s':>11}{'seconds':>9}"
    )
    for env in arguments.envs:
        print(line(env, arguments.agent, arguments.seeds, arguments.until), flush=True)


def line(env: str, agent: str, seeds: int, until: int | None) -> str:
    batch = make_batch([env])
    episodes = until or batch.num_episodes[0]
    random = rollout(batch, make_policy("random", batch.env), episodes, seed=0)[0]
    begin = time.perf_counter()
    options = Options(chunk_steps=500, checkpoint_seconds=1e9)
    training = winkel.train(env, agent, seeds=seeds, until=until, options=options)
    seconds = time.perf_counter() - begin
    scores = [score(env, run.episodes) for run in training.runs]
    last = [run.episodes["return"][-max(episodes // 10, 1) :].mean() for run in training.runs]
    updates = sum(int(run.episodes["env_steps"][-1]) for run in training.runs)
    return (
        f"{env:16}{episodes:9}{score(env, random):9.3f}"
        f"{' '.join(f'{value:.3f}' for value in scores):>34}{random['return'].mean():15.2f}"
        f"{np.mean(last):11.2f}{updates / seconds:11,.0f}{seconds:9.1f}"
    )


def score(env: str, episodes: dict[str, np.ndarray]) -> float:
    experiment = env.partition("/")[0]
    return score_experiment(experiment, {env: log_of(experiment, episodes)})


if __name__ == "__main__":
    main()
