"""Value iteration on a cycle, and the bonus on a tabular deep sea that a learner knows in part."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from winkel import bounds, operators
from winkel.errors import InputError
from winkel.mdps import (
    FiniteMDP,
    Policy,
    deep_sea,
    deep_sea_cell,
    oscillator,
    reward_cycle,
    uniform_policy,
)
from winkel.projections import Categorical, Projection, Quantile
from winkel.types import Atoms


@dataclass(frozen=True, kw_only=True)
class IterationConfig:
    """Size of the sea, and K of a quantile and a categorical model."""

    size: int = 10
    num_atoms: int = 61
    iterations: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 2:
            raise InputError(f"need size >= 2, got {self.size}")
        if self.iterations < 1:
            raise InputError(f"need iterations >= 1, got {self.iterations}")


def iteration(
    config: IterationConfig, progress: Callable[[int, float], None] | None = None
) -> dict[str, np.ndarray]:
    """Both iterations of section 4, as the named arrays of the figure `iteration`."""
    return {**convergence(config, progress), **propagation(config)}


def convergence(
    config: IterationConfig, progress: Callable[[int, float], None] | None = None
) -> dict[str, np.ndarray]:
    """η_{E,k+1} = Ω_M T^π η_{E,k} on a cycle of random rewards, and on an MDP where it goes on.

    `progress` gets the iteration's number and its w̄_1 to the one before.
    """
    mdp = reward_cycle()
    policy = uniform_policy(mdp)
    ensemble = bounds.categorical_quantile_ensemble(mdp, config.num_atoms)
    truth = operators.return_distribution(mdp, policy, accuracy=0.01)
    steps, to_truth = [], []
    eta = operators.point_masses(np.zeros((mdp.num_states, mdp.num_actions)))
    for k in range(1, config.iterations + 1):
        found = operators.value_iteration(mdp, policy, ensemble, initial=eta, max_iterations=1)
        eta = found.mixture
        steps.append(found.trace[0])
        to_truth.append(operators.distances(eta, truth).max())
        if progress is not None:
            progress(k, steps[-1])
    residual = bounds.fixed_point_error_without_modulus(mdp, policy, ensemble, eta, truth)
    restless = oscillator()
    oscillation = operators.value_iteration(
        restless,
        uniform_policy(restless),
        bounds.categorical_quantile_ensemble(restless, 2),
        max_iterations=config.iterations,
    )
    return {
        "steps": np.asarray(steps),
        "to_truth": np.asarray(to_truth),
        "residual_bound": np.asarray(residual.right.max()),
        "oscillation": oscillation.trace,
    }


def propagation(config: IterationConfig) -> dict[str, np.ndarray]:
    """What an estimate of deep sea that is informed in part should be unsure of.

    The estimate η̂ solves its own Bellman equation wherever the column is at most half the row, and
    is a random guess elsewhere. Its one-step error is then zero at every visited state, the start
    included, although its values there are wrong; the propagated bonus knows.
    """
    mdp = deep_sea(config.size)
    policy = uniform_policy(mdp)
    ensemble = (
        Quantile(num_atoms=config.num_atoms),
        Categorical(num_atoms=config.num_atoms, z_min=-1.0, z_max=1.0),
    )
    fixed_point = operators.value_iteration(mdp, policy, ensemble).mixture
    visited = _visited(config.size)
    estimate = _partial_estimate(mdp, policy, ensemble, visited, config.seed)
    error = operators.local_error(mdp, policy, ensemble, estimate)
    maps = {
        "visited": visited.astype(float),
        "local_error": error,
        "bonus": operators.bonus_iteration(mdp, policy, error).bonus,
        "true_error": operators.distances(estimate, fixed_point),
    }
    return {name: _as_grid(values, config.size) for name, values in maps.items()}


def _visited(size: int) -> np.ndarray:
    """[S, A]: both actions of every cell whose column is at most half its row; and the end."""
    cells = [(row, column) for row in range(size) for column in range(row + 1)]
    seen = [column <= row / 2 for row, column in cells]
    return np.repeat(np.asarray([*seen, True])[:, None], 2, axis=1)


def _partial_estimate(
    mdp: FiniteMDP,
    policy: Policy,
    ensemble: tuple[Projection, ...],
    visited: np.ndarray,
    seed: int,
) -> Atoms:
    rng = np.random.default_rng(seed)
    values = rng.normal(0.3, 0.2, visited.shape)
    values[-1] = 0.0  # the end is known to pay nothing
    guess = operators.project_mixture(ensemble, operators.point_masses(values))
    estimate, change = guess, np.inf
    while change > 1e-9:
        backup = operators.project_mixture(ensemble, operators.bellman(mdp, policy, estimate))
        following = Atoms(
            *(
                np.where(visited[..., None], new, old)
                for new, old in zip(backup, guess, strict=True)
            )
        )
        change = operators.distances(estimate, following).max()
        estimate = following
    return estimate


def _as_grid(values: np.ndarray, size: int) -> np.ndarray:
    """The larger of both actions' values as a [size, size] picture, NaN above the diagonal."""
    grid = np.full((size, size), np.nan)
    for row in range(size):
        for column in range(row + 1):
            grid[row, column] = values[deep_sea_cell(row, column)].max()
    return grid
