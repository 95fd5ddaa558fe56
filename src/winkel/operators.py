"""Exact distributional dynamic programming on finite MDPs.

Return distributions of all state-actions are one `Atoms` of shape [S, A, N] in NumPy's float64.
Projections and distances are the JAX functions that agents use, run at float64 whatever JAX is set
to, so that what is tested here is what trains there.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from winkel import distributions
from winkel.errors import InputError, require_integer
from winkel.mdps import FiniteMDP, Policy, check_policy
from winkel.projections import Projection
from winkel.types import Atoms

PerPair = Float[np.ndarray, "S A"]


def pair_kernel(mdp: FiniteMDP, policy: Policy) -> Float[np.ndarray, "S A S A"]:
    """P^π of eq. 2: Pr(S_1 = s', A_1 = a' | S_0 = s, A_0 = a)."""
    return mdp.transitions[..., None] * check_policy(mdp, policy)[None, None]


def expect_next(mdp: FiniteMDP, policy: Policy, values: PerPair) -> PerPair:
    """E[values(S_1, A_1) | S_0 = s, A_0 = a]."""
    return np.einsum("sate,te->sa", pair_kernel(mdp, policy), values)


def action_values(mdp: FiniteMDP, policy: Policy) -> PerPair:
    """Q^π, by solving the linear Bellman equation (eq. 1)."""
    mean_reward = np.sum(np.multiply(*mdp.rewards), axis=-1)
    return _solve_bellman(mdp, policy, mean_reward, mdp.gamma)


def _solve_bellman(mdp: FiniteMDP, policy: Policy, reward: PerPair, discount: float) -> PerPair:
    pairs = reward.size
    kernel = pair_kernel(mdp, policy).reshape(pairs, pairs)
    return np.linalg.solve(np.eye(pairs) - discount * kernel, reward.ravel()).reshape(reward.shape)


def bellman(mdp: FiniteMDP, policy: Policy, eta: Atoms) -> Atoms:
    """T^π η (eq. 3), exactly: an atom for each reward, successor and atom of η at the successor.

    [S, A, N] becomes [S, A, R · B · N], B the largest number of successors (s', a'). `merge` takes
    equal locations together, `compress` close ones.
    """
    return _receive_reward(mdp, _follow(mdp, policy, eta))


def _follow(mdp: FiniteMDP, policy: Policy, eta: Atoms) -> Atoms:
    """P^π η: the distribution of Z(S_1, A_1), as a mixture over the successors that can occur."""
    expected = (mdp.num_states, mdp.num_actions)
    if eta.locations.shape[:-1] != expected:
        raise InputError(
            f"need distributions of shape [{mdp.num_states}, {mdp.num_actions}, N], got "
            f"{list(eta.locations.shape)}"
        )
    pairs, num_atoms = mdp.num_states * mdp.num_actions, eta.locations.shape[-1]
    kernel = pair_kernel(mdp, policy).reshape(pairs, pairs)
    width = int((kernel > 0).sum(axis=1).max())
    likely = np.argsort(-kernel, axis=1, kind="stable")[:, :width]
    weight = np.take_along_axis(kernel, likely, axis=1)
    shape = (mdp.num_states, mdp.num_actions, width * num_atoms)
    locations = np.reshape(eta.locations, (pairs, num_atoms))[likely]
    probs = np.reshape(eta.probs, (pairs, num_atoms))[likely] * weight[..., None]
    return Atoms(locations=locations.reshape(shape), probs=probs.reshape(shape))


def _receive_reward(mdp: FiniteMDP, eta: Atoms) -> Atoms:
    """Distribution of R + γ Z with Z ~ η(s, a) independent of R."""
    shape = (mdp.num_states, mdp.num_actions, -1)
    reward = np.asarray(mdp.rewards.locations)[..., None]
    likelihood = np.asarray(mdp.rewards.probs)[..., None]
    locations = reward + mdp.gamma * np.asarray(eta.locations)[..., None, :]
    probs = likelihood * np.asarray(eta.probs)[..., None, :]
    return Atoms(locations=locations.reshape(shape), probs=probs.reshape(shape))


def merge(eta: Atoms) -> Atoms:
    """The same distributions with each location once and no atom of zero mass but padding."""
    return _rebuild(eta, lambda locations: locations)


def compress(eta: Atoms, tolerance: float) -> Atoms:
    """Distributions with fewer atoms, the same means, and w_p at most `tolerance` for every p.

    Atoms that share a cell of width `tolerance` move to their common mean.
    """
    if not tolerance > 0:
        raise InputError(f"need a tolerance > 0, got {tolerance}; merge() is the exact version")
    return _rebuild(eta, lambda locations: np.floor(locations / tolerance))


def _rebuild(eta: Atoms, cell: Callable[[np.ndarray], np.ndarray]) -> Atoms:
    """Replace the atoms of each cell by one at their mean, padded to a common power of two.

    The power of two keeps the number of shapes, and so of compilations, small.
    """
    batch, num_atoms = eta.locations.shape[:-1], eta.locations.shape[-1]
    merged = []
    for z, p in zip(
        np.reshape(eta.locations, (-1, num_atoms)),
        np.reshape(eta.probs, (-1, num_atoms)),
        strict=True,
    ):
        z, p = z[p > 0], p[p > 0]
        _, first, member = np.unique(cell(z), return_index=True, return_inverse=True)
        mass = np.bincount(member, weights=p)
        # About a location of the cell itself: exact where the cell holds a single location.
        offset = np.bincount(member, weights=p * (z - z[first][member])) / mass
        merged.append((z[first] + offset, mass))
    most = max(len(mass) for _, mass in merged)
    width = 1 << (most - 1).bit_length()
    locations, probs = np.zeros((2, len(merged), width))
    for row, (z, mass) in enumerate(merged):
        locations[row], probs[row, : len(z)] = z[-1], mass
        locations[row, : len(z)] = z
    return Atoms(locations=locations.reshape(*batch, width), probs=probs.reshape(*batch, width))


@jax.jit
def _project_rows(
    projections: tuple[Projection, ...], rows: Atoms
) -> tuple[tuple[Atoms, ...], Atoms]:
    members = tuple(jax.vmap(projection.project)(rows) for projection in projections)
    return members, distributions.mixture(members)


def project_ensemble(
    projections: Sequence[Projection], eta: Atoms
) -> tuple[tuple[Atoms, ...], Atoms]:
    """Π_1 η … Π_M η, and Ω_M η, at every (s, a)."""
    if not projections:
        raise InputError("need at least one projection, got none")
    batch = eta.locations.shape[:-1]
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tuple(projections))
        projected = _project_rows(exact, _as_rows(eta))
    return jax.tree.map(lambda x: np.asarray(x).reshape(*batch, -1), projected)


def project(projection: Projection, eta: Atoms) -> Atoms:
    """Π_i η at every (s, a)."""
    return project_ensemble([projection], eta)[0][0]


def project_mixture(projections: Sequence[Projection], eta: Atoms) -> Atoms:
    """Ω_M η = 1/M Σ_i Π_i η at every (s, a), eq. 7."""
    return project_ensemble(projections, eta)[1]


def mix(members: Sequence[Atoms]) -> Atoms:
    """Uniform mixture at every (s, a), in float64."""
    with jax.enable_x64(True):
        return Atoms(*(np.asarray(x) for x in distributions.mixture(members)))


def _as_rows(eta: Atoms) -> Atoms:
    return Atoms(*(np.reshape(x, (-1, x.shape[-1])) for x in eta))


def distances(first: Atoms, second: Atoms, p: float = 1.0) -> Float[np.ndarray, "*batch"]:
    """w_p(first, second)(s, a) at every (s, a), in float64: w_avg of these two."""
    batch = first.locations.shape[:-1]
    if batch != second.locations.shape[:-1]:
        raise InputError(
            f"need distributions of the same state-actions, got leading axes {list(batch)} and "
            f"{list(second.locations.shape[:-1])}"
        )
    return disagreements([first, second], p)


@partial(jax.jit, static_argnums=1)
def _disagreement_rows(members: list[Atoms], p: float) -> jax.Array:
    return jax.vmap(lambda *row: distributions.disagreement(row, p))(*members)


def disagreements(members: Sequence[Atoms], p: float = 1.0) -> Float[np.ndarray, "*batch"]:
    """w_avg(s, a) of an ensemble at every (s, a), in float64."""
    batch = members[0].locations.shape[:-1] if members else ()
    with jax.enable_x64(True):
        return np.asarray(_disagreement_rows([_as_rows(m) for m in members], p)).reshape(batch)


def means(eta: Atoms) -> Float[np.ndarray, "*batch"]:
    """E[Z] at every (s, a)."""
    return np.sum(np.multiply(*eta), axis=-1)


def point_masses(values: Float[np.ndarray, "*batch"]) -> Atoms:
    """δ_{values(s, a)} at every (s, a)."""
    return Atoms.of(values[..., None])


def return_distribution(mdp: FiniteMDP, policy: Policy, accuracy: float) -> Atoms:
    """η^π within `accuracy`, in w_p for every p, and with means Q^π.

    Iterates T^π from δ_{Q^π}, which is at most the length D of the return range away from η^π. Both
    halves of the accuracy pay for one error: γ^k D for stopping after k steps, and t/(1 − γ) for
    compressing by t a step. Episodes that end within those steps, with returns further apart than
    t, come out exactly.
    """
    if not accuracy > 0:
        raise InputError(f"need an accuracy > 0, got {accuracy}")
    gamma, (low, high) = mdp.gamma, mdp.return_range
    step_tolerance = 0.5 * accuracy * (1.0 - gamma) / (1.0 + gamma)
    eta = point_masses(action_values(mdp, policy))
    distance = high - low
    while distance > 0.5 * accuracy:
        followed = compress(_follow(mdp, policy, eta), step_tolerance)
        following = compress(_receive_reward(mdp, followed), step_tolerance)
        if all(
            x.shape == y.shape and np.allclose(x, y, rtol=0, atol=1e-14)
            for x, y in zip(eta, following, strict=True)
        ):
            break
        eta, distance = following, gamma * distance
    return eta


class ValueIteration(NamedTuple):
    """What `value_iteration` found."""

    mixture: Atoms
    """η_E, the last iterate."""
    members: tuple[Atoms, ...]
    """η_i, whose uniform mixture it is."""
    trace: Float[np.ndarray, "T"]
    """w̄_p between successive iterates."""
    converged: bool
    """Whether the last entry of the trace is within the tolerance."""


def value_iteration(
    mdp: FiniteMDP,
    policy: Policy,
    projections: Sequence[Projection],
    initial: Atoms | None = None,
    p: float = 1.0,
    tolerance: float = 1e-9,
    max_iterations: int = 2_000,
) -> ValueIteration:
    """η_{E,k+1} = Ω_M T^π η_{E,k} (eq. 8), until w̄_p between iterates is within the tolerance.

    Starts from point masses at 0 unless `initial`, η_{E,0}, is given. The quantile projection has
    no modulus in w_p, so that convergence is not guaranteed for every ensemble: `converged` says
    how it ended.
    """
    require_integer("max_iterations", max_iterations, at_least=1)
    eta = initial
    if eta is None:
        eta = point_masses(np.zeros((mdp.num_states, mdp.num_actions)))
    trace: list[float] = []
    while True:
        members, following = project_ensemble(projections, bellman(mdp, policy, eta))
        trace.append(float(distances(eta, following, p).max()))
        eta = following
        if trace[-1] <= tolerance or len(trace) >= max_iterations:
            return ValueIteration(eta, members, np.asarray(trace), trace[-1] <= tolerance)


def local_error(
    mdp: FiniteMDP, policy: Policy, projections: Sequence[Projection], eta: Atoms
) -> PerPair:
    """w_1(η, Ω_M T^π η)(s, a): the one-step error that the bonus propagates (Theorem 3)."""
    return distances(eta, project_mixture(projections, bellman(mdp, policy, eta)))


class BonusIteration(NamedTuple):
    """What `bonus_iteration` found, as `ValueIteration`."""

    bonus: PerPair
    """The last iterate."""
    trace: Float[np.ndarray, "T"]
    """Largest change in each iteration."""
    converged: bool
    limit: PerPair
    """The iteration's fixed point, from the linear equation."""


def bonus_iteration(
    mdp: FiniteMDP,
    policy: Policy,
    error: PerPair,
    modulus: float = 1.0,
    tolerance: float = 1e-9,
    max_iterations: int = 10_000,
) -> BonusIteration:
    """b_{k+1}(s, a) = error(s, a) + c̄_1 γ E[b_k(S_1, A_1)] from b_0 = 0 (section 4.2).

    With error = `local_error` and a modulus of at least c̄_1, its limit bounds w_1(η, η_E)(s, a)
    from above (Theorem 3). The default modulus, 1, is that of categorical projections; the quantile
    projection has none, and with it the limit is an estimate, not a bound (docs/theory.md).
    """
    require_integer("max_iterations", max_iterations, at_least=1)
    if not np.isfinite(error).all() or (error < 0).any():
        raise InputError(f"need finite errors >= 0, got {error}")
    if error.shape != (mdp.num_states, mdp.num_actions):
        raise InputError(
            f"need an error for each of {[mdp.num_states, mdp.num_actions]} state-actions, got "
            f"{list(error.shape)}"
        )
    discount = modulus * mdp.gamma
    if not 0.0 <= discount < 1.0:
        raise InputError(
            f"need modulus * gamma < 1 for the bonus to converge, got {modulus} * {mdp.gamma}"
        )
    bonus = np.zeros_like(error)
    trace: list[float] = []
    while len(trace) < max_iterations and (not trace or trace[-1] > tolerance):
        following = error + discount * expect_next(mdp, policy, bonus)
        trace.append(float(np.abs(following - bonus).max()))
        bonus = following
    return BonusIteration(
        bonus=bonus,
        trace=np.asarray(trace),
        converged=trace[-1] <= tolerance,
        limit=_solve_bellman(mdp, policy, error, discount),
    )
