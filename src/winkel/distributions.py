"""Exact functions of finite distributions: moments, quantiles, mixtures, distances.

Every function takes single distributions, `Atoms` of shape [N], and is batched with `jax.vmap`;
`mixture` and `bootstrap` (of one reward) also take leading axes. Atoms need neither be sorted nor
equally weighted nor equal in number.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from winkel.errors import InputError
from winkel.types import AnyArray, Atoms

Scalar = Float[Array, ""]

COMPARISONS = 2**16
"""Up to this many pairs of atoms, comparing all of them beats sorting; the pairs are never stored.
Beyond, functions sort."""


def require_single(*distributions: Atoms) -> None:
    """Raise unless each is one distribution, not a batch."""
    for atoms in distributions:
        shape, masses = jnp.shape(atoms.locations), jnp.shape(atoms.probs)
        if len(shape) != 1 or shape != masses:
            raise InputError(
                "need one distribution, locations and probs of the same shape [N], got "
                f"{list(shape)} and {list(masses)}; batch with jax.vmap"
            )


def _sort(atoms: Atoms) -> Atoms:
    order = jnp.argsort(jnp.asarray(atoms.locations))
    return Atoms(
        locations=jnp.asarray(atoms.locations)[order], probs=jnp.asarray(atoms.probs)[order]
    )


@jax.custom_jvp
def sorted_values(values: Float[AnyArray, " N"]) -> Float[Array, " N"]:
    """The values in increasing order, NaN last: as `jnp.sort`, but faster on a CPU.

    Floats of one sign are ordered as their bits are, so that integers can be sorted instead, for
    which XLA has a fast path.
    """
    values = jnp.asarray(values)
    integer = jnp.int32 if values.dtype.itemsize == 4 else jnp.int64
    magnitude = jnp.asarray(jnp.iinfo(integer).max, integer)

    def reflect(bits: Array) -> Array:
        return jnp.where(bits < 0, bits ^ magnitude, bits)

    bits = reflect(jax.lax.bitcast_convert_type(values, integer))
    return jax.lax.bitcast_convert_type(reflect(jnp.sort(bits)), values.dtype)


@sorted_values.defjvp
def _sorted_values_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    order = jnp.argsort(primals[0])
    return primals[0][order], tangents[0][order]


def mean(atoms: Atoms) -> Scalar:
    """E[Z]."""
    require_single(atoms)
    return jnp.sum(jnp.asarray(atoms.probs) * atoms.locations)


def variance(atoms: Atoms) -> Scalar:
    """Var[Z]."""
    return jnp.sum(jnp.asarray(atoms.probs) * (atoms.locations - mean(atoms)) ** 2)


def skewness(atoms: Atoms) -> Scalar:
    """Third standardised moment; NaN for a point mass, which has none."""
    return _standardised_moment(atoms, 3)


def kurtosis(atoms: Atoms) -> Scalar:
    """Fourth standardised moment: 3 for a normal distribution, NaN for a point mass."""
    return _standardised_moment(atoms, 4)


def _standardised_moment(atoms: Atoms, order: int) -> Scalar:
    require_single(atoms)
    held = jnp.asarray(atoms.probs) > 0
    lowest = jnp.min(atoms.locations, where=held, initial=jnp.inf)
    highest = jnp.max(atoms.locations, where=held, initial=-jnp.inf)
    spread_out = highest > lowest
    deviation = jnp.sqrt(jnp.where(spread_out, variance(atoms), 1.0))
    standardised = (atoms.locations - mean(atoms)) / deviation
    return jnp.where(spread_out, jnp.sum(atoms.probs * standardised**order), jnp.nan)


def partial_moments(
    atoms: Atoms, thresholds: Float[AnyArray, "*points"], order: int
) -> list[Float[Array, "*points"]]:
    """E[Z^j 1{Z ≤ x}] for j = 0 … order at every threshold x.

    The first is the cdf. Everything that integrates against a discrete distribution up to a point
    (quantile, Huber and expectile losses) is a combination of these, so that no [X, N] tensor is
    stored: small problems compare all pairs in one fused loop, large ones sort in O((N + X) log N).
    """
    require_single(atoms)
    thresholds = jnp.asarray(thresholds)
    if thresholds.size * len(atoms.locations) <= COMPARISONS:
        return _compared_moments(atoms, thresholds, order)
    sorted_atoms = _sort(atoms)
    rank = jnp.searchsorted(sorted_atoms.locations, thresholds, side="right")
    moments = []
    weights = sorted_atoms.probs
    for _ in range(order + 1):
        moments.append(jnp.concatenate([jnp.zeros((1,), weights.dtype), jnp.cumsum(weights)])[rank])
        weights = weights * sorted_atoms.locations
    return moments


def _compared_moments(
    atoms: Atoms, thresholds: Float[Array, "*points"], order: int
) -> list[Float[Array, "*points"]]:
    z, points = jnp.asarray(atoms.locations), thresholds.reshape(-1)
    weights = jnp.stack([jnp.asarray(atoms.probs) * z**power for power in range(order + 1)])
    moments = jax.lax.platform_dependent(
        z, weights, points, cpu=_sum_below_by_atom, default=_sum_below_fused
    )
    return [moment.reshape(thresholds.shape) for moment in moments]


def _sum_below_fused(
    z: Float[Array, " N"], weights: Float[Array, "J N"], points: Float[Array, " X"]
) -> Float[Array, "J X"]:
    """Σ_n weights[n] 1{z[n] ≤ x}: a GPU fuses comparison and sum."""
    below = z[None, :] <= points[:, None]
    return jnp.stack([jnp.sum(jnp.where(below, w[None, :], 0.0), axis=-1) for w in weights])


def _sum_below_by_atom(
    z: Float[Array, " N"], weights: Float[Array, "J N"], points: Float[Array, " X"]
) -> Float[Array, "J X"]:
    """The same, atom after atom: a CPU would store all pairs instead of fusing them."""

    def add_atom(total: Array, atom: tuple[Array, Array]) -> tuple[Array, None]:
        z_n, weights_n = atom
        return total + jnp.where(z_n <= points, 1.0, 0.0)[None, :] * weights_n[:, None], None

    start = jnp.zeros((len(weights), len(points)), weights.dtype)
    return jax.lax.scan(add_atom, start, (z, weights.T), unroll=4)[0]


def cdf(atoms: Atoms, x: Float[AnyArray, "*points"]) -> Float[Array, "*points"]:
    """F(x) = Pr[Z ≤ x], at any number of points."""
    return partial_moments(atoms, x, order=0)[0]


def quantile(atoms: Atoms, levels: Float[AnyArray, "*levels"]) -> Float[Array, "*levels"]:
    """F⁻¹(τ) = inf {x : F(x) ≥ τ}, at any number of levels τ in [0, 1].

    Always an atom of positive mass; level 0 gives the lowest. A level that F reaches up to rounding
    (64 ulp) counts as reached, so that a level which is exactly a cumulative sum has one quantile,
    whatever the order in which equal distributions are summed. NaN anywhere gives NaN.
    """
    require_single(atoms)
    sorted_atoms = _sort(atoms)
    cumulative = jnp.cumsum(sorted_atoms.probs)
    rounding = 64 * jnp.finfo(cumulative.dtype).eps
    found = sorted_atoms.locations[_first_reaching(cumulative, jnp.asarray(levels) - rounding)]
    broken = jnp.isnan(sorted_atoms.locations[-1] + cumulative[-1])  # NaN sorts last
    return jnp.where(broken, jnp.nan, found)


def _first_reaching(cumulative: Array, levels: Array) -> Array:
    """Index of the first atom whose cumulative mass reaches each level.

    Levels above the last sum, which rounding leaves near but not at one, count as that sum, and
    level 0 as the smallest positive one: both would else land on padding of zero mass.
    """
    reached = jnp.searchsorted(cumulative, jnp.minimum(levels, cumulative[-1]), side="left")
    lowest = jnp.searchsorted(cumulative, jnp.zeros((), cumulative.dtype), side="right")
    return jnp.maximum(reached, lowest)


def mixture(members: Sequence[Atoms]) -> Atoms:
    """The uniform mixture 1/M Σ_i member_i: concatenated atoms.

    Members may differ in their number of atoms, not in their leading axes.
    """
    if not members:
        raise InputError("need at least one member, got none")
    share = 1.0 / len(members)
    return Atoms(
        locations=jnp.concatenate([m.locations for m in members], axis=-1),
        probs=jnp.concatenate([share * jnp.asarray(m.probs) for m in members], axis=-1),
    )


def bootstrap(
    reward: Float[AnyArray, ""] | float, discount: Float[AnyArray, ""] | float, successor: Atoms
) -> Atoms:
    """Distribution of reward + discount · Z with Z ~ successor: the sampled operator T̂^π of eq. 10.

    `discount` includes γ and is 0 only at termination, so that truncation still bootstraps.
    """
    if jnp.ndim(reward) or jnp.ndim(discount):
        raise InputError(
            f"need one reward and one discount, got shapes {list(jnp.shape(reward))} and "
            f"{list(jnp.shape(discount))}; batch with jax.vmap"
        )
    return Atoms(
        locations=reward + discount * jnp.asarray(successor.locations), probs=successor.probs
    )


def wasserstein(first: Atoms, second: Atoms, p: float = 1.0) -> Scalar:
    """w_p between two distributions, exact for every order 1 ≤ p < ∞.

    w_1 integrates |F − G|; other orders integrate |F⁻¹ − G⁻¹|^p over the common refinement of both
    cumulative sums. Differentiable in locations and probabilities; where atoms of both coincide,
    the gradient is a subgradient, 0 at distance 0 for p > 1. A rounding error ε in a probability
    moves the distance by about ε^(1/p).
    """
    require_single(first, second)
    if not 1 <= p < float("inf"):
        raise InputError(f"need a Wasserstein order 1 <= p < inf, got {p}")
    if p == 1:
        gap, width = _cdf_gaps(first, second)
        return jnp.sum(jnp.abs(gap) * width)
    x, y = _sort(first), _sort(second)
    cumulative_x, cumulative_y = jnp.cumsum(x.probs), jnp.cumsum(y.probs)
    levels = jnp.sort(jnp.concatenate([cumulative_x, cumulative_y]))
    width = jnp.diff(levels, prepend=0.0)
    shift = (
        x.locations[_first_reaching(cumulative_x, levels)]
        - y.locations[_first_reaching(cumulative_y, levels)]
    )
    return _root(jnp.sum(width * jnp.abs(shift) ** p), p)


def cramer(first: Atoms, second: Atoms) -> Scalar:
    """Cramér distance ℓ_2 = (∫ (F − G)² dx)^(1/2), in which Π_C is an orthogonal projection."""
    require_single(first, second)
    gap, width = _cdf_gaps(first, second)
    return _root(jnp.sum(gap**2 * width), 2.0)


def _cdf_gaps(first: Atoms, second: Atoms) -> tuple[Array, Array]:
    """F − G on each interval between neighbouring atoms of both, and the interval's width."""
    both = Atoms(
        locations=jnp.concatenate([first.locations, second.locations]),
        probs=jnp.concatenate([first.probs, -jnp.asarray(second.probs)]),
    )
    if len(both.locations) ** 2 > COMPARISONS:
        return _sorted_gaps(both)
    return jax.lax.platform_dependent(both, cpu=_compared_gaps, default=_sorted_gaps)


def _sorted_gaps(both: Atoms) -> tuple[Array, Array]:
    """By one sort that carries the masses along."""
    both = _sort(both)
    return jnp.cumsum(both.probs)[:-1], jnp.diff(both.locations)


def _compared_gaps(both: Atoms) -> tuple[Array, Array]:
    """By a sort of the values alone, which is cheap on a CPU, and the masses below each."""
    z = sorted_values(both.locations)
    locations, probs = jnp.asarray(both.locations), jnp.asarray(both.probs)
    return _sum_below_by_atom(locations, probs[None], z[:-1])[0], jnp.diff(z)


def _root(cost: Scalar, p: float) -> Scalar:
    zero = cost <= 0  # false for NaN, which must come through
    return jnp.where(zero, 0.0, jnp.where(zero, 1.0, cost) ** (1.0 / p))


def disagreement(members: Sequence[Atoms], p: float = 1.0) -> Scalar:
    """w_avg = 1/(M(M−1)) Σ_{i,j} w_p(member_i, member_j), over ordered pairs, for any M ≥ 2."""
    count = len(members)
    if count < 2:
        raise InputError(f"need at least two members to disagree, got {count}")
    pairs = [(members[i], members[j]) for i in range(count) for j in range(i + 1, count)]
    return sum((wasserstein(x, y, p) for x, y in pairs), jnp.zeros(())) * (
        2 / (count * (count - 1))
    )
