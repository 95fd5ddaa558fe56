"""Value iteration converges; the bonus shows errors that the one-step error does not."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel import bounds, operators
from winkel.figures import style
from winkel.files import Arrays
from winkel.mdps import FiniteMDP, Policy, deep_sea, oscillator, reward_cycle, uniform_policy
from winkel.projections import Categorical, Projection, Quantile
from winkel.types import Atoms

NUM_ATOMS = 61
"""Atoms of a quantile and of a categorical model."""
ITERATIONS = 60


def compute() -> dict[str, np.ndarray]:
    """Run both iterations of section 4."""
    return {**convergence(), **propagation()}


def convergence() -> dict[str, np.ndarray]:
    """Iterate η_{E,k+1} = Ω_M T^π η_{E,k} on a cycle, where it converges, and on an oscillator."""
    mdp = reward_cycle()
    policy = uniform_policy(mdp)
    ensemble = bounds.categorical_quantile_ensemble(mdp, NUM_ATOMS)
    truth = operators.return_distribution(mdp, policy, accuracy=0.01)
    steps, to_truth = [], []
    eta = operators.point_masses(np.zeros((mdp.num_states, mdp.num_actions)))
    for _ in range(ITERATIONS):
        found = operators.value_iteration(mdp, policy, ensemble, initial=eta, max_iterations=1)
        eta = found.mixture
        steps.append(found.trace[0])
        to_truth.append(operators.distances(eta, truth).max())
    residual = bounds.fixed_point_error_without_modulus(mdp, policy, ensemble, eta, truth)
    other = oscillator()
    pair = bounds.categorical_quantile_ensemble(other, 2)
    oscillation = operators.value_iteration(
        other, uniform_policy(other), pair, max_iterations=ITERATIONS
    )
    return {
        "steps": np.asarray(steps),
        "to_truth": np.asarray(to_truth),
        "residual_bound": np.asarray(residual.right.max()),
        "oscillation": oscillation.trace,
    }


def propagation(size: int = 10, num_atoms: int = NUM_ATOMS) -> dict[str, np.ndarray]:
    """Compare one-step error, bonus and true error of an estimate that knows part of deep sea.

    The estimate η̂ solves its own Bellman equation where the column is at most half the row, and is
    a random guess elsewhere. Its one-step error is then zero at every visited state, including the
    start, although its values there are wrong; the propagated bonus is positive there.
    """
    mdp = deep_sea(size)
    policy = uniform_policy(mdp)
    kinds: tuple[type[Projection], ...] = Quantile, Categorical
    ensemble = [kind.spanning(num_atoms, -1.0, 1.0) for kind in kinds]
    fixed_point = operators.value_iteration(mdp, policy, ensemble).mixture
    known = [column <= row / 2 for row in range(size) for column in range(row + 1)]
    visited = np.repeat(np.asarray([*known, True])[:, None], 2, axis=1)  # [S, A]; the end is known
    estimate = _partial_estimate(mdp, policy, ensemble, visited)
    error = operators.local_error(mdp, policy, ensemble, estimate)
    maps = {
        "visited": visited.astype(float),
        "local_error": error,
        "bonus": operators.bonus_iteration(mdp, policy, error).bonus,
        "true_error": operators.distances(estimate, fixed_point),
    }
    grids = {name: np.full((size, size), np.nan) for name in maps}  # NaN above the diagonal
    for name, values in maps.items():
        # The larger value of both actions; the last state is the end.
        grids[name][np.tril_indices(size)] = values[:-1].max(axis=1)
    return grids


def _partial_estimate(
    mdp: FiniteMDP, policy: Policy, ensemble: list[Projection], visited: np.ndarray
) -> Atoms:
    """Iterate where visited, starting from a random guess that stays elsewhere."""
    values = np.random.default_rng(0).normal(0.3, 0.2, visited.shape)
    values[-1] = 0.0  # the end is known to pay nothing
    guess = operators.project_mixture(ensemble, operators.point_masses(values))
    estimate, change = guess, np.inf
    while change > 1e-9:
        backup = operators.project_mixture(ensemble, operators.bellman(mdp, policy, estimate))
        pairs = zip(backup, guess, strict=True)
        following = Atoms(*(np.where(visited[..., None], new, old) for new, old in pairs))
        change = operators.distances(estimate, following).max()
        estimate = following
    return estimate


def draw(results: Arrays) -> Figure:
    """Draw distances of the iterates on the left, three maps of deep sea on the right."""
    figure = style.new_figure(height=1.85)
    panels = figure.subplots(1, 4, gridspec_kw={"width_ratios": [1.5, 1, 1, 1]})
    _draw_convergence(panels[0], results)
    maps = (
        ("b", r"$w_1(\hat\eta,\Omega_M\mathcal{T}^\pi\hat\eta)$", "local_error", "one-step error"),
        ("c", r"$\hat b$", "bonus", "propagated bonus"),
        ("d", r"$w_1(\hat\eta,\eta^\pi_E)$", "true_error", "true error"),
    )
    highest = max(np.nanmax(results[name]) for _, _, name, _ in maps)
    for axes, (letter, title, name, caption) in zip(panels[1:], maps, strict=True):
        image = axes.imshow(results[name], vmin=0.0, vmax=highest)
        # A line between visited cells and the others; cells above the diagonal are neither.
        row, column = np.nonzero(np.diff(results["visited"], axis=1) == -1)
        axes.vlines(column + 0.5, row - 0.5, row + 0.5, color="white", linewidth=0.9)
        axes.set_title(f"({letter}) {title}", pad=4)
        axes.set(xlabel=caption, xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=list(panels[1:]), shrink=0.75, pad=0.02, aspect=16)
    return figure


def _draw_convergence(axes: Axes, results: Arrays) -> None:
    k = np.arange(1, len(results["steps"]) + 1)
    lines = (
        (results["steps"], style.MIXTURE, "-", "next iterate"),
        (results["to_truth"], style.QUANTILE, "-", r"$\eta^\pi$"),
        (np.full(k.shape, results["residual_bound"]), style.QUANTILE, ":", r"bound on $\eta^\pi$"),
        (results["oscillation"], style.ACCENT, "--", "oscillator"),
    )
    for values, colour, dash, label in lines:
        axes.semilogy(k[: len(values)], values, dash, color=colour, linewidth=1.1, label=label)
    axes.set_ylim(bottom=1e-9)
    axes.set_title("(a) value iteration", pad=4)
    axes.set(xlabel="iteration $k$", ylabel=r"$\bar w_1$ from $\eta_{E,k}$ to")
    axes.legend(
        loc="lower left", handlelength=1.4, borderaxespad=0.1, labelspacing=0.25, fontsize=6.5
    )
