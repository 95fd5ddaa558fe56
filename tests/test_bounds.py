"""Every inequality of the paper, at its premises, on generated MDPs and distributions."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from helpers import mixed_atoms, random_atoms, unchecked
from winkel import bounds, mdps
from winkel import operators as O
from winkel.errors import InputError
from winkel.projections import Categorical, Quantile
from winkel.types import Atoms

NUM_MDPS = [60, pytest.param(210, marks=pytest.mark.long)]
NUM_ATOMS = 9
TOLERANCE = 1e-10


class Case(NamedTuple):
    """An MDP with everything that the statements speak of, for one ensemble."""

    mdp: mdps.FiniteMDP
    policy: np.ndarray
    ensemble: tuple
    estimate: Atoms
    other: Atoms
    fixed_point: Atoms
    truth: Atoms
    accuracy: float

    @property
    def rounding(self):
        """What stopping value iteration early can cost, and float64."""
        return 10 * TOLERANCE / (1 - self.mdp.gamma) + 1e-9


@functools.cache
def draw(seed):
    """An MDP, a policy, two estimates and the truth to an accuracy, for both ensembles."""
    rng = np.random.default_rng(seed)
    mdp = zoo.random_mdp(
        seed, num_states=3, num_rewards=2, num_successors=2, gamma=(0.5, 0.7, 0.8)[seed % 3]
    )
    policy = zoo.random_policy(mdp, seed)
    low, high = mdp.return_range
    limits = {"low": low, "high": high}
    estimate = Atoms(*(x.reshape(3, 2, -1) for x in random_atoms(rng, 6, 6, **limits)))
    other = Atoms(*(x.reshape(3, 2, -1) for x in random_atoms(rng, 6, 6, **limits)))
    if seed % 2:  # a shift is what contracts least
        other = estimate._replace(locations=estimate.locations * 0.9 + 0.05 * (high - low))
        estimate = estimate._replace(locations=estimate.locations * 0.9 + 0.05 * low)
    accuracy = 0.01 * (high - low)
    fine = O.return_distribution(mdp, policy, 0.6 * accuracy)
    truth = O.compress(fine, 0.4 * accuracy)  # to few atoms and few shapes
    return mdp, policy, estimate, other, truth, accuracy


def each(cases):
    """One after another; shapes and types are checked in the first two, since that takes long."""
    yield from cases[:2]
    with unchecked():
        yield from cases[2:]


def make_case(seed, make_ensemble):
    mdp, policy, estimate, other, truth, accuracy = draw(seed)
    ensemble = make_ensemble(mdp)
    found = O.value_iteration(mdp, policy, ensemble, tolerance=TOLERANCE)
    assert found.converged, seed
    return Case(mdp, policy, ensemble, estimate, other, found.mixture, truth, accuracy)


def two_grids(mdp):
    """Two categorical members: c_i = 1 in w_1, so that every premise holds with known constants."""
    low, high = mdp.return_range
    return (
        Categorical(num_atoms=NUM_ATOMS, z_min=low, z_max=high),
        Categorical(num_atoms=5, z_min=low, z_max=high),
    )


@pytest.fixture(scope="module", params=NUM_MDPS)
def diverse(request):
    """Quantile and categorical, as in PE-DQN."""
    return [
        make_case(seed, lambda mdp: bounds.categorical_quantile_ensemble(mdp, NUM_ATOMS))
        for seed in each(range(request.param))
    ]


@pytest.fixture(scope="module", params=NUM_MDPS)
def grids(request):
    return [make_case(seed, two_grids) for seed in each(range(request.param))]


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_lemma_4_mixtures_are_no_further_apart_than_their_members(p, rng):
    first, second = ([mixed_atoms(rng, 60, n) for n in sizes] for sizes in ((3, 5, 8), (4, 4, 6)))
    found = bounds.mixture_distance(first, second, p)
    assert found.left.shape == (240,)
    assert found.holds(1e-7)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_lemma_7_bootstrapping_scales_distances_by_gamma(p, rng):
    first, second = mixed_atoms(rng, 60, 5), mixed_atoms(rng, 60, 7)
    for reward, gamma in ((0.3, 0.9), (-2.0, 0.5), (1.0, 0.0)):
        found = bounds.bootstrap_distance(reward, gamma, first, second, p)
        np.testing.assert_allclose(found.left, found.right, atol=1e-7)


def test_proposition_1_with_known_moduli(grids):
    for case in each(grids):
        found = bounds.contraction(*case[:3], case.estimate, case.other, moduli=[1.0, 1.0])
        assert found.holds(), case


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_proposition_1_with_the_moduli_of_the_pair(p, diverse):
    for case in each(diverse):
        assert bounds.contraction(*case[:3], case.estimate, case.other, p).holds(1e-7)


def test_a_wrong_modulus_is_caught(grids):
    """The test above fails with c = 0.97 in place of 1: its MDPs come that close to equality."""
    wrong = [
        bounds.contraction(*case[:3], case.estimate, case.other, moduli=[0.97, 0.97])
        for case in each(grids)
    ]
    assert sum(not found.holds() for found in wrong) >= len(grids) / 12


class Idealised(eqx.Module):
    """A projection that no network could have: only what the operators need."""

    num_atoms: int = eqx.field(static=True, default=1)

    def unused(self, *_):
        raise AssertionError("not needed")

    spanning = decode = loss = unused


class Same(Idealised):
    """Π = identity, c = 1."""

    def project(self, target):
        return Atoms(*map(jnp.asarray, target))


class Nothing(Idealised):
    """Π ν = δ_100, c = 0."""

    def project(self, target):
        return Atoms(locations=jnp.full((1,), 100.0), probs=jnp.ones((1,)))


class Shifted(Idealised):
    """Π ν is ν moved by 0.3: c = 1, d = 0.3."""

    def project(self, target):
        return Atoms(locations=target.locations + 0.3, probs=jnp.asarray(target.probs))


def test_moduli_are_averaged_in_their_p_norm():
    """(1/M Σ c^p)^(1/p) is attained for p = 2 and c = (1, 0); the plain mean would be violated."""
    mdp = mdps.FiniteMDP(
        transitions=np.ones((1, 1, 1)), rewards=Atoms.of(np.zeros((1, 1, 1))), gamma=0.9
    )
    arguments = (mdp, np.ones((1, 1)), [Same(), Nothing()])
    pair = (Atoms.of([[[0.0]]]), Atoms.of([[[1.0]]]))
    found = bounds.contraction(*arguments, *pair, p=2.0)
    np.testing.assert_allclose(found.left, found.right)
    np.testing.assert_allclose(found.right, 0.9 * np.sqrt(0.5))
    plain_mean = bounds.contraction(*arguments, *pair, p=2.0, moduli=[0.5, 0.5])
    assert not plain_mean.holds()


def test_proposition_2_estimates_plus_their_error_are_optimistic(diverse):
    for case in each(diverse):
        for estimate in (case.estimate, case.other, case.fixed_point):
            assert bounds.optimism(case.mdp, case.policy, estimate, case.truth).holds()


def test_theorem_3_with_known_moduli(grids):
    for case in each(grids):
        found = bounds.error_propagation(
            *case[:3], case.estimate, case.fixed_point, moduli=[1.0, 1.0]
        )
        assert found.holds(case.rounding)


def test_theorem_3_with_the_moduli_of_the_pair(diverse):
    for case in each(diverse):
        found = bounds.error_propagation(*case[:3], case.estimate, case.fixed_point)
        assert found.holds(case.rounding)


def test_theorem_3_without_propagation_is_violated(grids):
    """With c = 0 the one-step error alone would have to do, and does not."""
    wrong = [
        bounds.error_propagation(*case[:3], case.estimate, case.fixed_point, moduli=[0.0, 0.0])
        for case in each(grids)
    ]
    violated = [not found.holds(case.rounding) for found, case in zip(wrong, grids, strict=True)]
    assert sum(violated) > len(grids) / 12


def test_the_bonus_iteration_bounds_the_error(grids):
    for case in each(grids):
        error = O.local_error(*case[:3], case.estimate)
        bonus = O.bonus_iteration(case.mdp, case.policy, error).limit
        assert (bonus + case.rounding >= O.distances(case.estimate, case.fixed_point)).all()


def test_proposition_8_with_known_constants(grids):
    for case in each(grids):
        low, high = case.mdp.return_range
        spacings = [(high - low) / (member.num_atoms - 1) for member in case.ensemble]
        found = bounds.fixed_point_error(
            *case[:3], case.fixed_point, case.truth, moduli=[1.0, 1.0], errors=spacings
        )
        assert found.holds(case.accuracy)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_proposition_8_with_realised_constants(p, diverse):
    vacuous = 0
    for case in each(diverse):
        found = bounds.fixed_point_error(*case[:3], case.fixed_point, case.truth, p)
        assert found.holds(case.accuracy)
        vacuous += np.isinf(found.right).any()
    # In w_2 neither projection has a modulus, and c̄ γ ≥ 1 on most of these MDPs.
    assert vacuous == 0 if p == 1 else len(diverse) / 2 < vacuous < len(diverse)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_the_fixed_point_is_close_to_the_truth_without_any_modulus(p, diverse):
    for case in each(diverse):
        found = bounds.fixed_point_error_without_modulus(*case[:3], case.fixed_point, case.truth, p)
        assert np.isfinite(found.right).all()
        assert found.holds(case.accuracy)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_both_residual_bounds_are_attained(p):
    """By projections that shift: so no smaller constant than 1/(1 − γ) will do."""
    mdp = zoo.coin_flips()
    arguments = (mdp, np.ones((1, 1)), [Shifted()])
    truth = O.return_distribution(*arguments[:2], accuracy=1e-3)
    fixed_point = truth._replace(locations=truth.locations + 0.3 / (1 - mdp.gamma))
    for bound in (bounds.fixed_point_error, bounds.fixed_point_error_without_modulus):
        found = bound(*arguments, fixed_point, truth, p)
        np.testing.assert_allclose(found.left, found.right, atol=2e-3)
        np.testing.assert_allclose(found.right, 0.6, atol=2e-3)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_proposition_9_and_its_sharp_form(p, diverse):
    for case in each(diverse):
        loose = bounds.residual_disagreement(*case[:3], case.fixed_point, p)
        sharp = bounds.sharp_residual_disagreement(*case[:3], case.fixed_point, p)
        assert loose.holds(1e-7)
        assert sharp.holds(1e-7)
        np.testing.assert_allclose(loose.right, 2 * sharp.right)  # M/(M − 1) for M = 2


@pytest.mark.parametrize("num_atoms", [2, 5, 33])
def test_lemma_10_the_categorical_error_is_at_most_a_spacing(num_atoms, rng):
    grid = Categorical(num_atoms=num_atoms, z_min=-5.0, z_max=5.0)
    found = bounds.categorical_error(grid, mixed_atoms(rng, 60, 12))
    assert found.left.shape == (240,)
    assert found.holds()
    halved = bounds.Inequality(2 * found.left, found.right)
    assert halved.holds()


def test_half_of_lemma_10_is_attained():
    grid = Categorical(num_atoms=5, z_min=0.0, z_max=4.0)
    found = bounds.categorical_error(grid, Atoms.of([[1.5]]))
    np.testing.assert_allclose(2 * found.left, found.right)


def test_lemma_10_needs_the_distribution_inside_the_support():
    """The printed premise lets it lie outside, where clamping costs any amount."""
    with pytest.raises(InputError, match=r"\[0.0, 1.0\].*7.0"):
        bounds.categorical_error(
            Categorical(num_atoms=5, z_min=0.0, z_max=1.0), Atoms.of([[0.0, 7.0]])
        )


@pytest.mark.parametrize("num_atoms", [2, 5, 33])
def test_lemma_11_the_quantile_error_is_at_most_the_range_over_k(num_atoms, rng):
    found = bounds.quantile_error(Quantile(num_atoms=num_atoms), mixed_atoms(rng, 60, 12))
    assert found.left.shape == (240,)
    assert found.holds()
    halved = bounds.Inequality(2 * found.left, found.right)
    assert halved.holds()


def test_half_of_lemma_11_is_attained():
    """Half of every bin's mass below its median, half above: ends and middle of [0, 1]."""
    nu = Atoms.of([[0.0, 1.0]])
    found = bounds.quantile_error(Quantile(num_atoms=3), nu)
    np.testing.assert_allclose(2 * found.left, found.right)


def test_corollary_12_with_the_true_spacing_and_as_printed(diverse):
    for case in each(diverse):
        found = bounds.categorical_quantile_disagreement(
            case.mdp, case.policy, NUM_ATOMS, case.fixed_point
        )
        low, high = case.mdp.return_range
        true_spacing = 2 * (high - low) * (1 / NUM_ATOMS + 1 / (NUM_ATOMS - 1))
        np.testing.assert_allclose(found.right, true_spacing)
        assert found.holds()
        printed = 4 * (high - low) / NUM_ATOMS
        assert (found.left <= printed).all()


def test_empirical_moduli_see_that_the_quantile_projection_has_none(rng):
    mass = 1e-6
    first = Atoms.of([[0.0, 1.0]], [[0.5 - mass, 0.5 + mass]])
    second = Atoms.of([[0.0, 1.0]], [[0.5 + mass, 0.5 - mass]])
    assert bounds.empirical_modulus(Quantile(num_atoms=3), first, second) > 1e5
    grid = Categorical(num_atoms=7, z_min=-5.0, z_max=5.0)
    pairs = mixed_atoms(rng, 100, 8), mixed_atoms(rng, 100, 8)
    assert bounds.empirical_modulus(grid, *pairs) <= 1 + 1e-9
    assert bounds.empirical_modulus(grid, pairs[0], pairs[0]) == 0.0


def test_equal_laws_in_another_order_have_modulus_zero(rng):
    """Rounding over rounding is no ratio: a true inequality must not be reported as violated."""
    eta = random_atoms(rng, 400, 12)
    order = rng.permutation(12)
    same = Atoms(*(x[:, order] for x in eta))
    grid = Categorical(num_atoms=7, z_min=-5.0, z_max=5.0)
    for p in (1.0, 2.0):
        assert bounds.empirical_modulus(grid, eta, same, p) <= 1.0
    mdp = zoo.random_mdp(0)
    eta, same = (Atoms(*(x[:8].reshape(4, 2, -1) for x in a)) for a in (eta, same))
    ensemble = bounds.categorical_quantile_ensemble(mdp, 5)
    assert bounds.contraction(mdp, mdps.uniform_policy(mdp), ensemble, eta, same).holds()


def test_nan_is_never_a_small_distance():
    broken = Atoms(locations=np.full((1, 1, 2), np.nan), probs=np.full((1, 1, 2), 0.5))
    fine = Atoms.of([[[0.0, 1.0]]])
    arguments = (zoo.coin_flips(), np.ones((1, 1)), [Quantile(num_atoms=2)])
    assert not bounds.contraction(*arguments, fine, broken, p=2.0).holds()
    found = O.value_iteration(*arguments, initial=broken, p=2.0, max_iterations=3)
    assert not found.converged


def test_projection_errors_are_averaged_in_their_p_norm():
    found = bounds.fixed_point_error_without_modulus(
        zoo.coin_flips(), np.ones((1, 1)), [Same(), Same()], *[Atoms.of([[[0.0]]])] * 2,
        p=2.0, errors=[0.0, 0.6],
    )  # fmt: skip
    np.testing.assert_allclose(found.right, np.sqrt(0.18) / 0.5)


def test_with_quantiles_the_bonus_is_an_estimate_and_not_a_bound():
    """A median that the estimate's small error tips: true error 0.043, bonus 0.0025."""
    transitions = np.zeros((4, 1, 4))
    transitions[0, 0] = [0, 0.495, 0.495, 0.01]
    transitions[[1, 2, 3], 0, [1, 2, 3]] = 1
    mdp = mdps.FiniteMDP(
        transitions=transitions, rewards=Atoms.of([[[0.0]], [[-0.5]], [[0.5]], [[0.0]]]), gamma=0.5
    )
    policy = np.ones((4, 1))
    ensemble = bounds.categorical_quantile_ensemble(mdp, 3)
    fixed_point = O.value_iteration(mdp, policy, ensemble).mixture
    values = np.array([[0.0], [-1.0], [1.0], [0.5]])  # the last is wrong by a half
    guess = O.project_mixture(ensemble, O.point_masses(values))
    backup = O.project_mixture(ensemble, O.bellman(mdp, policy, guess))
    estimate = Atoms(*(np.concatenate([b[:1], g[1:]]) for b, g in zip(backup, guess, strict=True)))
    error = O.local_error(mdp, policy, ensemble, estimate)
    bonus = O.bonus_iteration(mdp, policy, error).limit[0, 0]
    true = O.distances(estimate, fixed_point)[0, 0]
    np.testing.assert_allclose(bonus, 0.0025, atol=1e-6)
    np.testing.assert_allclose(true, 0.0429, atol=1e-4)
    assert bounds.error_propagation(mdp, policy, ensemble, estimate, fixed_point).holds(1e-7)


def test_violations_are_reported_by_their_size():
    found = bounds.Inequality(left=np.array([1.0, 2.0]), right=np.array([1.5, 1.75]))
    assert found.slack == -0.25
    assert not found.holds()
    assert found.holds(rounding=0.3)
    with pytest.raises(InputError, match="none"):
        bounds.joint_modulus([])
    with pytest.raises(InputError, match="one number for each of 1 projections, got 2"):
        bounds.contraction(
            zoo.coin_flips(),
            np.ones((1, 1)),
            [Same()],
            *[Atoms.of([[[0.0]]])] * 2,
            moduli=[1.0, 1.0],
        )
    with pytest.raises(InputError, match="2 and 1"):
        bounds.mixture_distance([Atoms.of([[0.0]])] * 2, [Atoms.of([[0.0]])])
