"""HyperAgent against numbers worked out on paper, and properties of its index."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.toys import KEY, OBS, SPEC, batch_of, clock_at, constant, learner_of
from winkel.agents import Spec
from winkel.agents.hyper_agent import Config, Hyper, HyperAgent, at_index, draw_sphere
from winkel.types import Dense, OneHot

NOW = clock_at()
AGENT = HyperAgent(Config(hidden=(), index_size=2, num_indices=3, clip_norm=0.0), SPEC)


def hypermodel(matrix, mean):
    """The same matrix [A, M] and mean [A] in every state."""
    return constant(np.concatenate([matrix, np.asarray(mean)[:, None]], axis=1))


ZERO = hypermodel(np.zeros((2, 2)), [0.0, 0.0])


def test_without_an_index_it_is_double_dqn():
    """Q = [1, 4], Q̃ = [2, 3]: the target is 0.5 + 0.9 · 3 = 3.2 and the loss (1 − 3.2)²."""
    online, target = (hypermodel(np.zeros((2, 2)), mean) for mean in ([1.0, 4.0], [2.0, 3.0]))
    batch = batch_of(masks=[[0.6, 0.8]])
    learner, update = jax.jit(AGENT.update)(
        learner_of(online, target, ZERO), batch, NOW, Hyper(gamma=0.9), KEY
    )
    np.testing.assert_allclose(update.priorities, [2.2**2], rtol=1e-6)
    np.testing.assert_array_equal(learner.params.layers[0].bias, online.layers[0].bias)


def test_the_prior_is_part_of_values_and_targets():
    """With 10 · [0, 0.5] the second action has 5, the target is 0.5 + 0.9 · 5 = 5."""
    prior = hypermodel(np.zeros((2, 2)), [0.0, 0.5])
    batch, hyper = batch_of(masks=[[0.6, 0.8]]), Hyper(gamma=0.9, prior_scale=10.0)
    _, update = jax.jit(AGENT.update)(learner_of(ZERO, prior=prior), batch, NOW, hyper, KEY)
    np.testing.assert_allclose(update.priorities, [5.0**2], rtol=1e-6)


def test_perturbations_follow_the_index():
    """Targets of two indices differ by σ (ξ_1 − ξ_2)ᵀz."""
    transition = jax.tree.map(lambda x: x[0], batch_of(masks=[[0.6, 0.8]]).transitions)
    learner, hyper = learner_of(ZERO, prior=ZERO), Hyper(perturbation=0.1)
    indices, values = AGENT._targets(learner, hyper, KEY, transition, OBS)
    expected = 0.5 + 0.1 * indices @ np.array([0.6, 0.8])
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert np.ptp(values) > 0


def test_the_index_decides_and_is_kept():
    """Values ± ξ_0: the action says the sign of ξ_0."""
    model = hypermodel(np.array([[1.0, 0.0], [-1.0, 0.0]]), [0.0, 0.0])
    learner = learner_of(model, prior=ZERO)

    def act(key, first, gamma):
        decision, index = AGENT.act(
            learner, jnp.array([1.0, 0.0]), OBS, first, NOW, Hyper(gamma=gamma), key
        )
        return decision.action, index

    keys = jax.random.split(KEY, 400)
    later, kept = jax.vmap(lambda k: act(k, jnp.array(False), 1.0))(keys)
    np.testing.assert_array_equal(kept, np.tile([1.0, 0.0], (400, 1)))
    assert not later.any()
    actions, drawn = jax.vmap(lambda k: act(k, jnp.array(True), 1.0))(keys)
    np.testing.assert_array_equal(actions, drawn[:, 0] < 0)
    np.testing.assert_allclose(jnp.linalg.norm(drawn, axis=1), 1.0, rtol=1e-5)
    _, some = jax.vmap(lambda k: act(k, jnp.array(False), 0.75))(keys)
    renewed = float(jnp.mean(some[:, 0] != 1.0))  # expected: 1 − γ, deviation 0.02
    assert 0.17 < renewed < 0.33


def test_estimates_are_mean_and_deviation_over_indices():
    model = hypermodel(np.array([[3.0, 4.0], [0.0, 1.0]]), [1.0, -2.0])
    found = AGENT.estimates(learner_of(model, prior=ZERO), OBS, Hyper())
    drawn = draw_sphere(KEY, (20_000, 2))
    values = jax.vmap(lambda index: at_index(model(OBS), index))(drawn)
    np.testing.assert_allclose(found.value, [1.0, -2.0])
    np.testing.assert_allclose(found.disagreement, jnp.std(values, axis=0), rtol=0.02)


GRID = OneHot((20, 20), triangle=True)


@pytest.mark.parametrize("spec", [Spec(GRID, 2), Spec(Dense((5,)), 3)])
def test_weights_start_as_the_authors_have_them(spec):
    agent = HyperAgent(Config(), spec)
    learner = agent.init(KEY, Hyper())
    weight = learner.params.layers[-1].weight.reshape(64, spec.num_actions, 5)
    np.testing.assert_allclose(jnp.linalg.norm(weight[..., 4]), 1.0, rtol=1e-5)
    deviation = (2 / (64 * spec.num_actions + 4)) ** 0.5
    np.testing.assert_allclose(jnp.std(weight[..., :4]), deviation, rtol=0.1)
    np.testing.assert_allclose(jnp.std(learner.params.layers[1].weight), (2 / 128) ** 0.5, rtol=0.1)
    first = (2 / (spec.inputs + 64)) ** 0.5
    np.testing.assert_allclose(jnp.std(learner.params.layers[0].weight), first, rtol=0.1)
    if not spec.one_hot:  # else the prior is a table
        rows = learner.prior.layers[-1].weight.reshape(64, spec.num_actions, 5)[..., :4]
        np.testing.assert_allclose(jnp.linalg.norm(rows, axis=-1), 1.0, rtol=1e-5)
