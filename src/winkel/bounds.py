"""The paper's inequalities, both sides computed.

Each function returns the two sides of `left ≤ right` at its arguments. Moduli and projection errors
that a statement assumes are taken from the distributions at hand unless they are given, since Π_Q
has no finite modulus in any w_p with p < ∞ (a median can jump while w_p → 0) and Π_C has one, 1, in
w_1 alone. `docs/theory.md` tells where our constants differ from the printed ones and why.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from winkel import distributions
from winkel.errors import InputError
from winkel.mdps import FiniteMDP, Policy
from winkel.operators import (
    action_values,
    bellman,
    disagreements,
    distances,
    expect_next,
    means,
    mix,
    project,
    project_ensemble,
    project_mixture,
)
from winkel.projections import Categorical, Projection, Quantile
from winkel.types import Atoms


class Inequality(NamedTuple):
    """`left ≤ right`, entry by entry."""

    left: Float[np.ndarray, "*batch"]
    right: Float[np.ndarray, "*batch"]

    @property
    def slack(self) -> float:
        """How much room the tightest entry has; negative where the inequality is violated."""
        return float(np.min(self.right - self.left))

    def holds(self, rounding: float = 1e-9) -> bool:
        """Whether every entry holds up to an absolute rounding error."""
        return self.slack >= -rounding


def joint_modulus(moduli: Sequence[float], p: float = 1.0) -> float:
    """c̄_p = (1/M Σ c_i^p)^(1/p) of Proposition 1; the same mean makes d̄_p of Proposition 8."""
    if not len(moduli):
        raise InputError("need at least one modulus, got none")
    return float(np.mean(np.asarray(moduli, dtype=np.float64) ** p) ** (1.0 / p))


def empirical_modulus(projection: Projection, first: Atoms, second: Atoms, p: float = 1.0) -> float:
    """Largest ratio w_p(Π ν, Π ν')/w_p(ν, ν') over a batch of pairs: a lower bound on a modulus.

    Distances within rounding of zero count as zero: equal distributions in another order have ratio
    0, and a projection that tells them apart has no modulus.
    """
    # What w_p makes of float64's rounding of probabilities, on the scale of the locations.
    rounding = float(np.abs(first.locations).max()) * 1e-13 ** (1.0 / p)
    before = distances(first, second, p)
    after = distances(project(projection, first), project(projection, second), p)
    apart = before > rounding
    if (after[~apart] > rounding).any():
        return float("inf")
    return float(np.max(after[apart] / before[apart], initial=0.0))


def projection_error(projection: Projection, eta: Atoms, p: float = 1.0) -> float:
    """Largest w_p(Π ν, ν) over a batch of distributions: d_i of Propositions 8 and 9."""
    return float(distances(project(projection, eta), eta, p).max())


def _realised(
    projections: Sequence[Projection],
    given: Sequence[float] | None,
    measure: Callable[..., float],
    *arguments: Any,
) -> Sequence[float]:
    """The numbers given for all projections, else those measured."""
    if given is None:
        return [measure(projection, *arguments) for projection in projections]
    if len(given) != len(projections):
        raise InputError(
            f"need one number for each of {len(projections)} projections, got {len(given)}"
        )
    return given


def mixture_distance(first: Sequence[Atoms], second: Sequence[Atoms], p: float = 1.0) -> Inequality:
    """Lemma 4: w_p^p of two uniform mixtures is at most the mean of w_p^p between their members."""
    if len(first) != len(second):
        raise InputError(f"need as many members on both sides, got {len(first)} and {len(second)}")
    members = [distances(x, y, p) ** p for x, y in zip(first, second, strict=True)]
    return Inequality(
        left=distances(mix(first), mix(second), p) ** p, right=np.mean(members, axis=0)
    )


def bootstrap_distance(
    reward: float, discount: float, first: Atoms, second: Atoms, p: float = 1.0
) -> Inequality:
    """Lemma 7, an equality: w_p(r + γ Z, r + γ Z') = γ w_p(Z, Z')."""
    with jax.enable_x64(True):
        shifted, other = (distributions.bootstrap(reward, discount, nu) for nu in (first, second))
        return Inequality(
            left=distances(shifted, other, p), right=abs(discount) * distances(first, second, p)
        )


def contraction(
    mdp: FiniteMDP,
    policy: Policy,
    projections: Sequence[Projection],
    first: Atoms,
    second: Atoms,
    p: float = 1.0,
    moduli: Sequence[float] | None = None,
) -> Inequality:
    """Proposition 1: w̄_p(Ω_M T^π η, Ω_M T^π η') ≤ c̄_p γ w̄_p(η, η').

    Without `moduli`, those that the projections show between T^π η and T^π η'.
    """
    target, other_target = (bellman(mdp, policy, eta) for eta in (first, second))
    moduli = _realised(projections, moduli, empirical_modulus, target, other_target, p)
    projected, other = (project_mixture(projections, eta) for eta in (target, other_target))
    apart = distances(first, second, p).max()
    return Inequality(
        left=distances(projected, other, p).max(),
        right=np.asarray(joint_modulus(moduli, p) * mdp.gamma * apart if apart > 0 else 0.0),
    )


def optimism(mdp: FiniteMDP, policy: Policy, estimate: Atoms, truth: Atoms) -> Inequality:
    """Proposition 2: Q^π ≤ Q̂ + w_1(η̂, η^π). Q^π is solved for, not read off `truth`."""
    return Inequality(
        left=action_values(mdp, policy), right=means(estimate) + distances(estimate, truth)
    )


def error_propagation(
    mdp: FiniteMDP,
    policy: Policy,
    projections: Sequence[Projection],
    estimate: Atoms,
    fixed_point: Atoms,
    moduli: Sequence[float] | None = None,
) -> Inequality:
    """Theorem 3: w_1(η̂, η_E) ≤ w_1(η̂, Ω_M T^π η̂) + c̄_1 γ E[w_1(η̂, η_E)(S_1, A_1)].

    Without `moduli`, those that the projections show between T^π η̂ and T^π η_E.
    """
    target, other = (bellman(mdp, policy, eta) for eta in (estimate, fixed_point))
    modulus = joint_modulus(_realised(projections, moduli, empirical_modulus, target, other))
    error = distances(estimate, fixed_point)
    one_step = distances(estimate, project_mixture(projections, target))
    return Inequality(
        left=error, right=one_step + modulus * mdp.gamma * expect_next(mdp, policy, error)
    )


def fixed_point_error(
    mdp: FiniteMDP,
    policy: Policy,
    projections: Sequence[Projection],
    fixed_point: Atoms,
    truth: Atoms,
    p: float = 1.0,
    moduli: Sequence[float] | None = None,
    errors: Sequence[float] | None = None,
) -> Inequality:
    """Proposition 8: w_p(η_E, η^π)(s, a) ≤ d̄_p/(1 − c̄_p γ); infinite where c̄_p γ ≥ 1.

    Without `errors`, those of projecting η^π; without `moduli`, those between T^π η_E and η^π.
    """
    target = bellman(mdp, policy, fixed_point)
    moduli = _realised(projections, moduli, empirical_modulus, target, truth, p)
    error = joint_modulus(_realised(projections, errors, projection_error, truth, p), p)
    left = distances(fixed_point, truth, p)
    room = 1.0 - joint_modulus(moduli, p) * mdp.gamma
    return Inequality(left=left, right=np.full(left.shape, error / room if room > 0 else np.inf))


def fixed_point_error_without_modulus(
    mdp: FiniteMDP,
    policy: Policy,
    projections: Sequence[Projection],
    fixed_point: Atoms,
    truth: Atoms,
    p: float = 1.0,
    errors: Sequence[float] | None = None,
) -> Inequality:
    """w_p(η_E, η^π)(s, a) ≤ d̄_p/(1 − γ), for any projections, contracting or not.

    Split at T^π η_E instead of Ω_M η^π: the projections then act on one distribution only, and the
    contraction of T^π alone does the rest. Never weaker than Proposition 8 with c̄_p ≥ 1 and the
    same d̄_p. Without `errors`, those of projecting T^π η_E.
    """
    target = bellman(mdp, policy, fixed_point)
    error = joint_modulus(_realised(projections, errors, projection_error, target, p), p)
    left = distances(fixed_point, truth, p)
    return Inequality(left=left, right=np.full(left.shape, error / (1.0 - mdp.gamma)))


def residual_disagreement(
    mdp: FiniteMDP,
    policy: Policy,
    projections: Sequence[Projection],
    fixed_point: Atoms,
    p: float = 1.0,
    errors: Sequence[float] | None = None,
) -> Inequality:
    """Proposition 9: w_avg(s, a) ≤ 2M/(M − 1) d̄ of the members Π_i T^π η_E at the fixed point.

    Without `errors`, those of projecting T^π η_E. `sharp_residual_disagreement` saves the factor.
    """
    sharp = sharp_residual_disagreement(mdp, policy, projections, fixed_point, p, errors)
    count = len(projections)
    return Inequality(left=sharp.left, right=sharp.right * count / (count - 1))


def sharp_residual_disagreement(
    mdp: FiniteMDP,
    policy: Policy,
    projections: Sequence[Projection],
    fixed_point: Atoms,
    p: float = 1.0,
    errors: Sequence[float] | None = None,
) -> Inequality:
    """w_avg(s, a) ≤ 2 d̄: Proposition 9 without charging a member for disagreeing with itself."""
    target = bellman(mdp, policy, fixed_point)
    error = np.mean(_realised(projections, errors, projection_error, target, p))
    left = disagreements(project_ensemble(projections, target)[0], p)
    return Inequality(left=left, right=np.full(left.shape, 2.0 * error))


def categorical_error(projection: Categorical, eta: Atoms) -> Inequality:
    """Lemma 10: w_1(Π_C ν, ν) ≤ the spacing (z_K − z_1)/(K − 1), for ν inside [z_1, z_K]."""
    low, high = float(projection.z_min), float(projection.z_max)
    held = np.asarray(eta.locations)[np.asarray(eta.probs) > 0]
    if held.min() < low or held.max() > high:
        raise InputError(
            f"need a distribution inside the support [{low}, {high}], got locations in "
            f"[{held.min()}, {held.max()}]"
        )
    left = distances(project(projection, eta), eta)
    return Inequality(
        left=left, right=np.full(left.shape, (high - low) / (projection.num_atoms - 1))
    )


def quantile_error(projection: Quantile, eta: Atoms) -> Inequality:
    """Lemma 11: w_1(Π_Q ν, ν) ≤ (z_max − z_min)/K, for ν on [z_min, z_max]: its own range here."""
    held = np.asarray(eta.probs) > 0
    z = np.asarray(eta.locations)
    highest = np.max(z, axis=-1, where=held, initial=-np.inf)
    lowest = np.min(z, axis=-1, where=held, initial=np.inf)
    return Inequality(
        left=distances(project(projection, eta), eta),
        right=(highest - lowest) / projection.num_atoms,
    )


def categorical_quantile_disagreement(
    mdp: FiniteMDP, policy: Policy, num_atoms: int, fixed_point: Atoms
) -> Inequality:
    """Corollary 12 with the true spacing: w_avg ≤ 2 (R_max − R_min)/(1 − γ) (1/K + 1/(K − 1)).

    For Π_Q and Π_C with K atoms each on the whole return range. Printed with 4/K for the last
    factor: still true, though for a reason other than the given one (see docs/theory.md).
    """
    low, high = mdp.return_range
    projections = categorical_quantile_ensemble(mdp, num_atoms)
    errors = [(high - low) / num_atoms, (high - low) / (num_atoms - 1)]
    return residual_disagreement(mdp, policy, projections, fixed_point, errors=errors)


def categorical_quantile_ensemble(mdp: FiniteMDP, num_atoms: int) -> tuple[Quantile, Categorical]:
    """Π_Q and Π_C with K atoms each, on an MDP's return range: the ensemble of Corollary 12."""
    low, high = mdp.return_range
    return (
        Quantile(num_atoms=num_atoms),
        Categorical(num_atoms=num_atoms, z_min=low, z_max=high),
    )
