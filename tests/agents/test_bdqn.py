"""Bootstrapped DQN against numbers worked out on paper.

The toy world has two states, 0 and 1, shown as indices, and two actions. Networks without hidden
layers are then tables, so that every value is a number one writes down.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.toys import clock_at
from agents.toys import learner_of as learner
from winkel.agents import Spec
from winkel.agents.bdqn import BDQN, Config, Hyper
from winkel.networks import MLP
from winkel.networks.mlp import Lookup
from winkel.types import Batch, Dense, OneHot, Transition

SPEC = Spec(OneHot((2,)), num_actions=2)
NOW = clock_at()
FIRST, LATER = jnp.array(True), jnp.array(False)


def tables(values):
    """An ensemble of tables, from numbers [M, states, actions]."""

    def network(table):
        layer = Lookup(weight=table, bias=jnp.zeros(table.shape[1]))
        return MLP(layers=(layer,), rows=table.shape[1])

    return jax.vmap(network)(jnp.array(values, float))


def weights(ensemble):
    return ensemble.layers[0].weight


def gradient(learner):
    """What Adam saw in its first step: its first moment is a tenth of it."""
    return weights(learner.opt_state.mu) / 0.1


def batch_of(masks, reward=0.5, discount=1.0):
    """As many transitions from state 0 by action 1 into state 1 as there are masks."""
    count = len(masks)
    transitions = Transition(
        obs=jnp.zeros(count, int),
        action=jnp.ones(count, int),
        reward=jnp.full(count, reward),
        discount=jnp.full(count, discount),
        next_obs=jnp.ones(count, int),
        boundary=jnp.zeros(count, bool),
        extras=jnp.array(masks),
    )
    return Batch(transitions, weights=jnp.ones(count), indices=jnp.arange(count))


PARAMS = [[[0.0, 1.0], [4.0, 0.0]], [[0.0, 2.0], [0.0, 7.0]]]
TARGET = [[[0.0, 0.0], [1.0, 2.0]], [[0.0, 0.0], [5.0, 3.0]]]
PRIOR = [[[0.0, 0.1], [0.3, 0.0]], [[0.0, -0.2], [0.0, 0.4]]]


def learner_of(params=PARAMS, target=TARGET, prior=PRIOR):
    return learner(*map(tables, (params, target, prior)))


def agent_of(**settings):
    return BDQN(Config(**{"num_members": 2, "hidden": (), **settings}), SPEC)


def updated(agent, learner, batch, **hyper):
    hyper = Hyper(**{"gamma": 0.9, "prior_scale": 10.0, **hyper})
    return jax.jit(agent.update)(learner, batch, NOW, hyper, jax.random.key(0))


@pytest.mark.parametrize(
    ("double", "prior_scale", "targets"),
    [
        # Q̃ + 10 p at state 1 is [1 + 3, 2 + 0] for member 0 and [5 + 0, 3 + 4] for member 1: the
        # maxima are 4 and 7, the targets 0.5 + 0.9 · 4 and 0.5 + 0.9 · 7.
        (False, 10.0, [4.1, 6.8]),
        # Without priors, Q of state 1 is [4, 0] and [0, 7], Q̃ is [1, 2] and [5, 3]. The target
        # networks' own choices are worth 2 and 5, the online choices 0 and 1 are worth 1 and 3.
        (False, 0.0, [2.3, 5.0]),
        (True, 0.0, [1.4, 3.2]),
    ],
)
def test_each_member_learns_from_its_own_target_network_and_prior(double, prior_scale, targets):
    """The gradient in the entry (0, 1) is the prediction, [1, 2] and 10 p, less the target."""
    learner, _ = updated(
        agent_of(double=double), learner_of(), batch_of([[True, True]]), prior_scale=prior_scale
    )
    predicted = np.array([1.0, 2.0]) + prior_scale * np.array([0.1, -0.2])
    np.testing.assert_allclose(gradient(learner)[:, 0, 1], predicted - targets, rtol=1e-5)


def test_loss_and_gradient_with_the_prior_in_prediction_and_target():
    """Predictions Q + 10 p at (0, 1): 1 + 10 · 0.1 = 2 and 2 − 10 · 0.2 = 0.

    The targets are 4.1 and 6.8, the errors −2.1 and −6.8, the losses ½ · 4.41 = 2.205 and
    ½ · 46.24 = 23.12: 25.325 in all. The derivative in the entry (0, 1) is the error.
    """
    learner, update = updated(agent_of(), learner_of(), batch_of([[True, True]]))
    np.testing.assert_allclose(update.metrics["loss"], 25.325, rtol=1e-6)
    np.testing.assert_allclose(update.priorities, [25.325], rtol=1e-6)
    expected = [[[0.0, -2.1], [0.0, 0.0]], [[0.0, -6.8], [0.0, 0.0]]]
    np.testing.assert_allclose(gradient(learner), expected, rtol=1e-5)
    # Adam's first step is the learning rate against the sign, for errors far above its epsilon.
    np.testing.assert_allclose(weights(learner.params)[:, 0, 1], [1.001, 2.001], rtol=1e-6)
    np.testing.assert_array_equal(weights(learner.prior), np.float32(PRIOR))


def test_no_value_follows_termination():
    """The target is 0.5, the errors 2 − 0.5 and 0 − 0.5, the loss ½ (2.25 + 0.25)."""
    _, update = updated(agent_of(), learner_of(), batch_of([[True, True]], discount=0.0))
    np.testing.assert_allclose(update.metrics["loss"], 1.25, rtol=1e-6)


def test_huber_loss():
    """Of width 1: 2.1 − ½ = 1.6 and 6.8 − ½ = 6.3, with derivatives −1."""
    agent = agent_of(huber_width=1.0)
    learner, update = updated(agent, learner_of(), batch_of([[True, True]]))
    np.testing.assert_allclose(update.metrics["loss"], 7.9, rtol=1e-6)
    np.testing.assert_allclose(gradient(learner)[:, 0, 1], [-1.0, -1.0], rtol=1e-5)


def test_a_member_learns_nothing_where_its_mask_is_off():
    """Member 1 never learns; member 0 from one of two transitions, averaged over both: −2.1 / 2."""
    before = learner_of()
    masks = [[True, False], [False, False]]
    after, update = updated(agent_of(), before, batch_of(masks))
    np.testing.assert_allclose(update.priorities, [2.205, 0.0], rtol=1e-6)
    np.testing.assert_allclose(update.metrics["loss"], 2.205 / 2, rtol=1e-6)
    np.testing.assert_allclose(gradient(after)[0, 0, 1], -1.05, rtol=1e-5)
    np.testing.assert_array_equal(gradient(after)[1], 0.0)
    np.testing.assert_array_equal(weights(after.params)[1], weights(before.params)[1])


def test_importance_weights_scale_the_loss_not_the_priorities():
    batch = batch_of([[True, True]])._replace(weights=jnp.array([0.5]))
    _, update = updated(agent_of(), learner_of(), batch)
    np.testing.assert_allclose(update.metrics["loss"], 25.325 / 2, rtol=1e-6)
    np.testing.assert_allclose(update.priorities, [25.325], rtol=1e-6)


def test_members_learn_as_if_alone():
    """Three updates of three members, and of each as an ensemble of its own."""
    spec = Spec(Dense((3,)), num_actions=2)
    settings = {"hidden": (4,), "batch_size": 5, "target_period": 2}
    together = BDQN(Config(num_members=3, **settings), spec)
    alone = BDQN(Config(num_members=1, **settings), spec)
    keys = jax.random.split(jax.random.key(1), 5)
    transitions = Transition(
        obs=jax.random.normal(keys[0], (5, 3)),
        action=jnp.array([0, 1, 1, 0, 1]),
        reward=jax.random.normal(keys[1], (5,)),
        discount=jnp.array([1.0, 1.0, 0.0, 1.0, 1.0]),
        next_obs=jax.random.normal(keys[2], (5, 3)),
        boundary=jnp.zeros(5, bool),
        extras=jax.random.bernoulli(keys[3], 0.5, (5, 3)),
    )

    def run(agent, learner, masks):
        update = jax.jit(agent.update)
        batch = Batch(transitions._replace(extras=masks), jnp.ones(5), jnp.arange(5))
        for number in range(3):
            clock = NOW._replace(updates=jnp.array(number))
            learner, _ = update(learner, batch, clock, Hyper(), keys[4])
        return learner

    start = jax.jit(together.init)(keys[4], Hyper())
    expected = run(together, start, transitions.extras)
    for i in range(3):
        member = jax.tree.map(lambda x, i=i: x[i : i + 1] if x.ndim else x, start)
        found = run(alone, member, transitions.extras[:, i : i + 1])
        for one, all_ in zip(
            jax.tree.leaves(found.target_params),
            jax.tree.leaves(expected.target_params),
            strict=True,
        ):
            np.testing.assert_allclose(one[0], all_[i], rtol=1e-5, atol=1e-6)


def test_target_networks_are_copied_in_time():
    agent, before = agent_of(target_period=2), learner_of()
    for updates, fresh in [(0, False), (1, True), (2, False)]:
        clock = NOW._replace(updates=jnp.array(updates))
        after, _ = jax.jit(agent.update)(
            before, batch_of([[True, True]]), clock, Hyper(), jax.random.key(0)
        )
        expected = after.params if fresh else before.target_params
        np.testing.assert_array_equal(weights(after.target_params), weights(expected))


def test_one_member_acts_for_an_episode():
    """Three members with three greedy actions in state 0, so that the action tells who acts."""
    spec = Spec(OneHot((2,)), num_actions=3)
    agent = BDQN(Config(num_members=3, hidden=()), spec)
    params = tables([[[1.0, 0.0, 0.0]] * 2, [[0.0, 1.0, 0.0]] * 2, [[0.0, 0.0, 1.0]] * 2])
    members = learner(params, prior=tables(np.zeros((3, 2, 3))))

    @jax.jit
    def decide(actor, first, key):
        return agent.act(members, actor, jnp.array(0), first, NOW, Hyper(), key)

    keys = jax.random.split(jax.random.key(3), 300)
    actor = agent.init_actor(keys[0])
    for key in keys[:20]:
        decision, actor_after = decide(actor, LATER, key)
        assert decision.action == actor_after == actor
    decisions, actors = jax.vmap(lambda key: decide(actor, FIRST, key))(keys)
    np.testing.assert_array_equal(decisions.action, actors)
    # 300 draws of three: 100 each, within four standard deviations of 8.2.
    assert (np.abs(np.bincount(actors, minlength=3) - 100) < 33).all()
    assert (np.bincount(jax.vmap(agent.init_actor)(keys), minlength=3) > 67).all()


def test_the_active_member_acts_with_its_prior():
    """Both networks have [2, 1] in state 1; 10 p is [3, 0] for member 0 and [0, 4] for member 1."""
    act = jax.jit(agent_of().act)
    learner = learner_of(params=[[[0.0, 0.0], [2.0, 1.0]]] * 2)
    hyper = Hyper(prior_scale=10.0)
    for member, expected in [(0, 0), (1, 1)]:
        active = jnp.array(member)
        decision, _ = act(learner, active, jnp.array(1), LATER, NOW, hyper, jax.random.key(0))
        assert decision.action == expected


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_masks_are_drawn_for_each_member_and_step(probability):
    agent = agent_of(num_members=2)
    hyper = Hyper(mask_probability=probability)

    @jax.jit
    @jax.vmap
    def masks(key):
        decision, _ = agent.act(learner_of(), jnp.array(0), jnp.array(0), LATER, NOW, hyper, key)
        return decision.extras

    found = np.asarray(masks(jax.random.split(jax.random.key(4), 400)))
    assert found.dtype == bool
    assert found.shape == (400, 2)
    # At ½, 200 of 400 for each and 100 for both, within four standard deviations of 10 and 8.7.
    slack = 40 if probability == 0.5 else 0
    assert (np.abs(found.sum(0) - 400 * probability) <= slack).all()
    assert abs(found.all(1).sum() - 400 * probability**2) <= slack


def test_estimates():
    """Q + 10 p of state 1: [7, 0] and [0, 11]; means 3.5 and 5.5, deviations the same."""
    found = jax.jit(agent_of().estimates)(learner_of(), jnp.array(1), Hyper(prior_scale=10.0))
    np.testing.assert_allclose(found.value, [3.5, 5.5], rtol=1e-6)
    np.testing.assert_allclose(found.disagreement, [3.5, 5.5], rtol=1e-6)
    np.testing.assert_allclose(found.members.locations, [[[7.0], [0.0]], [[0.0], [11.0]]])
    np.testing.assert_array_equal(found.members.probs, np.ones((2, 2, 1)))
    assert np.isnan(found.bonus).all()
    assert agent_of().member_names() == ("member_0", "member_1")


def test_a_tabulated_prior_is_the_same_function():
    """At every index, and at the one past the end that shows nothing; dense ones stay."""
    shape = {"inputs": 6, "hidden": (5, 4), "outputs": (2, 3)}
    network = MLP.init(jax.random.key(6), one_hot=True, **shape)
    biased = jax.tree.map(lambda x: x + 0.1, network)
    table = jax.jit(MLP.tabulate)(biased)
    assert len(table.layers) == 1
    indices = jnp.arange(7)
    np.testing.assert_allclose(
        jax.vmap(table)(indices), jax.vmap(biased)(indices), rtol=1e-5, atol=1e-6
    )
    dense = MLP.init(jax.random.key(6), one_hot=False, **shape)
    assert dense.tabulate() is dense
