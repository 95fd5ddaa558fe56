"""What holds for every entry of PROJECTIONS."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers import batched, largest_intermediate, mixed_atoms, random_atoms, row
from winkel import distributions as D
from winkel.errors import InputError
from winkel.projections import PROJECTIONS
from winkel.types import Atoms

NUM_ATOMS = 11
ALL = pytest.mark.parametrize("projection", PROJECTIONS.values(), ids=PROJECTIONS, indirect=True)


@pytest.fixture
def projection(request):
    return request.param.spanning(NUM_ATOMS, -6.0, 6.0)


@pytest.fixture
def targets(rng):
    return mixed_atoms(rng, 32, 23)


def assert_distributions(atoms):
    np.testing.assert_allclose(jnp.sum(atoms.probs, axis=-1), 1.0, atol=1e-5)
    assert (np.asarray(atoms.probs) >= 0).all()
    assert np.isfinite(atoms.locations).all()


@ALL
def test_any_outputs_decode_to_a_distribution(projection, rng):
    assert projection.num_atoms == NUM_ATOMS
    theta = np.concatenate(
        [scale * rng.normal(size=(20, NUM_ATOMS)) for scale in (0.01, 1.0, 100.0)]
        + [np.zeros((1, NUM_ATOMS)), np.full((1, NUM_ATOMS), 3.0)]
    )
    decoded = batched(projection.decode)(jnp.asarray(theta, jnp.float32))
    assert decoded.locations.shape == (62, NUM_ATOMS)
    assert_distributions(decoded)


@ALL
def test_any_target_projects_to_a_distribution_in_its_range(projection, targets):
    projected = batched(projection.project)(targets)
    assert_distributions(projected)
    reached = batched(lambda atoms: D.quantile(atoms, jnp.array([0.0, 1.0])))
    np.testing.assert_array_less(-6.0 - 1e-4, reached(projected)[:, 0])
    np.testing.assert_array_less(reached(projected)[:, 1], 6.0 + 1e-4)


@ALL
@pytest.mark.parametrize(("precise", "tolerance"), [(False, 2e-4), (True, 1e-9)])
def test_projecting_twice_changes_nothing(projection, targets, precise, tolerance):
    with jax.enable_x64(precise):
        once = batched(projection.project)(targets)
        twice = batched(projection.project)(once)
        assert batched(D.wasserstein)(once, twice).max() < tolerance


@ALL
def test_order_and_splitting_of_atoms_do_not_matter(projection, rng, float64):
    target = row(random_atoms(rng, 1, 9), 0)
    order = rng.permutation(9)
    split = Atoms(
        locations=np.concatenate([target.locations[order]] * 2 + [[77.0]]),
        probs=np.concatenate([target.probs[order] / 2] * 2 + [[0.0]]),
    )
    theta = jnp.asarray(rng.normal(size=NUM_ATOMS))
    project, loss = jax.jit(projection.project), jax.jit(projection.loss)
    assert jax.jit(D.wasserstein)(project(target), project(split)) < 1e-9
    np.testing.assert_allclose(loss(theta, target), loss(theta, split), rtol=1e-9)


@ALL
def test_gradient_descent_on_the_loss_ends_at_the_projection(projection, rng):
    targets = random_atoms(rng, 8, 23)
    optimiser = optax.adam(optax.cosine_decay_schedule(0.1, 4_000))

    def fit(theta, target):
        def step(carry, _):
            theta, state = carry
            updates, state = optimiser.update(jax.grad(projection.loss)(theta, target), state)
            return (optax.apply_updates(theta, updates), state), None

        return jax.lax.scan(step, (theta, optimiser.init(theta)), length=4_000)[0][0]

    start = jnp.asarray(rng.normal(size=(8, NUM_ATOMS)), jnp.float32)
    fitted = batched(projection.decode)(batched(fit)(start, targets))
    distances = batched(D.wasserstein)(fitted, batched(projection.project)(targets))
    started = batched(D.wasserstein)(
        batched(projection.decode)(start), batched(projection.project)(targets)
    )
    assert started.min() > 0.3
    assert distances.max() < 0.02


@ALL
def test_the_gradient_is_linear_in_the_target(projection, rng):
    """So that the mean gradient over sampled targets is the gradient at their mixture."""
    first, second = (row(random_atoms(rng, 1, n), 0) for n in (5, 9))
    theta = jnp.asarray(rng.normal(size=NUM_ATOMS), jnp.float32)
    gradient = jax.jit(jax.grad(projection.loss))
    shares = [0.3 * first.probs, 0.7 * second.probs]
    mixture = Atoms.of(np.concatenate([first.locations, second.locations]), np.concatenate(shares))
    mixed = gradient(theta, mixture)
    np.testing.assert_allclose(
        mixed, 0.3 * gradient(theta, first) + 0.7 * gradient(theta, second), atol=1e-5
    )


@ALL
def test_the_target_carries_no_gradient(projection, rng):
    target = Atoms(*(jnp.asarray(x, jnp.float32) for x in row(random_atoms(rng, 1, 5), 0)))
    theta = jnp.asarray(rng.normal(size=NUM_ATOMS), jnp.float32)
    for gradient in jax.grad(projection.loss, argnums=1)(theta, target):
        np.testing.assert_array_equal(gradient, 0.0)


@ALL
def test_forward_and_reverse_mode_agree_under_jit_and_vmap(projection, rng):
    targets = random_atoms(rng, 4, 7)
    theta, tangent = jnp.asarray(rng.normal(size=(2, 4, NUM_ATOMS)), jnp.float32)

    def total(theta):
        return jnp.sum(batched(projection.loss)(theta, targets))

    value, forward = jax.jvp(jax.jit(total), (theta,), (tangent,))
    reverse = jax.jit(jax.grad(total))(theta)
    np.testing.assert_allclose(forward, jnp.sum(reverse * tangent), rtol=1e-4)
    np.testing.assert_allclose(value, sum(map(projection.loss, theta, _rows(targets))), rtol=1e-5)


def _rows(atoms):
    return [row(atoms, i) for i in range(len(atoms.locations))]


@ALL
def test_large_targets_build_no_outputs_times_atoms_tensor(projection, rng):
    large = type(projection).spanning(65, -6.0, 6.0)
    target = row(random_atoms(rng, 1, 2048), 0)
    theta = jnp.asarray(rng.normal(size=65), jnp.float32)
    assert largest_intermediate(jax.value_and_grad(large.loss), theta, target) <= 4 * 2048
    assert largest_intermediate(large.project, target) <= 4 * 2048


@ALL
def test_one_trace_serves_all_values(projection, rng):
    traces = []

    @jax.jit
    def step(theta, target):
        traces.append(None)
        return jax.grad(projection.loss)(theta, target)

    for _ in range(3):
        step(jnp.asarray(rng.normal(size=NUM_ATOMS), jnp.float32), row(random_atoms(rng, 1, 7), 0))
    assert len(traces) == 1


@ALL
@pytest.mark.parametrize("num_atoms", [1, 0, -3, 5.0, 2.5, "5", None, float("nan")])
@pytest.mark.usefixtures("without_shape_checks")
def test_numbers_of_atoms_that_are_none_are_refused(projection, num_atoms):
    with pytest.raises(InputError, match=str(num_atoms)):
        type(projection).spanning(num_atoms, -1.0, 1.0)


@ALL
@pytest.mark.usefixtures("without_shape_checks")
def test_batches_without_vmap_are_refused(projection, targets):
    theta = jnp.zeros(NUM_ATOMS)
    for call in (
        lambda: projection.project(targets),
        lambda: projection.loss(theta, targets),
        lambda: projection.loss(jnp.zeros((2, NUM_ATOMS)), row(targets, 0)),
        lambda: projection.decode(jnp.zeros((2, NUM_ATOMS))),
        lambda: projection.decode(jnp.zeros(NUM_ATOMS + 1)),
    ):
        with pytest.raises(InputError, match="vmap"):
            call()


@ALL
@pytest.mark.usefixtures("without_shape_checks")
def test_whole_numbers_are_outputs_too(projection):
    whole = jnp.arange(NUM_ATOMS)
    for ours, wanted in zip(
        projection.decode(whole), projection.decode(whole.astype(float)), strict=True
    ):
        np.testing.assert_array_equal(ours, wanted)


@ALL
def test_nan_reaches_the_gradient(projection, rng):
    """So that a guard against it can see it."""
    theta = jnp.asarray(rng.normal(size=NUM_ATOMS), jnp.float32)
    broken = Atoms(locations=jnp.array([0.0, jnp.nan]), probs=jnp.array([0.5, 0.5]))
    assert np.isnan(jax.grad(projection.loss)(theta, broken)).any()
    fine = Atoms.of([0.0, 1.0])
    assert np.isnan(jax.grad(projection.loss)(theta.at[3].set(jnp.nan), fine)).any()


@ALL
def test_projections_are_hashable_values(projection):
    twin = type(projection).spanning(NUM_ATOMS, -6.0, 6.0)
    assert twin == projection
    assert hash(twin) == hash(projection)
