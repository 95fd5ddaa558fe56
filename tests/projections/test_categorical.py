import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import batched, mixed_atoms, random_atoms
from winkel import distributions as D
from winkel.errors import InputError
from winkel.projections import Categorical
from winkel.types import Atoms

GRID = Categorical(num_atoms=5, z_min=-1.0, z_max=1.0)


@pytest.mark.parametrize(
    ("location", "probs"),
    [
        (0.5, [0, 0, 0, 1, 0]),
        (0.625, [0, 0, 0, 0.75, 0.25]),
        (-0.9, [0.8, 0.2, 0, 0, 0]),
        (-7.0, [1, 0, 0, 0, 0]),
        (1.0, [0, 0, 0, 0, 1]),
        (7.0, [0, 0, 0, 0, 1]),
    ],
)
def test_a_point_mass_is_shared_between_its_neighbours(location, probs):
    """Eq. 5, by hand."""
    projected = GRID.project(Atoms.of([location]))
    np.testing.assert_allclose(projected.probs, probs, atol=1e-6)
    np.testing.assert_allclose(projected.locations, [-1, -0.5, 0, 0.5, 1])


@pytest.mark.parametrize("num_atoms", [2, 7, 101])
def test_the_mean_inside_the_support_is_kept(num_atoms, rng):
    grid = Categorical(num_atoms=num_atoms, z_min=-6.0, z_max=6.0)
    targets = mixed_atoms(rng, 50, 30)
    projected = batched(grid.project)(targets)
    np.testing.assert_allclose(batched(D.mean)(projected), batched(D.mean)(targets), atol=1e-5)


def test_it_is_the_closest_on_the_grid_in_cramer_distance(rng, float64):
    """Π_C is the orthogonal projection in ℓ_2 (Rowland et al. 2018)."""
    targets = random_atoms(rng, 40, 9, low=-1.0, high=1.0)
    ours = batched(GRID.project)(targets)
    others = GRID.decode(jnp.zeros(5))._replace(probs=jnp.asarray(rng.dirichlet(np.ones(5), 500)))
    others = Atoms(locations=jnp.tile(GRID.support, (500, 1)), probs=others.probs)
    best = batched(D.cramer)(ours, targets)
    rivals = batched(lambda t: batched(lambda o: D.cramer(o, t))(others))(targets)
    assert (best[:, None] <= rivals + 1e-12).all()


def test_the_gradient_equals_autodiff_of_the_plain_definition(rng):
    grid = Categorical(num_atoms=51, z_min=-6.0, z_max=6.0)
    targets = mixed_atoms(rng, 25, 23)
    theta = jnp.asarray(3 * rng.normal(size=(100, 51)), jnp.float32)

    def plain(theta, target):
        hats = jnp.clip(
            1.0 - jnp.abs(jnp.asarray(target.locations)[None] - grid.support[:, None]) / 0.24, 0.0
        )
        probs = jnp.sum(hats * jnp.asarray(target.probs)[None], axis=1)  # [K, N] on purpose
        q = jnp.exp(theta) / jnp.sum(jnp.exp(theta))
        held = probs > 0
        return jnp.sum(jnp.where(held, probs * jnp.log(jnp.where(held, probs, 1.0) / q), 0.0))

    value, gradient = batched(jax.value_and_grad(grid.loss))(theta, targets)
    expected, slope = batched(jax.value_and_grad(plain))(theta, targets)
    np.testing.assert_allclose(gradient, slope, atol=1e-5)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


def test_the_loss_is_zero_at_the_target_and_positive_elsewhere(rng):
    theta = jnp.asarray(rng.normal(size=5), jnp.float32)
    target = GRID.decode(theta)
    assert abs(GRID.loss(theta, target)) < 1e-6
    assert GRID.loss(theta + 3.0, target) == pytest.approx(0.0, abs=1e-6)  # softmax has one spare
    assert GRID.loss(theta.at[0].add(1.0), target) > 1e-3


def test_impossible_targets_keep_a_finite_loss():
    """Logits of −1e4 underflow the softmax; the loss must not."""
    theta = jnp.array([-1e4, 0.0, 0.0, 0.0, 0.0])
    value, gradient = jax.value_and_grad(GRID.loss)(theta, Atoms.of([-1.0]))
    assert np.isfinite(value)
    assert value > 9e3
    np.testing.assert_allclose(gradient[0], -1.0)


def test_supports_may_be_traced():
    def mean_of_projection(z_max):
        grid = Categorical(num_atoms=5, z_min=0.0, z_max=z_max)
        return D.mean(grid.project(Atoms.of([3.0])))

    means = jax.jit(batched(mean_of_projection))(jnp.array([2.0, 5.0]))
    np.testing.assert_allclose(means, [2.0, 3.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("z_min", "z_max", "shown"),
    [
        (1.0, 1.0, r"\[1.0, 1.0\]"),
        (2.0, -1.0, r"\[2.0, -1.0\]"),
        (0.0, float("inf"), "inf"),
        (float("nan"), 1.0, "nan"),
        ("1", "2", "'?1'?"),
        (1e8, 1e8 + 1, "float32 can tell apart"),
        (-1e39, 1e39, "float32 can tell apart"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_bad_supports_are_refused_with_their_ends(z_min, z_max, shown):
    with pytest.raises(InputError, match=shown):
        Categorical(num_atoms=5, z_min=z_min, z_max=z_max)
