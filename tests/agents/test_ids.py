"""Information-directed sampling against numbers worked out on paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.toys import KEY, OBS, SPEC, act, batch_of, clock_at, constant, constants, update
from agents.toys import learner_of as part
from winkel.agents import ids
from winkel.agents.ids import IDS, Config, Hyper, TwoLearners


def biases(network):
    return np.asarray(network.layers[0].bias)


def learner_of(values, probs, target_values=None, target_probs=None):
    """Members of the given values [M, A] and a C51 model of probabilities [A, K], no priors."""
    ensemble, c51 = constants(values), constant(np.log(probs))
    targets = (
        None if target_values is None else constants(target_values),
        None if target_probs is None else constant(np.log(target_probs)),
    )
    return TwoLearners(
        ensemble=part(ensemble, targets[0], constants(np.zeros(np.shape(values)))),
        c51=part(c51, targets[1], constant(np.zeros(np.shape(probs)))),
    )


def agent_of(**settings):
    return IDS(
        Config(**{"num_members": 2, "num_atoms": 2, "hidden": (), "c51_hidden": (), **settings}),
        SPEC,
    )


def action_of(agent, learner, progress=0.0, **hyper):
    return act(agent, learner, Hyper(z_min=0.0, z_max=1.0, **hyper), progress)


def test_noise():
    """Variances 0.01 and 0.25, 0.13 on average.

    ρ_ε²: 0.0101 / 0.1301 = 0.0776326 and 0.2501 / 0.1301 = 1.9223674. Clipped: 0.01 / 0.13 = 0.077
    is below 0.25, 0.25 / 0.13 = 1.9230769 is not.
    """
    variances = jnp.array([0.01, 0.25])
    np.testing.assert_allclose(
        ids.relative_noise("epsilon", variances), [0.0776326, 1.9223674], rtol=1e-5
    )
    clipped = ids.relative_noise("clipped", variances)
    np.testing.assert_allclose(clipped, [0.25, 1.9230769], rtol=1e-6)


def test_noise_of_returns_that_do_not_vary():
    """ρ_ε² is ε_1 / ε_1 = 1, and so we say of the quotient 0 / 0."""
    for form in ("epsilon", "clipped"):
        np.testing.assert_array_equal(ids.relative_noise(form, jnp.zeros(3)), np.ones(3))


def test_information_gain():
    """log(1 + 1 / 0.25) = log 5 = 1.6094379, log(1 + 4 / 2) = log 3 = 1.0986123; ε_2 is 1e-5."""
    found = ids.information_gain(jnp.array([1.0, 2.0, 0.0]), jnp.array([0.25, 2.0, 1.0]))
    np.testing.assert_allclose(found, [1.6094479, 1.0986223, 1e-5], rtol=1e-6)


def test_regret():
    """μ = [1, 2, 0], σ = [1, 0.5, 0], β = 2.

    Upper ends 3, 3, 0, of which the highest is 3; lower ends −1, 1, 0: Δ̂ = [4, 2, 3].
    """
    lost = ids.regret(jnp.array([1.0, 2.0, 0.0]), jnp.array([1.0, 0.5, 0.0]), 2.0)
    np.testing.assert_allclose(lost, [4.0, 2.0, 3.0])


VALUES = [[0.0, 0.5], [2.0, 1.5]]
PROBS = [[0.5, 0.5], [0.9, 0.1]]
"""The ensemble's means are 1 and 1, its deviations 1 and 0.5; C51's variances 0.25 and 0.09."""


@pytest.mark.parametrize(
    ("noise", "gains"),
    [
        # ρ_ε² = 0.2501/0.1701 and 0.0901/0.1701: I = log(1 + 1 · 0.1701/0.2501) = log 1.6801279
        # = 0.5188700 and log(1 + 0.25 · 0.1701/0.0901) = log 1.4719756 = 0.3866054, and ε_2.
        ("epsilon", [0.5188800, 0.3866154]),
        # ρ² = 0.25/0.17 and 0.09/0.17 = 0.529 > 0.25: I = log 1.68 = 0.5187938 and
        # log(1 + 0.25 · 0.17/0.09) = log 1.4722222 = 0.3867729, and ε_2.
        ("clipped", [0.5188038, 0.3867829]),
    ],
)
def test_estimates(noise, gains):
    hyper = Hyper(z_min=0.0, z_max=1.0)
    found = jax.jit(agent_of(noise=noise).estimates)(learner_of(VALUES, PROBS), OBS, hyper)
    np.testing.assert_allclose(found.value, [1.0, 1.0])
    np.testing.assert_allclose(found.disagreement, [1.0, 0.5])
    np.testing.assert_allclose(found.bonus, gains, rtol=1e-5)
    np.testing.assert_allclose(found.members.probs, [PROBS], rtol=1e-6)
    np.testing.assert_allclose(found.members.locations, [[[0.0, 1.0]] * 2])
    assert agent_of().member_names() == ("c51",)


def test_an_unbiased_variance_of_two_members_is_twice_as_large():
    hyper = Hyper(z_min=0.0, z_max=1.0)
    found = jax.jit(agent_of(unbiased=True).estimates)(learner_of(VALUES, PROBS), OBS, hyper)
    np.testing.assert_allclose(found.disagreement, np.sqrt([2.0, 0.5]), rtol=1e-6)


def test_the_action_has_the_least_ratio():
    """With β = 1, Δ̂ = 2 − (1 − 1) = 2 and 2 − (1 − 0.5) = 1.5.

    The ratios 4 / 0.5189 = 7.71 and 2.25 / 0.3866 = 5.82 make it action 1. Where C51 holds action 0
    for the less noisy, variances 0.0475 and 0.25, ρ_ε² is 0.0476/0.14885 = 0.319785 and
    0.2501/0.14885 = 1.680215: I = log(1 + 1/0.319785) = 1.41756 and log(1 + 0.25/1.680215) =
    0.13873. The ratios 4 / 1.41756 = 2.82 and 2.25 / 0.13873 = 16.2 make it action 0.
    """
    agent = agent_of()
    assert action_of(agent, learner_of(VALUES, PROBS), beta=1.0) == 1
    noisy = [[0.95, 0.05], [0.5, 0.5]]
    assert action_of(agent, learner_of(VALUES, noisy), beta=1.0) == 0


def test_clipping_can_turn_the_choice():
    """β = 1, μ = [0, 0.6], σ = [0.1, 0.1], variances 0.0099 and 0.25, 0.12995 on average.

    Δ̂: upper ends 0.1 and 0.7, lower ends −0.1 and 0.5, so 0.8 and 0.2.
    ρ_ε² is 0.01/0.13005 = 0.0768935 and 0.2501/0.13005 = 1.923106, I is log 1.13005 + 1e-5 =
    0.122272 and log 1.0051999 + 1e-5 = 0.0051965; ratios 0.64/0.122272 = 5.23 and
    0.04/0.0051965 = 7.70 make it action 0.
    ρ² is 0.25 and 0.25/0.12995 = 1.923817, I is log 1.04 + 1e-5 = 0.0392307 and 0.0051945; ratios
    0.64/0.0392307 = 16.3 and 7.70 make it action 1.
    """
    learner = learner_of([[-0.1, 0.5], [0.1, 0.7]], [[0.99, 0.01], [0.5, 0.5]])
    assert action_of(agent_of(noise="epsilon"), learner, beta=1.0) == 0
    assert action_of(agent_of(noise="clipped"), learner, beta=1.0) == 1


def test_at_the_end_of_the_decay_the_action_is_greedy():
    """β falls from 5 to 0 over a third of the horizon; there Δ̂ of the greedy action is 0.

    Its uncertainty and information are the lowest here, so that β > 0 chooses otherwise: at β = 5
    upper ends are 1.1 and 6, Δ̂ = 6 − 1.1 = 4.9 and 6 − (1 − 5) = 10; I = 1e-5 for σ = 0 and
    about 0.52 for σ = 1: 24.01e5 against 192.
    """
    learner = learner_of([[1.1, 0.0], [1.1, 2.0]], [[0.5, 0.5], [0.5, 0.5]])
    agent = agent_of()
    assert action_of(agent, learner, progress=0.0) == 1
    for progress in (1 / 3, 0.34, 1.0):
        assert action_of(agent, learner, progress=progress) == 0


@pytest.mark.parametrize("greedy", [0, 1])
def test_greedy_even_where_a_squared_regret_would_vanish(greedy):
    """Values 1e-25 apart: the square 1e-50 is 0 in float32, and both ratios would be."""
    values = [[0.0, 0.0], [0.0, 0.0]]
    for member in values:
        member[greedy] = 1e-25
    learner = learner_of(values, [[0.5, 0.5], [0.5, 0.5]])
    assert action_of(agent_of(), learner, progress=1.0) == greedy


def test_both_models_learn_from_their_own_targets_at_their_own_rates():
    """γ = 0.5, r = 0.1, action 0.

    Ensemble: values 0 and 2 of action 0; target networks [3, 1] and [0, 4], whose maxima 3 and 4
    give 0.1 + 1.5 = 1.6 and 0.1 + 2 = 2.1: errors −1.6 and −0.1, losses 1.28 and 0.005.
    C51: the online means 0.5 and 0.1 choose action 0, which the target network gives 0.2, 0.8. Its
    atoms 0.1 and 0.6 put 0.2 · 0.1 + 0.8 · 0.6 = 0.5 on 1 and as much on 0: as predicted, KL 0.
    """
    learner = learner_of(
        VALUES, PROBS, target_values=[[3.0, 1.0], [0.0, 4.0]], target_probs=[[0.2, 0.8], [0.7, 0.3]]
    )
    hyper = Hyper(gamma=0.5, z_min=0.0, z_max=1.0)
    batch = batch_of(reward=0.1, masks=[[True, True]])
    after, result = update(agent_of(), learner, batch, hyper)
    np.testing.assert_allclose(result.metrics["loss"], 1.285, rtol=1e-5)
    np.testing.assert_allclose(result.metrics["beta"], 5.0)
    np.testing.assert_allclose(result.metrics["clipped"], 0.0)
    # Adam's first step is the learning rate against the sign of a gradient far above its epsilon.
    moved = biases(after.ensemble.params) - biases(learner.ensemble.params)
    np.testing.assert_allclose(moved, [[1e-3, 0.0], [1e-3, 0.0]], rtol=2e-2)
    moved = biases(after.c51.params) - biases(learner.c51.params)
    np.testing.assert_allclose(moved, np.zeros(4), atol=1e-6)
    # Learn action 1 instead: 0.9, 0.1 is predicted and 0.5, 0.5 is right.
    batch = batch_of(reward=0.1, action=1, masks=[[True, True]])
    after, _ = update(agent_of(), learner, batch, hyper)
    moved = biases(after.c51.params) - biases(learner.c51.params)
    np.testing.assert_allclose(moved, [0.0, 0.0, -5e-4, 5e-4], rtol=2e-2, atol=1e-6)


def test_masks_reach_the_ensemble_alone():
    """All masks off: no member moves, and what is lost is C51's."""
    learner = learner_of(VALUES, PROBS)
    hyper = Hyper(gamma=0.5, z_min=0.0, z_max=1.0)
    batch = batch_of(reward=1.5, action=1, masks=[[False, False]])
    after, result = update(agent_of(), learner, batch, hyper)
    for new, old in zip(
        jax.tree.leaves(after.ensemble.params),
        jax.tree.leaves(learner.ensemble.params),
        strict=True,
    ):
        np.testing.assert_array_equal(new, old)
    assert result.metrics["loss"] > 0
    np.testing.assert_allclose(result.metrics["clipped"], 1.0)  # the atoms are 1.5 and 2
    decision, _ = agent_of().act(
        learner,
        (),
        OBS,
        jnp.array(True),
        clock_at(),
        hyper._replace(mask_probability=0.0),
        KEY,
    )
    np.testing.assert_array_equal(decision.extras, [False, False])


def test_priors_have_their_own_scales():
    """Prior outputs of 1 for action 0: 20 in every member, and odds e^5 : 1 in C51."""
    learner = learner_of([[0.0, 0.0], [0.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]])
    learner = TwoLearners(
        ensemble=learner.ensemble._replace(prior=constants([[1.0, 0.0]] * 2)),
        c51=learner.c51._replace(prior=constant([[0.0, 1.0], [0.0, 0.0]])),
    )
    found = agent_of().estimates(learner, OBS, Hyper(z_min=0.0, z_max=1.0))
    np.testing.assert_allclose(found.value, [20.0, 0.0])
    odds = found.members.probs[0, 0, 1] / found.members.probs[0, 0, 0]
    np.testing.assert_allclose(odds, np.exp(5.0), rtol=1e-5)
