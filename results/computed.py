"""Compute what the claims on theory and on the toy regression are judged by, into computed.npz.

python results/computed.py

- `toy/…` [seeds]: mean distance of the two models' quantile curves (fig. 1), where data are and
  elsewhere, for ten draws of data and networks.
- `residual/K` [MDPs]: the largest disagreement of the quantile and the categorical member at the
  fixed point of eq. 8 with K atoms, in random MDPs, as a share of the range of returns.
- `bound/smallest ratio` [MDPs]: the least ratio, over state-actions, of the bonus of Theorem 3 to
  the true error of a random estimate.
"""

from pathlib import Path

import numpy as np

from winkel import bounds, operators
from winkel.figures import toy
from winkel.files import save_arrays
from winkel.mdps import FiniteMDP
from winkel.runs.results import COMPUTED
from winkel.types import Atoms

SEEDS = 10
ATOMS = (11, 21, 41, 81)
TOLERANCE = 1e-7


def toy_distances(seed: int) -> tuple[float, float]:
    """The models' mean distance within the clusters of data, and outside of them."""
    found = toy.compute(seed)
    distance = np.abs(found["quantile"] - found["categorical"]).mean(axis=1)
    gap = np.abs(found["grid"][:, None] - found["x"][None]).min(axis=1)
    return float(distance[gap < 0.05].mean()), float(distance[gap >= 0.05].mean())


def random_case(seed: int) -> tuple[FiniteMDP, np.ndarray]:
    """An MDP of five states, two actions and three rewards, and a policy."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(5, 0.5), size=(5, 2))
    rewards = Atoms.of(rng.normal(size=(5, 2, 3)), rng.dirichlet(np.ones(3), size=(5, 2)))
    mdp = FiniteMDP(transitions=transitions, rewards=rewards, gamma=0.8)
    return mdp, rng.dirichlet(np.ones(2), size=5)


def residuals(seed: int) -> list[float]:
    """The largest disagreement at the fixed point by K, as a share of the range of returns."""
    mdp, policy = random_case(seed)
    low, high = mdp.return_range
    shares = []
    for num_atoms in ATOMS:
        ensemble = bounds.categorical_quantile_ensemble(mdp, num_atoms)
        found = operators.value_iteration(mdp, policy, ensemble, tolerance=TOLERANCE)
        assert found.converged, (seed, num_atoms)
        shares.append(float(operators.disagreements(found.members).max()) / (high - low))
    return shares


def smallest_ratio(seed: int) -> float:
    """The least ratio of bonus and true error for an estimate of random point masses."""
    mdp, policy = random_case(seed)
    ensemble = bounds.categorical_quantile_ensemble(mdp, ATOMS[-1])
    found = operators.value_iteration(mdp, policy, ensemble, tolerance=TOLERANCE)
    guesses = np.random.default_rng(seed).uniform(*mdp.return_range, size=(5, 2))
    estimate = operators.point_masses(guesses)
    error = operators.local_error(mdp, policy, ensemble, estimate)
    bonus = operators.bonus_iteration(mdp, policy, error).bonus
    return float((bonus / operators.distances(estimate, found.mixture)).min())


def main() -> None:
    """Compute everything; a minute or two."""
    seeds = range(SEEDS)
    inside, outside = np.transpose([toy_distances(seed) for seed in seeds])
    by_atoms = dict(zip(ATOMS, np.transpose([residuals(seed) for seed in seeds]), strict=True))
    arrays = {"toy/where data are": inside, "toy/elsewhere": outside}
    arrays |= {f"residual/{count}": shares for count, shares in by_atoms.items()}
    arrays["bound/smallest ratio"] = np.array([smallest_ratio(seed) for seed in seeds])
    save_arrays(Path(__file__).parent / COMPUTED, arrays)


if __name__ == "__main__":
    main()
