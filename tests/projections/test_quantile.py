import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import batched, mixed_atoms, random_atoms
from winkel import distributions as D
from winkel.errors import InputError
from winkel.projections import Quantile
from winkel.types import Atoms


def test_levels_are_midpoints():
    np.testing.assert_allclose(Quantile(num_atoms=4).levels, [0.125, 0.375, 0.625, 0.875])


def test_projection_reads_the_inverse_cdf_at_the_midpoints():
    target = Atoms.of([3.0, -1.0, 0.0], [0.5, 0.2, 0.3])
    np.testing.assert_allclose(
        Quantile(num_atoms=4).project(target).locations, [-1.0, 0.0, 3.0, 3.0]
    )


@pytest.mark.parametrize("num_atoms", [2, 5, 16])
def test_no_candidate_is_closer_in_w1(num_atoms, rng, float64):
    projection = Quantile(num_atoms=num_atoms)
    targets = mixed_atoms(rng, 10, 13)
    ours = batched(projection.project)(targets)
    best = batched(D.wasserstein)(ours, targets)
    anywhere = rng.uniform(-5, 5, (40, 300, num_atoms))
    nearby = np.asarray(ours.locations)[:, None] + 0.1 * rng.normal(size=(40, 300, num_atoms))
    candidates = jnp.asarray(np.concatenate([anywhere, nearby], axis=1))
    rivals = batched(
        lambda target, thetas: batched(
            lambda theta: D.wasserstein(projection.decode(theta), target)
        )(thetas)
    )(targets, candidates)
    assert rivals.shape == (40, 600)
    assert (best[:, None] <= rivals + 1e-12).all()


def plain_loss(theta, target, levels, width):
    """Σ_k Σ_n p_n ρ_{τ_k}(z_n − θ_k), pairwise."""
    u = jnp.asarray(target.locations)[None] - theta[:, None]  # [K, N] on purpose
    size = jnp.abs(u)
    if width:
        size = jnp.where(size <= width, 0.5 * u**2, width * (size - 0.5 * width)) / width
    tilt = jnp.abs(levels[:, None] - (u <= 0))
    return jnp.sum(jnp.asarray(target.probs)[None] * jax.lax.stop_gradient(tilt) * size)


@pytest.mark.parametrize("width", [0.0, 0.3, 1.0, 20.0])
def test_loss_and_gradient_equal_autodiff_of_the_plain_definition(width, rng):
    projection = Quantile(num_atoms=21, huber_width=width)
    targets = mixed_atoms(rng, 25, 23)
    theta = jnp.asarray(3 * rng.normal(size=(100, 21)), jnp.float32)
    value, gradient = batched(jax.value_and_grad(projection.loss))(theta, targets)
    expected, slope = batched(
        jax.value_and_grad(lambda t, a: plain_loss(t, a, projection.levels, width))
    )(theta, targets)
    np.testing.assert_allclose(gradient, slope, atol=1e-5)
    np.testing.assert_allclose(value, expected, rtol=1e-4)


def test_an_output_on_an_atom_counts_it_as_below():
    """The paper's indicator is 1{u ≤ 0}: F(θ_k) − τ_k with F right-continuous."""
    target = Atoms.of([0.0, 1.0, 2.0, 3.0])
    theta = jnp.array([0.0, 1.0, 2.0, 3.0])
    projection = Quantile(num_atoms=4)
    np.testing.assert_allclose(
        jax.grad(projection.loss)(theta, target),
        np.array([0.25, 0.5, 0.75, 1.0]) - projection.levels,
        atol=1e-6,
    )


def test_large_values_do_not_cancel(rng):
    """Rewards of a thousand, as in the scaled environments: moments are taken about the mean."""
    projection = Quantile(num_atoms=21, huber_width=1.0)
    target = Atoms.of(5_000.0 + rng.normal(size=40))
    theta = jnp.asarray(5_000.0 + rng.normal(size=21), jnp.float32)
    gradient = jax.grad(projection.loss)(theta, target)
    with jax.enable_x64(True):
        exact = jax.grad(projection.loss)(jnp.asarray(theta, jnp.float64), target)
    np.testing.assert_allclose(gradient, exact, atol=1e-3)


def test_projection_has_no_modulus_in_w1(float64):
    """A median jumps while w_1 → 0: no constant c with w_1(Π ν, Π ν') ≤ c w_1(ν, ν')."""
    projection = Quantile(num_atoms=3)
    ratios = []
    for mass in (1e-2, 1e-4, 1e-6):
        first = Atoms.of([0.0, 1.0], [0.5 - mass, 0.5 + mass])
        second = Atoms.of([0.0, 1.0], [0.5 + mass, 0.5 - mass])
        ratios.append(
            D.wasserstein(projection.project(first), projection.project(second))
            / D.wasserstein(first, second)
        )
    assert ratios[0] > 10
    assert ratios[2] > 1e5


def test_projection_does_not_expand_sorted_quantiles(rng, float64):
    """In w_∞ it is a non-expansion (Dabney et al. 2018), which is why Π_Q T^π alone converges."""
    first = random_atoms(rng, 200, 9)
    shift = rng.uniform(-0.5, 0.5, first.locations.shape)
    second = first._replace(locations=first.locations + shift)
    projected = [batched(Quantile(num_atoms=7).project)(x).locations for x in (first, second)]
    assert np.abs(projected[0] - projected[1]).max() <= np.abs(shift).max() + 1e-12


@pytest.mark.parametrize("width", [-1.0, float("nan"), float("inf")])
def test_bad_huber_widths_are_refused_with_their_value(width):
    with pytest.raises(InputError, match=str(width)):
        Quantile(num_atoms=5, huber_width=width)
