import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import distributions as any_distribution
from helpers import largest_intermediate, random_atoms, row
from winkel import Atoms
from winkel import distributions as D
from winkel.errors import InputError

ORDERS = (1.0, 1.5, 2.0, 3.0)
distance = {p: jax.jit(lambda x, y, p=p: D.wasserstein(x, y, p)) for p in ORDERS}
quantile, cdf, cramer_distance = jax.jit(D.quantile), jax.jit(D.cdf), jax.jit(D.cramer)


def test_moments_equal_those_of_repeated_samples(rng):
    counts = rng.integers(1, 6, 7)
    locations = rng.normal(size=7)
    atoms = Atoms.of(locations, counts / counts.sum())
    samples = np.repeat(locations, counts)
    np.testing.assert_allclose(D.mean(atoms), samples.mean(), atol=1e-6)
    np.testing.assert_allclose(D.variance(atoms), samples.var(), atol=1e-6)
    np.testing.assert_allclose(D.skewness(atoms), scipy.stats.skew(samples), atol=1e-5)
    np.testing.assert_allclose(
        D.kurtosis(atoms), scipy.stats.kurtosis(samples, fisher=False), atol=1e-5
    )


def test_a_point_mass_has_no_skewness_and_no_kurtosis():
    atoms = Atoms.of([0.3, 0.3, 7.0], [0.4, 0.6, 0.0])
    assert np.isnan(D.skewness(atoms))
    assert np.isnan(D.kurtosis(atoms))
    assert D.variance(atoms) < 1e-12


def test_cdf_counts_the_mass_up_to_and_including_a_point():
    atoms = Atoms.of([2.0, 0.0, 2.0, 1.0], [0.1, 0.2, 0.3, 0.4])
    points = np.array([[-1.0, 0.0, 0.5], [1.0, 2.0, 3.0]])
    expected = np.array([[0.0, 0.2, 0.2], [0.6, 1.0, 1.0]])
    np.testing.assert_allclose(D.cdf(atoms, points), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("level", "expected"),
    [(0.0, -1.0), (0.2, -1.0), (0.21, 0.5), (0.6, 0.5), (0.61, 2.0), (1.0, 2.0)],
)
def test_quantile_is_the_lowest_location_that_reaches_the_level(level, expected):
    # Padding of zero mass on both sides must never be the answer.
    atoms = Atoms.of([9.0, 2.0, -1.0, 0.5, -9.0], [0.0, 0.4, 0.2, 0.4, 0.0])
    assert D.quantile(atoms, jnp.asarray(level)) == expected


def test_quantile_at_a_cumulative_sum_does_not_depend_on_rounding():
    """0.1 + 0.2 and 0.3 differ in the last bit; the quantile at 0.3 must not."""
    split = Atoms.of([0.0, 0.5, 1.0], [0.1, 0.2, 0.7])
    whole = Atoms.of([0.5, 1.0], [0.3, 0.7])
    for precise in (False, True):
        with jax.enable_x64(precise):
            assert D.quantile(split, jnp.asarray(0.3)) == D.quantile(whole, jnp.asarray(0.3)) == 0.5


@settings(max_examples=100)
@given(any_distribution(6), st.floats(0.001, 0.999))
def test_quantile_and_cdf_are_a_galois_pair(atoms, level):
    with jax.enable_x64(True):
        at = quantile(atoms, jnp.asarray(level))
        assert cdf(atoms, at) >= level - 1e-12
        assert cdf(atoms, at - 1e-9) <= level + 1e-12


def test_mixture_concatenates():
    first, second = Atoms.of([0.0, 1.0], [0.25, 0.75]), Atoms.of([5.0])
    uniform = D.mixture([first, second])
    np.testing.assert_allclose(uniform.locations, [0.0, 1.0, 5.0])
    np.testing.assert_allclose(uniform.probs, [0.125, 0.375, 0.5])


def test_bootstrap_shifts_and_scales():
    atoms = D.bootstrap(2.0, 0.5, Atoms.of([-2.0, 4.0], [0.3, 0.7]))
    np.testing.assert_allclose(atoms.locations, [1.0, 4.0])
    np.testing.assert_allclose(atoms.probs, [0.3, 0.7])
    ended = D.bootstrap(2.0, 0.0, Atoms.of([-2.0, 4.0]))
    np.testing.assert_allclose(ended.locations, [2.0, 2.0])


@pytest.mark.parametrize("p", ORDERS)
@settings(max_examples=60)
@given(any_distribution(5), any_distribution(7), any_distribution(3))
def test_wasserstein_is_a_metric(p, x, y, z):
    with jax.enable_x64(True):
        between = distance[p]
        # Equal cumulative sums that differ in the last bit move w_p by that bit to the power 1/p.
        rounding = 20 * 1e-15 ** (1 / p)
        assert 0.0 <= between(x, x) <= rounding
        assert between(x, y) >= 0.0
        np.testing.assert_allclose(between(x, y), between(y, x), atol=rounding)
        assert between(x, z) <= between(x, y) + between(y, z) + rounding


@pytest.mark.parametrize("p", ORDERS)
@settings(max_examples=60)
@given(
    any_distribution(5), any_distribution(7), st.floats(-4, 4, width=32), st.floats(-5, 5, width=32)
)
def test_wasserstein_scales_and_translates(p, x, y, scale, shift):
    with jax.enable_x64(True):
        moved = [D.bootstrap(shift, scale, atoms) for atoms in (x, y)]
        expected = abs(scale) * distance[p](x, y)
        np.testing.assert_allclose(distance[p](*moved), expected, atol=100 * 1e-15 ** (1 / p))
        np.testing.assert_allclose(
            distance[p](x, D.bootstrap(shift, 1.0, x)), abs(shift), atol=100 * 1e-15 ** (1 / p)
        )


@settings(max_examples=60)
@given(any_distribution(5), any_distribution(7))
def test_wasserstein_grows_with_its_order(x, y):
    with jax.enable_x64(True):
        values = [float(distance[p](x, y)) for p in ORDERS]
        assert all(low <= high + 1e-4 for low, high in itertools.pairwise(values))


@settings(max_examples=60)
@given(any_distribution(5), any_distribution(7))
def test_cramer_is_a_bounded_version_of_w1(x, y):
    """(F − G)² ≤ |F − G|, and by Jensen over the common range the other way."""
    with jax.enable_x64(True):
        w1, cramer = float(distance[1.0](x, y)), float(cramer_distance(x, y))
        assert cramer**2 <= w1 + 1e-12
        assert w1 <= cramer * np.sqrt(20.0) + 1e-9


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_wasserstein_is_differentiable_in_locations_and_probabilities(p, rng, float64):
    x = row(random_atoms(rng, 1, 5), 0)
    y = row(random_atoms(rng, 1, 8), 0)
    tangent = Atoms(locations=rng.normal(size=5), probs=rng.normal(size=5))
    tangent = tangent._replace(probs=tangent.probs - tangent.probs.mean())  # mass stays one

    @jax.jit
    def along(step):
        moved = Atoms(*(a + step * t for a, t in zip(x, tangent, strict=True)))
        return D.wasserstein(moved, y, p)

    numeric = (along(1e-6) - along(-1e-6)) / 2e-6
    np.testing.assert_allclose(jax.jit(jax.grad(along))(0.0), numeric, atol=1e-6)


def test_the_gradient_at_distance_zero_is_a_subgradient():
    """0 is one for every order; w_1 = Σ p |x − y| there has all of [−p, p]."""
    x = Atoms(locations=jnp.array([0.0, 1.0]), probs=jnp.array([0.5, 0.5]))

    def gradient(distance):
        return jax.jit(jax.grad(lambda z: distance(x._replace(locations=z), x)))(x.locations)

    assert (np.abs(gradient(D.wasserstein)) <= 0.5).all()
    for smooth in (lambda x, y: D.wasserstein(x, y, 2.0), D.cramer):
        np.testing.assert_array_equal(gradient(smooth), [0.0, 0.0])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_disagreement_averages_over_ordered_pairs(count, rng):
    members = [row(random_atoms(rng, 1, 3 + i % 2), 0) for i in range(count)]
    total = sum(distance[1.0](x, y) for x in members for y in members)
    np.testing.assert_allclose(
        jax.jit(D.disagreement)(members), total / (count * (count - 1)), rtol=1e-5
    )


def test_no_distance_of_large_laws_compares_every_atom_with_every_other(rng):
    x, y = (row(random_atoms(rng, 1, n), 0) for n in (512, 1024))
    for function in (
        D.wasserstein, lambda x, y: D.wasserstein(x, y, 2.0), D.cramer,
        lambda x, y: D.cdf(x, y.locations), lambda x, y: D.quantile(x, jnp.abs(y.probs)),
    ):  # fmt: skip
        assert largest_intermediate(function, x, y) <= 4 * (512 + 1024)


def test_a_compiled_distance_is_traced_once(rng):
    traces = []

    @jax.jit
    def between(x, y):
        traces.append(None)
        return jax.vmap(D.wasserstein)(x, y)

    for _ in range(3):
        between(random_atoms(rng, 4, 5), random_atoms(rng, 4, 6))
    assert len(traces) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_distance_hides_nan_or_infinity(value):
    broken = Atoms(locations=jnp.array([0.0, value]), probs=jnp.array([0.5, 0.5]))
    fine = Atoms.of([0.0, 1.0])
    for distance in (D.wasserstein, lambda x, y: D.wasserstein(x, y, 2.0), D.cramer):
        assert not distance(broken, fine) < 1e30
    if np.isnan(value):
        assert np.isnan(D.quantile(broken, jnp.array([0.1, 0.9]))).all()


def test_levels_beyond_the_mass_that_is_there_stop_at_the_last_held_atom():
    short = Atoms(locations=jnp.array([0.0, 1.0, 9.0]), probs=jnp.array([0.5, 0.49, 0.0]))
    assert D.quantile(short, jnp.asarray(1.0)) == 1.0


@pytest.mark.parametrize("p", [0.5, 0.0, -1.0, float("inf"), float("nan")])
def test_orders_below_one_and_infinite_ones_are_refused(p):
    atoms = Atoms.of([0.0])
    with pytest.raises(InputError, match=str(p)):
        D.wasserstein(atoms, atoms, p)


def test_batches_without_vmap_are_refused_with_their_shape():
    with pytest.raises(InputError, match=r"\[3, 2\].*vmap"):
        D.wasserstein(Atoms.of(np.zeros((3, 2))), Atoms.of([0.0]))
    with pytest.raises(InputError, match=r"\[3, 2\].*vmap"):
        D.mean(Atoms.of(np.zeros((3, 2))))


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda a: D.disagreement([a]), "got 1"),
        (lambda a: D.mixture([]), "got none"),
        (lambda a: D.bootstrap(np.zeros(2), np.zeros(2), a), r"\[2\] and \[2\]; batch"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_impossible_ensembles_are_refused(call, shown):
    with pytest.raises(InputError, match=shown):
        call(Atoms.of([0.0, 1.0]))


def test_sorted_values_are_those_of_sort_and_carry_gradients(rng):
    values = np.concatenate([rng.normal(size=60), [0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-40]])
    values = jnp.asarray(rng.permutation(values), jnp.float32)
    np.testing.assert_array_equal(jax.jit(D.sorted_values)(values), np.sort(values))
    assert np.isnan(D.sorted_values(jnp.array([np.nan, 1.0, -1.0]))[-1])
    weights = jnp.arange(5.0)
    gradient = jax.grad(lambda x: jnp.sum(weights * D.sorted_values(x)))
    np.testing.assert_array_equal(
        gradient(jnp.array([3.0, -1.0, 0.5, 2.0, -4.0])), [4.0, 1.0, 2.0, 3.0, 0.0]
    )
