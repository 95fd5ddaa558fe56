import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import expectile

from helpers import batched, mixed_atoms, random_atoms
from winkel import distributions as D
from winkel.errors import InputError
from winkel.projections import Expectile

NINE = Expectile(num_atoms=9)


def test_expectiles_equal_scipys(rng, float64):
    targets = mixed_atoms(rng, 15, 12)
    ours = batched(NINE.expectiles)(targets)
    theirs = [
        [expectile(z, alpha=float(level), weights=p) for level in NINE.levels]
        for z, p in zip(*targets, strict=True)
    ]
    np.testing.assert_allclose(ours, theirs, atol=1e-7)


def test_the_imputed_distribution_has_the_given_expectiles(rng, float64):
    """Rowland et al.'s condition for an imputation, exactly."""
    targets = mixed_atoms(rng, 25, 12)
    wanted = batched(NINE.expectiles)(targets)
    imputed = batched(NINE.decode)(wanted)
    np.testing.assert_allclose(batched(NINE.expectiles)(imputed), wanted, atol=1e-8)


def test_mean_and_range_are_kept(rng):
    targets = mixed_atoms(rng, 25, 12)
    projected = batched(NINE.project)(targets)
    np.testing.assert_allclose(batched(D.mean)(projected), batched(D.mean)(targets), atol=1e-5)
    ends = batched(lambda atoms: D.quantile(atoms, jnp.array([0.0, 1.0])))
    (low, high), (lowest, highest) = ends(projected).T, ends(targets).T
    assert (low >= lowest - 1e-3).all()
    assert (high <= highest + 1e-3).all()


def test_a_large_mean_does_not_round_the_projection_away(rng):
    """Values about 10,000, one apart, in float32: 101 expectiles, no worse than about 0."""
    projection = Expectile(num_atoms=101)
    targets = random_atoms(rng, 40, 202, low=-2.0, high=2.0)
    moved = targets._replace(locations=(targets.locations + 1e4).astype(np.float32))
    errors = batched(lambda t: D.wasserstein(projection.project(t), t))
    assert errors(targets).max() < 0.05
    assert errors(moved).max() < 0.06


def test_outputs_that_are_no_expectiles_stay_bounded(rng):
    theta = jnp.asarray(rng.normal(size=(200, 9)), jnp.float32)
    decoded = batched(NINE.decode)(theta)
    spread = jnp.max(theta, axis=1) - jnp.min(theta, axis=1)
    assert (np.abs(decoded.locations).max(axis=1) < 210 * spread).all()


def test_the_decoded_mean_is_the_middle_output_even_for_no_expectiles(rng):
    theta = jnp.asarray(rng.normal(size=(50, 9)), jnp.float32)
    means = batched(lambda t: D.mean(NINE.decode(t)))(theta)
    np.testing.assert_allclose(means, jnp.sort(theta, axis=1)[:, 4], atol=1e-4)


def test_loss_and_gradient_equal_autodiff_of_the_plain_definition(rng):
    targets = random_atoms(rng, 60, 23)
    theta = jnp.asarray(3 * rng.normal(size=(60, 9)), jnp.float32)

    def plain(theta, target):
        u = jnp.asarray(target.locations)[None] - theta[:, None]  # [K, N] on purpose
        tilt = jax.lax.stop_gradient(jnp.abs(NINE.levels[:, None] - (u <= 0)))
        return 0.5 * jnp.sum(jnp.asarray(target.probs)[None] * tilt * u**2)

    value, gradient = batched(jax.value_and_grad(NINE.loss))(theta, targets)
    expected, slope = batched(jax.value_and_grad(plain))(theta, targets)
    np.testing.assert_allclose(gradient, slope, atol=1e-5)
    np.testing.assert_allclose(value, expected, rtol=1e-4)


@pytest.mark.parametrize("num_atoms", [2, 4, 100])
def test_even_numbers_are_refused_because_the_mean_must_be_one_of_them(num_atoms):
    with pytest.raises(InputError, match=str(num_atoms)):
        Expectile(num_atoms=num_atoms)
