from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

import zoo
from helpers import random_atoms
from winkel import Atoms, bounds, mdps
from winkel import operators as O
from winkel.errors import InputError
from winkel.projections import Categorical, Expectile, Quantile


def random_returns(mdp, rng, num_atoms=5, **limits):
    atoms = random_atoms(rng, mdp.num_states * mdp.num_actions, num_atoms, **limits)
    return Atoms(*(x.reshape(mdp.num_states, mdp.num_actions, -1) for x in atoms))


def test_bellman_multiplies_atoms_by_hand():
    """Two successors with two atoms each, two rewards: eight atoms."""
    mdp = mdps.FiniteMDP(
        transitions=np.array([[[0.25, 0.75]], [[0.0, 1.0]]]),
        rewards=Atoms.of([[[0.0, 10.0]], [[1.0, 1.0]]], [[[0.5, 0.5]], [[1.0, 0.0]]]),
        gamma=0.5,
    )
    eta = Atoms.of([[[2.0, 4.0]], [[6.0, 8.0]]], [[[0.5, 0.5]], [[0.1, 0.9]]])
    result = O.merge(O.bellman(mdp, mdps.uniform_policy(mdp), eta))
    np.testing.assert_allclose(result.locations[0, 0], [1, 2, 3, 4, 11, 12, 13, 14])
    np.testing.assert_allclose(
        result.probs[0, 0], [0.0625, 0.0625, 0.0375, 0.3375, 0.0625, 0.0625, 0.0375, 0.3375]
    )
    np.testing.assert_allclose(result.locations[1, 0][:2], [4.0, 5.0])
    np.testing.assert_allclose(result.probs[1, 0], [0.1, 0.9, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("name", zoo.ZOO)
def test_bellman_acts_on_means_like_the_classical_operator(name, rng):
    mdp = zoo.ZOO[name]()
    policy = zoo.random_policy(mdp, seed=3)
    eta = random_returns(mdp, rng)
    bootstrapped = O.means(O.bellman(mdp, policy, eta))
    mean_reward = np.sum(np.multiply(*mdp.rewards), axis=-1)
    expected = mean_reward + mdp.gamma * O.expect_next(mdp, policy, O.means(eta))
    np.testing.assert_allclose(bootstrapped, expected, atol=1e-12)


def test_merge_keeps_distributions_and_takes_equal_locations_together(rng):
    eta = Atoms.of(rng.integers(-2, 3, (3, 2, 40)).astype(float))
    merged = O.merge(eta)
    assert merged.locations.shape == (3, 2, 8)  # five values, padded to a power of two
    assert O.distances(eta, merged, p=2.0).max() < 1e-7
    np.testing.assert_allclose(O.means(merged), O.means(eta), atol=1e-12)


@pytest.mark.parametrize("tolerance", [1.0, 0.1, 0.01])
def test_compression_keeps_means_and_its_tolerance(tolerance, rng):
    eta = random_atoms(rng, 12, 200)
    compressed = O.compress(eta, tolerance)
    for p in (1.0, 2.0, 10.0):
        assert O.distances(eta, compressed, p).max() <= tolerance
    np.testing.assert_allclose(O.means(compressed), O.means(eta), atol=1e-12)
    assert compressed.locations.shape[-1] <= 2 * (10 / tolerance + 2)


def test_action_values_solve_the_bellman_equation():
    mdp = zoo.random_mdp(seed=5)
    policy = zoo.random_policy(mdp, seed=5)
    q = O.action_values(mdp, policy)
    mean_reward = np.sum(np.multiply(*mdp.rewards), axis=-1)
    np.testing.assert_allclose(q, mean_reward + mdp.gamma * O.expect_next(mdp, policy, q))


def test_the_return_of_coin_flips_is_uniform():
    """Σ 2⁻ᵗ B_t with fair B_t is uniform on [0, 2]: distance to it by SciPy, on a fine grid."""
    truth = O.return_distribution(zoo.coin_flips(), np.ones((1, 1)), accuracy=0.01)
    grid = (np.arange(20_000) + 0.5) / 10_000
    z, p = truth.locations[0, 0], truth.probs[0, 0]
    assert scipy.stats.wasserstein_distance(z, grid, p) < 0.01


def test_the_return_of_deep_sea_is_exact():
    """Eight steps to the right by coin flips: reward 1 with probability 2⁻⁸, all atoms known."""
    mdp = mdps.deep_sea(8, gamma=0.9)
    truth = O.return_distribution(mdp, mdps.uniform_policy(mdp), accuracy=1e-6)
    best = 0.9**7 - 0.01 / 8 * sum(0.9**t for t in range(8))
    top = np.argmax(np.where(truth.probs[0, 1] > 0, truth.locations[0, 1], -1))
    np.testing.assert_allclose(truth.locations[0, 1, top], best, atol=1e-12)
    np.testing.assert_allclose(truth.probs[0, 1, top], 2.0**-7)


@pytest.mark.parametrize("accuracy", [0.3, 0.05])
def test_stopping_early_costs_no_more_than_stated(accuracy):
    """Coin flips come near: δ_1 is 1 from uniform in w_∞, and halves with each step."""
    truth = O.return_distribution(zoo.coin_flips(), np.ones((1, 1)), accuracy)
    grid = Atoms.of(((np.arange(4096) + 0.5) / 2048)[None, None])
    assert O.distances(truth, grid, p=40.0).max() <= accuracy


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_compression_spends_no_more_than_half_of_the_accuracy(gamma, monkeypatch):
    """Two compressions a step, the first one shrunk by γ, and a geometric sum of steps."""
    used = []
    compress = O.compress
    monkeypatch.setattr(O, "compress", lambda eta, t: used.append(t) or compress(eta, t))
    mdp = mdps.reward_cycle(gamma=gamma)
    O.return_distribution(mdp, mdps.uniform_policy(mdp), accuracy=0.2)
    assert len(used) > 4
    assert (gamma * used[0] + used[1]) / (1 - gamma) <= 0.1 + 1e-12


@pytest.mark.parametrize("name", zoo.ZOO)
def test_the_stated_accuracy_of_return_distributions_holds(name):
    mdp = zoo.ZOO[name]()
    policy = mdps.uniform_policy(mdp)
    low, high = mdp.return_range
    fine = O.return_distribution(mdp, policy, accuracy=5e-4 * (high - low))
    np.testing.assert_allclose(O.means(fine), O.action_values(mdp, policy), atol=1e-9)
    for share in (0.1, 0.01):
        coarse = O.return_distribution(mdp, policy, accuracy=share * (high - low))
        for p in (1.0, 3.0):
            assert O.distances(coarse, fine, p).max() <= (share + 5e-4) * (high - low)


@pytest.mark.parametrize("name", zoo.ZOO)
def test_value_iteration_converges_on_the_zoo_within_the_residual_bound(name):
    mdp = zoo.ZOO[name]()
    policy = mdps.uniform_policy(mdp)
    ensemble = bounds.categorical_quantile_ensemble(mdp, num_atoms=21)
    found = O.value_iteration(mdp, policy, ensemble)
    assert found.converged
    assert found.trace[-1] <= 1e-9 < found.trace[0]
    assert O.distances(found.mixture, O.mix(found.members)).max() < 1e-12
    low, high = mdp.return_range
    accuracy = 1e-3 * (high - low)
    truth = O.return_distribution(mdp, policy, accuracy)
    bound = bounds.fixed_point_error_without_modulus(mdp, policy, ensemble, found.mixture, truth)
    # Rounding: the last step over 1 − γ; and the stated accuracy of the truth.
    assert bound.holds(rounding=1e-9 / (1 - mdp.gamma) + accuracy)
    assert found.trace[-1] < bound.left.max()  # it has converged to something that is not η^π


@pytest.mark.parametrize("num_atoms", [5, 11, 51])
def test_iterating_the_quantile_projection_alone_converges(num_atoms):
    """As it must: Π_Q T^π contracts in w̄_∞. Fails if ties at the levels are left to rounding."""
    mdp = mdps.reward_cycle()
    found = O.value_iteration(mdp, mdps.uniform_policy(mdp), [Quantile(num_atoms=num_atoms)])
    assert found.converged


@pytest.mark.parametrize("name", zoo.ZOO)
def test_expectiles_join_the_ensemble(name):
    mdp = zoo.ZOO[name]()
    low, high = mdp.return_range
    ensemble = (
        Quantile(num_atoms=11),
        Categorical(num_atoms=11, z_min=low, z_max=high),
        Expectile(num_atoms=11),
    )
    found = O.value_iteration(mdp, mdps.uniform_policy(mdp), ensemble, tolerance=1e-6)
    assert len(found.members) == 3
    assert found.converged


def test_the_oscillator_never_converges():
    """Two points of period two, found by hand and checked in exact rational arithmetic."""
    half = Fraction(1, 2)
    rewards = ({Fraction(-1): Fraction(1)}, {Fraction(0): half, Fraction(1): half})

    def project_quantile(target):
        locations = []
        for level in (Fraction(1, 4), Fraction(3, 4)):
            mass = Fraction(0)
            for z in sorted(target):
                mass += target[z]
                if mass >= level:
                    locations.append(z)
                    break
        return _add((z, half) for z in locations)

    def project_categorical(target):
        mean = sum(z * p for z, p in target.items())  # on two atoms the mean says it all
        above = (mean + 2) / 4
        return {Fraction(-2): 1 - above, Fraction(2): above}

    def step(eta):
        following = []
        for state in (0, 1):
            target = _add(
                (r + half * z, q * p)
                for r, q in rewards[state].items()
                for z, p in eta[1 - state].items()
            )
            members = (project_quantile(target), project_categorical(target))
            following.append(_add((z, half * p) for m in members for z, p in m.items()))
        return following

    def exact(**atoms):
        return {Fraction(z): Fraction(p) for z, p in atoms.values()}

    even = [
        exact(a=("-2", "31/48"), b=("-1", "1/4"), c=("2", "5/48")),
        exact(a=("-2", "19/80"), b=("-2/3", "1/4"), c=("1", "1/4"), d=("2", "21/80")),
    ]
    odd = [
        exact(a=("-2", "11/30"), b=("-4/3", "1/4"), c=("0", "1/4"), d=("2", "2/15")),
        exact(a=("-2", "13/48"), b=("-1", "1/4"), c=("0", "1/4"), d=("2", "11/48")),
    ]
    assert step(even) == odd
    assert step(odd) == even

    mdp = mdps.oscillator()
    ensemble = bounds.categorical_quantile_ensemble(mdp, num_atoms=2)
    found = O.value_iteration(mdp, mdps.uniform_policy(mdp), ensemble, max_iterations=200)
    assert not found.converged
    np.testing.assert_allclose(found.trace[100:], 8 / 15, atol=1e-9)


def _add(pairs):
    total = {}
    for z, p in pairs:
        total[z] = total.get(z, 0) + p
    return total


def test_rounding_of_given_probabilities_does_not_leak():
    """Sums off by 9e-6 are accepted as rounding, and must not compound over a long horizon."""
    mdp = mdps.FiniteMDP(
        transitions=np.full((1, 1, 1), 1 - 9e-6),
        rewards=Atoms.of([[[0.0, 1.0]]], [[[0.5, 0.5 - 9e-6]]]),
        gamma=0.99,
    )
    truth = O.return_distribution(mdp, np.full((1, 1), 1 + 9e-6), accuracy=1.0)
    np.testing.assert_allclose(truth.probs.sum(), 1.0)
    np.testing.assert_allclose(O.means(truth), O.action_values(mdp, np.ones((1, 1))))


def test_the_operators_are_float64_whatever_the_projection_was_made_of():
    import jax.numpy as jnp

    grid = Categorical(num_atoms=4, z_min=jnp.float32(-1.0), z_max=jnp.float32(1.0))
    projected = O.project(grid, Atoms.of([[0.1, 0.7]]))
    assert projected.probs.dtype == projected.locations.dtype == np.float64


def test_a_bonus_that_has_not_converged_says_so():
    mdp = mdps.reward_cycle()
    found = O.bonus_iteration(mdp, mdps.uniform_policy(mdp), np.ones((3, 1)), max_iterations=5)
    assert not found.converged


def test_bonus_iteration_solves_its_linear_equation(rng):
    mdp = zoo.random_mdp(seed=2)
    policy = zoo.random_policy(mdp, seed=2)
    error = rng.uniform(0, 1, (4, 2))
    found = O.bonus_iteration(mdp, policy, error, modulus=1.2)
    np.testing.assert_allclose(found.bonus, found.limit, atol=1e-8)
    np.testing.assert_allclose(
        found.limit, error + 1.2 * mdp.gamma * O.expect_next(mdp, policy, found.limit)
    )
    assert (np.diff(found.trace) <= 0).all()


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda mdp, pi: O.value_iteration(mdp, pi, []), "got none"),
        (
            lambda mdp, pi: O.value_iteration(mdp, pi, [Quantile(num_atoms=2)], max_iterations=0),
            "0",
        ),
        (lambda mdp, pi: O.bonus_iteration(mdp, pi, np.ones((1, 1)), modulus=2.0), "2.0"),
        (lambda mdp, pi: O.bonus_iteration(mdp, pi, np.ones((2, 1))), r"\[2, 1\]"),
        (lambda mdp, pi: O.bonus_iteration(mdp, pi, np.full((1, 1), np.nan)), "nan"),
        (lambda mdp, pi: O.bonus_iteration(mdp, pi, np.ones((1, 1)), max_iterations=2.5), "2.5"),
        (lambda mdp, pi: O.bellman(mdp, pi, Atoms.of([[0.0]])), r"\[1, 1, N\], got \[1, 1\]"),
        (lambda mdp, pi: O.disagreements([Atoms.of([[0.0]])]), "got 1"),
        (lambda mdp, pi: O.return_distribution(mdp, pi, accuracy=0.0), "0.0"),
        (lambda mdp, pi: O.compress(Atoms.of([0.0]), -1.0), "-1.0"),
        (lambda mdp, pi: O.distances(Atoms.of([[0.0]]), Atoms.of([0.0])), r"\[1\] and \[\]"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_impossible_calls_are_refused_with_their_values(call, shown):
    with pytest.raises(InputError, match=shown):
        call(zoo.coin_flips(), np.ones((1, 1)))


def test_supports_share_one_program():
    traces = []

    class Counting(Categorical):
        def project(self, target):
            traces.append(None)
            return super().project(target)

    eta = Atoms.of([[0.2, 0.7]])
    for z_max in (1.0, 2.0, 3.0):
        projected = O.project(Counting(num_atoms=4, z_min=0.0, z_max=z_max), eta)
        np.testing.assert_allclose(projected.locations[0, -1], z_max)
    assert len(traces) == 1
