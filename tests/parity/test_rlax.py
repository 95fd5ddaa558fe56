"""The categorical projection and losses against DeepMind's rlax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from helpers import mixed_atoms
from winkel.projections import Categorical, Quantile

TARGETS = mixed_atoms(np.random.default_rng(0), 64, 40)


@pytest.mark.parametrize(("num_atoms", "reach"), [(2, 3.0), (11, 3.0), (51, 10.0), (101, 7.0)])
def test_categorical_projection_equals_rlaxs(num_atoms, reach):
    """Targets in [−5, 5], so that the smaller supports clamp."""
    ours = Categorical(num_atoms=num_atoms, z_min=-reach, z_max=reach)
    projected = jax.vmap(ours.project)(TARGETS)
    with jax.numpy_rank_promotion("allow"):
        theirs = jax.vmap(rlax.categorical_l2_project, in_axes=(0, 0, None))(
            jnp.asarray(TARGETS.locations), jnp.asarray(TARGETS.probs), ours.support
        )
    np.testing.assert_allclose(projected.probs, theirs, atol=1e-6)


def test_quantile_loss_equals_rlaxs_on_equally_likely_targets(rng):
    theta = jnp.asarray(rng.normal(size=21), jnp.float32)
    target = jnp.asarray(rng.normal(size=33), jnp.float32)
    for width in (0.0, 1.0):
        ours = Quantile(num_atoms=21, huber_width=width)
        with jax.numpy_rank_promotion("allow"):
            theirs = rlax.quantile_regression_loss(theta, ours.levels, target, width)
        atoms = Quantile(num_atoms=33).decode(target)
        np.testing.assert_allclose(ours.loss(theta, atoms), theirs, rtol=1e-5)
