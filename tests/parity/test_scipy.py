"""Distances against SciPy's, over thousands of generated pairs."""

import itertools

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from helpers import KINDS, batched, random_atoms, row
from winkel import distributions as D
from winkel.types import Atoms

SIZES = ((1, 1), (1, 7), (5, 8), (16, 3), (32, 33))
PAIRS_PER_CASE = 20  # × 5 sizes × 4 × 4 kinds = 1,600 pairs


def pairs(sizes):
    rng = np.random.default_rng(sum(sizes))
    both = [
        (
            random_atoms(rng, PAIRS_PER_CASE, sizes[0], x),
            random_atoms(rng, PAIRS_PER_CASE, sizes[1], y),
        )
        for x, y in itertools.product(KINDS, KINDS)
    ]
    return [
        Atoms(*(np.concatenate(fields) for fields in zip(*side, strict=True)))
        for side in zip(*both, strict=True)
    ]


def by_scipy(function, first, second):
    return [function(x, y, p, q) for x, p, y, q in zip(*first, *second, strict=True)]


@pytest.mark.parametrize("sizes", SIZES)
def test_w1_equals_scipys_in_float32(sizes):
    first, second = pairs(sizes)
    ours = batched(D.wasserstein)(first, second)
    theirs = by_scipy(scipy.stats.wasserstein_distance, first, second)
    assert len(theirs) == 320
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("sizes", SIZES)
def test_cramer_equals_scipys_energy_distance(sizes, float64):
    first, second = pairs(sizes)
    ours = batched(D.cramer)(first, second)
    theirs = by_scipy(scipy.stats.energy_distance, first, second)
    np.testing.assert_allclose(np.sqrt(2.0) * ours, theirs, atol=1e-7)


def transport_cost(first, second, p):
    """w_p by the linear programme over couplings: the definition, with no use of one dimension."""
    (x, a), (y, b) = first, second
    cost = np.abs(x[:, None] - y[None, :]) ** p
    rows = np.kron(np.eye(len(x)), np.ones(len(y)))
    columns = np.kron(np.ones(len(x)), np.eye(len(y)))
    solution = scipy.optimize.linprog(
        cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([a, b])
    )
    assert solution.success
    return solution.fun ** (1 / p)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_wp_equals_optimal_transport(p, float64):
    first, second = pairs((5, 8))
    chosen = range(0, 320, 8)
    ours = batched(lambda x, y: D.wasserstein(x, y, p))(first, second)
    theirs = [transport_cost(row(first, i), row(second, i), p) for i in chosen]
    np.testing.assert_allclose(np.asarray(ours)[list(chosen)], theirs, atol=1e-6)


def test_w2_in_float32_is_close_to_float64():
    first, second = pairs((16, 3))
    w2 = batched(lambda x, y: D.wasserstein(x, y, 2.0))
    single = w2(first, second)
    with jax.enable_x64(True):
        double = w2(first, second)
    np.testing.assert_allclose(single, double, atol=2e-3)
