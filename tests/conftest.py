"""Strictness for all tests: shapes and types are checked, and no rank is promoted silently."""

import os

# Compilation dominates the tests; the results do not depend on how well it optimises.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jaxtyping
from jaxtyping import install_import_hook

# Before anything imports winkel.
install_import_hook("winkel", "beartype.beartype")

import hypothesis  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
hypothesis.settings.register_profile("winkel", deadline=None, derandomize=True)
hypothesis.settings.load_profile("winkel")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def without_shape_checks():
    """As users run it: jaxtyping's checks, which would speak before our own errors, are off."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield
