"""Time N trials of a search in lanes, and the same N one after the other.

Both make the same updates, without pruning; each is run once before it is timed, so compilation is
not part of either time. Prints both times and their ratio.

    python benchmarks/search.py                     # a CPU: 8 trials on deep sea 6
    python benchmarks/search.py --alone 8           # an accelerator: 64 trials, deep sea 20
"""

import argparse
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from winkel.search.population import Population
from winkel.search.problem import Problem
from winkel.search.space import Space, parse_environment
from winkel.search.study import open_study


def main(arguments: list[str] | None = None) -> float:
    small = jax.default_backend() == "cpu"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=8 if small else 64)
    parser.add_argument("--agent", default="pe_dqn")
    parser.add_argument("--env", default="deep_sea:size=6@40" if small else "deep_sea:size=20@500")
    parser.add_argument("--hidden", type=int, default=64 if small else 512)
    parser.add_argument("--alone", type=int, help="trials that are timed one after the other")
    options = parser.parse_args(arguments)
    problem = Problem(
        agent=options.agent,
        space=Space(
            parameters={"learning_rate": np.geomspace(5e-5, 1e-3, options.trials).tolist()},
            environments=(parse_environment(options.env),),
            prune=False,
            preset=None,
        ),
        fields={"hidden": (options.hidden,)},
    )
    alone = options.alone or options.trials
    print(f"{options.trials} trials of {options.agent} in {options.env}, {jax.devices()[0]}")
    together = measured(problem, options.trials, lanes=options.trials)
    print(f"in {options.trials} lanes: {together:.1f} s")
    one_by_one = measured(problem, alone, lanes=1) * options.trials / alone
    print(f"one after the other: {one_by_one:.1f} s ({alone} timed)")
    print(f"ratio: {one_by_one / together:.1f}")
    return one_by_one / together


def measured(problem: Problem, trials: int, lanes: int) -> float:
    """Seconds of a search whose programs are compiled."""
    searched(problem, min(lanes, trials), lanes)
    begin = time.perf_counter()
    searched(problem, trials, lanes)
    return time.perf_counter() - begin


def searched(problem: Problem, trials: int, lanes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        study = open_study(Path(folder), None, "bench", problem, resume=False)
        progress = Population(problem=problem, study=study, wanted=trials, lanes=lanes).run()
        assert progress.trials["complete"] == trials, progress


if __name__ == "__main__":
    main()
