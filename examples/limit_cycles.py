"""Does value iteration with a quantile and a categorical projection converge? Not for every K.

python examples/limit_cycles.py --atoms 5 11 21 31 41 45 51 61 71 81 101
"""

import argparse

from winkel import bounds, mdps, operators


def main(argv=None):
    """Print for each K whether eq. 8 converges on `mdps.reward_cycle`, and its last step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoms", type=int, nargs="+", default=[21, 41, 61])
    options = parser.parse_args(argv)
    mdp = mdps.reward_cycle()
    policy = mdps.uniform_policy(mdp)
    for num_atoms in options.atoms:
        ensemble = bounds.categorical_quantile_ensemble(mdp, num_atoms)
        found = operators.value_iteration(mdp, policy, ensemble, max_iterations=300)
        verdict = f"converged after {len(found.trace)}"
        if not found.converged:
            verdict = f"period {period(mdp, policy, ensemble, found.mixture)}"
        print(f"K = {num_atoms:3d}: {verdict}, last step {found.trace[-1]:.1e}")


def period(mdp, policy, ensemble, eta, longest=24):
    """After how many iterations η comes back to itself, if within `longest`."""
    current = eta
    for count in range(1, longest + 1):
        current = operators.value_iteration(
            mdp, policy, ensemble, initial=current, max_iterations=1
        ).mixture
        if operators.distances(eta, current).max() < 1e-9:
            return count
    return f"above {longest}"


if __name__ == "__main__":
    main()
