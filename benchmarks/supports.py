"""Claim: supports that differ share one compiled program, because their ends are pytree leaves.

Value iteration on MDPs with a support each, against the same with JAX's caches cleared before every
MDP, which is what a support in a static argument amounts to.

    python benchmarks/supports.py [--mdps 10]
"""

import argparse
import time

import jax

from winkel import bounds, mdps, operators


def seconds(num_mdps, recompile):
    start = time.perf_counter()
    for seed in range(num_mdps):
        if recompile:
            jax.clear_caches()
        mdp = mdps.random_mdp(seed)
        ensemble = bounds.categorical_quantile_ensemble(mdp, num_atoms=9)
        operators.value_iteration(mdp, mdps.uniform_policy(mdp), ensemble)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mdps", type=int, default=10)
    options = parser.parse_args()
    seconds(1, recompile=False)
    shared, each = (seconds(options.mdps, recompile) for recompile in (False, True))
    print(
        f"{options.mdps} MDPs: one program {shared:.2f} s, one for each {each:.2f} s, "
        f"ratio {each / shared:.1f}"
    )


if __name__ == "__main__":
    main()
