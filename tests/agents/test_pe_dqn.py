"""PE-DQN against numbers worked out on paper.

The toy has two states, s and s', seen as indices, two actions, K = 2 atoms, no hidden layer: the
tables below *are* the networks' outputs. γ = 1/2, the prior's scale is 2, and values lie in [0, 4],
so that a categorical member has its atoms at 0 and 4, one of bonuses at 0 and 8. Logits (0, log 3)
are the probabilities (1/4, 3/4). What follows from the tables, written {…} for equally likely
atoms and p for the probability of the upper category:

    online, state s             action 0                     action 1
    quantile + 2 prior          {3, 4}       mean 7/2        {3/2, 7/2}   mean 5/2
    categorical                 p = 3/4      mean 3          p = 1/4      mean 1
    value                       13/4                         7/4
    w_avg                       1/4·3 + 1/4·1 + 1/2·0 = 1    1/2·3/2 + 1/4·7/2 + 1/4·1/2 = 7/4
    raw bonus                   ({0, 2}: 1 + p = 1/4: 2)/2   ({2, 4}: 3 + p = 1/4: 2)/2
                                = 3/2                        = 5/2
    bonus                       3/2 + 1 = 5/2                5/2 + 7/4 = 17/4

    online, state s'
    quantile + 2 prior          {1, 3}       mean 2          {2, 4}       mean 3
    categorical                 p = 3/4      mean 3          p = 1/4      mean 1
    value                       5/2                          2
    w_avg                       1/4·1 + 1/4·3 + 1/2·1 = 3/2  1/2·2 + 1/4·4 + 1/4·0 = 2
    raw bonus                   ({0, 1}: 1/2 + p = 1/4: 2)/2 ({2, 4}: 3 + p = 1/2: 4)/2
                                = 5/4                        = 7/2
    bonus                       5/4 + 3/2 = 11/4             7/2 + 2 = 11/2

    target, state s'
    quantile + 2 prior          {0, 2}       mean 1          {3, 4}       mean 7/2
    categorical                 p = 1/2      mean 2          p = 3/4      mean 3
    raw bonus                   {0, 2} and p = 1/4           {1, 3} and p = 3/4

w_1 above is the integral of |F⁻¹ − G⁻¹| over the levels, piece by piece. In s' the online networks
prefer action 0 (the target networks would prefer 1), and with the bonus action 1.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.agents import Spec
from winkel.agents.pe_dqn import PEDQN, Config, Hyper
from winkel.types import Atoms, Batch, Clock, Dense, OneHot, Transition

LOG3 = np.log(3.0)
KEY = jax.random.key(0)
NOW, THEN, NOTHING = (jnp.asarray(index, jnp.int32) for index in range(3))
SPEC = Spec(observation=OneHot((2,)), num_actions=2)
HYPER = Hyper(learning_rate=0.1, gamma=0.5, prior_scale=2.0, z_min=0.0, z_max=4.0)

# [member, state, action, atom]: quantiles, then logits of categories.
VALUE = [
    [[[4, 3], [-0.5, 2.5]], [[0, 1], [2, 5]]],
    [[[0, LOG3], [LOG3, 0]], [[0, LOG3], [LOG3, 0]]],
]
TARGET_VALUE = [
    [[[0, 0], [-1, 1]], [[-1, 0], [3, 5]]],
    [[[0, 0], [0, LOG3]], [[0, 0], [0, LOG3]]],
]
PRIOR = [[[[-0.5, 0.5], [1, 0.5]], [[0.5, 1], [0, -0.5]]]]
BONUS = [
    [[[0, 2], [2, 4]], [[0, 1], [2, 4]]],
    [[[LOG3, 0], [LOG3, 0]], [[LOG3, 0], [0, 0]]],
]
TARGET_BONUS = [
    [[[0, 0], [0, 0]], [[0, 2], [1, 3]]],
    [[[0, 0], [0, 0]], [[LOG3, 0], [0, LOG3]]],
]


def made(spec=SPEC, **settings):
    """The toy agent with other settings."""
    return PEDQN(
        config=Config(**({"num_atoms": 2, "hidden": (), "batch_size": 1} | settings)), spec=spec
    )


def filled(ensemble, table):
    """The ensemble with these outputs by state, and no biases."""
    shape = ensemble.layers[0].weight.shape
    weights = jnp.asarray(np.asarray(table, np.float32).reshape(shape))
    return eqx.tree_at(lambda e: e.layers[0].weight, ensemble, weights)


def learner_of(
    agent,
    value=VALUE,
    target_value=TARGET_VALUE,
    prior=PRIOR,
    bonus=BONUS,
    target_bonus=TARGET_BONUS,
):
    """A learner of hand-set weights; nothing is drawn."""
    shapes = jax.eval_shape(agent.init, KEY, HYPER)
    learner = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def params(value, bonus):
        old = learner.params
        return old._replace(
            value=filled(old.value, value),
            bonus=None if old.bonus is None else filled(old.bonus, bonus),
        )

    return learner._replace(
        params=params(value, bonus),
        target_params=params(target_value, target_bonus),
        prior=None if learner.prior is None else filled(learner.prior, prior),
    )


def step_of(reward=1.0, discount=1.0, boundary=False):
    """From s to s' by action 1."""
    return Transition(
        obs=NOW,
        action=jnp.asarray(1, jnp.int32),
        reward=jnp.asarray(reward, jnp.float32),
        discount=jnp.asarray(discount, jnp.float32),
        next_obs=THEN,
        boundary=jnp.asarray(boundary),
        extras=(),
    )


ENDED = {"discount": 0.0, "boundary": True}


def batch_of(*transitions, weights=None):
    count = len(transitions)
    return Batch(
        transitions=jax.tree.map(lambda *x: jnp.stack(x), *transitions),
        weights=jnp.ones(count) if weights is None else jnp.asarray(weights),
        indices=jnp.arange(count),
    )


def clock_at(progress=0.0, updates=0):
    count = jnp.asarray(updates, jnp.int32)
    return Clock(
        env_steps=count, episodes=count, updates=count, progress=jnp.asarray(progress, jnp.float32)
    )


# The agent is static, all else is traced, as in a run; quick to compile rather than quick to run.
compiled = functools.partial(
    jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0}
)


@compiled
def predict_and_act(agent, learner, obs, clock, hyper):
    decision, actor = agent.act(learner, (), obs, jnp.zeros((), bool), clock, hyper, KEY)
    return agent.estimates(learner, obs, hyper), decision, actor


@compiled
def targets_and_loss(agent, learner, transition, beta, hyper):
    """Of one transition, without a gradient."""
    found = agent.targets(learner, beta, hyper, transition, transition.next_obs)
    return found, agent.loss(learner.prior, hyper, learner.params, transition, found)


@compiled
def update(agent, learner, batch, clock, hyper):
    return agent.update(learner, batch, clock, hyper, KEY)


def estimates(agent, learner, obs, hyper=HYPER):
    return predict_and_act(agent, learner, obs, clock_at(), hyper)[0]


def members_of(found):
    """The distributions of each member."""
    return [Atoms(*x) for x in zip(*found.members, strict=True)]


def action(agent, learner, obs=NOW, progress=0.0, beta=5.0):
    hyper = HYPER._replace(beta=beta)
    return int(predict_and_act(agent, learner, obs, clock_at(progress), hyper)[1].action)


def targets(agent, learner, transition, beta=5.0):
    return targets_and_loss(agent, learner, transition, jnp.asarray(beta), HYPER)[0]


def loss(agent, learner, transition, beta=5.0):
    return targets_and_loss(agent, learner, transition, jnp.asarray(beta), HYPER)[1]


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def assert_distribution(atoms, locations, probs):
    close(atoms.locations, locations)
    close(atoms.probs, probs)


def unchanged(first, second):
    return all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    )


# What the networks say


def test_members_are_decoded_with_the_prior_added_to_quantiles_only():
    agent = made()
    learner = learner_of(agent)
    quantiles, categories = members_of(estimates(agent, learner, NOW))
    # (4, 3) + 2 (−1/2, 1/2) and (−1/2, 5/2) + 2 (1, 1/2)
    assert_distribution(quantiles, [[3, 4], [3 / 2, 7 / 2]], np.full((2, 2), 1 / 2))
    assert_distribution(categories, [[0, 4], [0, 4]], [[1 / 4, 3 / 4], [3 / 4, 1 / 4]])
    # (0, 1) + 2 (1/2, 1) and (2, 5) + 2 (0, −1/2)
    quantiles, _ = members_of(estimates(agent, learner, THEN))
    assert_distribution(quantiles, [[1, 3], [2, 4]], np.full((2, 2), 1 / 2))


def test_the_prior_of_categories_is_added_before_the_softmax():
    """Logits (0, 0) + 2 (0, log 3 / 2); the quantiles stay as they are."""
    agent = made(priors=("categorical",))
    value = [VALUE[0], np.zeros((2, 2, 2))]
    prior = [np.broadcast_to([0, LOG3 / 2], (2, 2, 2))]
    learner = learner_of(agent, value=value, prior=prior)
    quantiles, categories = members_of(estimates(agent, learner, NOW))
    assert_distribution(quantiles, [[4, 3], [-1 / 2, 5 / 2]], np.full((2, 2), 1 / 2))
    assert_distribution(categories, [[0, 4], [0, 4]], np.full((2, 2), [1 / 4, 3 / 4]))


def test_without_priors_there_are_no_prior_networks():
    agent = made(priors=())
    learner = learner_of(agent)
    assert learner.prior is None
    # In s' then {0, 1} and p = 3/4, (1/2 + 3)/2, against {2, 5} and p = 1/4, (7/2 + 1)/2: action 1,
    # where the target is 1 + 1/2 {3, 5} and 1 + 1/2 {0, 4} with p = 3/4.
    found = targets(agent, learner, step_of()).value[0]
    assert_distribution(found, [5 / 2, 7 / 2, 1, 3], [1 / 4, 1 / 4, 1 / 8, 3 / 8])


@pytest.mark.parametrize(
    ("state", "value", "disagreement", "bonus"),
    [
        (NOW, [13 / 4, 7 / 4], [1, 7 / 4], [3 / 2 + 1, 5 / 2 + 7 / 4]),
        (THEN, [5 / 2, 2], [3 / 2, 2], [5 / 4 + 3 / 2, 7 / 2 + 2]),
    ],
    ids=["s", "s'"],
)
def test_value_disagreement_and_bonus(state, value, disagreement, bonus):
    agent = made()
    found = estimates(agent, learner_of(agent), state)
    close(found.value, value)
    close(found.disagreement, disagreement)
    close(found.bonus, bonus)
    assert agent.member_names() == ("quantile", "categorical")


def test_the_bonus_has_a_support_of_its_own():
    """0 and 2 (4 − 0), or 0 and 2 (3 − −1) for values in [−1, 3]; no prior is added.

    Raw bonuses in s': (1/2 + 8 · 1/4)/2 and (3 + 8 · 1/2)/2.
    """
    agent = made()
    for hyper in (HYPER, HYPER._replace(z_min=-1.0, z_max=3.0)):
        found = estimates(agent, learner_of(agent), THEN, hyper)
        close(found.bonus - found.disagreement, [5 / 4, 7 / 2])


def test_of_three_members_the_disagreement_is_the_average_pair():
    """{1, 3}, p = 3/4 on {0, 4}, and {2, 4}, the third from (0, 0) + 2 (1, 2).

    w_1 of the pairs: 3/2 (see above), 1, and 1/4·2 + 1/4·2 + 1/2·0 = 1. Over ordered pairs,
    2 (3/2 + 1 + 1)/(3·2) = 7/6. The value: (2 + 3 + 3)/3.
    """
    agent = made(projections=("quantile", "categorical", "quantile"))
    assert agent.config.prior_members == (0, 2)
    value = [*VALUE, np.zeros((2, 2, 2))]
    prior = [*PRIOR, np.broadcast_to([1, 2], (2, 2, 2))]
    learner = learner_of(
        agent, value, value, prior, [*BONUS, BONUS[0]], [*TARGET_BONUS, TARGET_BONUS[0]]
    )
    found = estimates(agent, learner, THEN)
    close(found.members.locations[2], [[2, 4], [2, 4]])
    close(found.disagreement[0], 7 / 6)
    close(found.value[0], 8 / 3)
    # Raw bonuses of action 0: means 1/2, 2 and again 1/2.
    close(found.bonus[0], (1 / 2 + 2 + 1 / 2) / 3 + 7 / 6)


def test_dense_observations_enter_as_numbers():
    """Of one number x with weights W and biases c: quantiles x W + c; nothing is looked up."""
    agent = made(Spec(observation=Dense((1,)), num_actions=2), priors=(), propagate=False)
    value = [[[[0.5, 1], [1, 1]]], [[[0, LOG3 / 2], [0, 0]]]]
    learner = learner_of(agent, value=value, target_value=value)
    biases = jnp.asarray([[1, 1, 0, 0], [0, 0, LOG3, 0]], jnp.float32)
    learner = eqx.tree_at(lambda e: e.params.value.layers[0].bias, learner, biases)
    found = estimates(agent, learner, jnp.array([2.0]))
    # 2 (1/2, 1) + 1 = (2, 3) and 2 (1, 1); logits (0, log 3) and (log 3, 0).
    close(found.members.locations[0], [[2, 3], [2, 2]])
    close(found.members.probs[1], [[1 / 4, 3 / 4], [3 / 4, 1 / 4]])
    # Means (5/2 + 3)/2 and (2 + 1)/2; w_1: 1/4·2 + 1/4·2 + 1/2·1 and 3/4·2 + 1/4·2.
    close(found.value, [11 / 4, 3 / 2])
    close(found.bonus, [3 / 2, 2])


def test_the_all_zero_observation_has_the_biases_as_outputs():
    agent = made()
    found = estimates(agent, learner_of(agent), NOTHING)
    close(found.members.locations[0], np.zeros((2, 2)))
    # w_1 of 0 and of 0 or 4 with 1/2 each; the raw bonus (0 + 4)/2.
    close(found.disagreement, [2, 2])
    close(found.bonus, [4, 4])


def test_disagreement_on_the_grid():
    """Projected onto {0, 4}, they differ by 4 |p − q|, the difference of their means."""
    agent = made(distance="grid")
    learner = learner_of(agent)
    close(estimates(agent, learner, NOW).disagreement, [7 / 2 - 3, 5 / 2 - 1])
    found = estimates(agent, learner, THEN)
    close(found.disagreement, [3 - 2, 3 - 1])
    close(found.bonus, [5 / 4 + 1, 7 / 2 + 2])
    close(found.value, [5 / 2, 2])
    # Only the distance is taken there, members stay exact.
    close(found.members.locations[0], [[1, 3], [2, 4]])


# What it does


@pytest.mark.parametrize(
    ("beta", "expected"),
    # In s 13/4 + 5/2 β against 7/4 + 17/4 β: equal at 6/7. (By the raw bonus alone at 3/2, by
    # w_avg alone at 2.)
    [(0.0, 0), (0.8, 0), (0.9, 1), (1.4, 1), (5.0, 1)],
)
def test_the_action_is_optimistic(beta, expected):
    agent = made()
    assert action(agent, learner_of(agent), beta=beta) == expected


def test_acting_has_no_state():
    agent = made()
    assert agent.init_actor(KEY) == ()
    _, decision, actor = predict_and_act(agent, learner_of(agent), NOW, clock_at(), HYPER)
    assert decision.extras == actor == ()


@pytest.mark.parametrize(
    ("progress", "beta", "expected"),
    [(0.0, 5.0, 1), (1 / 6, 2.5, 1), (0.3, 0.5, 0), (1 / 3, 0.0, 0), (1.0, 0.0, 0)],
)
def test_beta_decays_over_a_third_of_the_run(progress, beta, expected):
    """Action 1 is chosen in s down to β = 6/7."""
    agent = made()
    learner = learner_of(agent)
    assert action(agent, learner, progress=progress) == expected
    _, result = update(agent, learner, batch_of(step_of()), clock_at(progress), HYPER)
    close(result.metrics["beta"], beta)
    # a'_ε in s' is 1 down to β = 2/11.
    close(result.metrics["loss"], loss(agent, learner, step_of(), beta))
    close(result.metrics["loss"], LOSS if beta > 2 / 11 else GREEDY_LOSS)


# What it learns from

UNEVEN = [1 / 4, 1 / 4, 1 / 8, 3 / 8]
"""Masses of half {1, 3} and half p = 3/4: the raw bonus of the target networks at (s', 1)."""


@pytest.mark.parametrize("boundary", [False, True], ids=["going on", "truncated"])
def test_the_mixture_target_is_that_of_the_online_greedy_action(boundary):
    """1 + 1/2 Z, Z from {0, 2} and p = 1/2 on {0, 4}: the *target* networks at (s', 0)."""
    agent = made()
    found = targets(agent, learner_of(agent), step_of(boundary=boundary))
    for target in found.value:
        assert_distribution(target, [1, 2, 1, 3], [1 / 4] * 4)
    assert len(found.value) == 2


def test_nothing_comes_after_termination():
    agent = made()
    found = targets(agent, learner_of(agent), step_of(**ENDED))
    for target in found.value:
        assert_distribution(target, [1, 1, 1, 1], [1 / 4] * 4)
    assert_distribution(found.bonus, [0, 0, 0, 0], UNEVEN)


@pytest.mark.parametrize("beta", [5.0, 0.2])
def test_the_bonus_target_follows_the_exploring_action(beta):
    """γ (b_raw + w_avg) at (s', 1): 1/2 ({1, 3, 0, 8} + 2), w_avg by the online networks.

    a'_ε = 1 from β = 2/11, where 5/2 + 11/4 β = 2 + 11/2 β; at β = 0.2 the raw bonus alone (2/9)
    or w_avg alone (1) would choose 0.
    """
    agent = made()
    found = targets(agent, learner_of(agent), step_of(), beta)
    assert_distribution(found.bonus, [3 / 2, 5 / 2, 1, 5], UNEVEN)


def test_without_beta_the_exploring_action_is_greedy():
    """At (s', 0): 1/2 ({0, 2} or p = 1/4 on {0, 8}, + 3/2)."""
    agent = made()
    found = targets(agent, learner_of(agent), step_of(), 0.0)
    assert_distribution(found.bonus, [3 / 4, 7 / 4, 3 / 4, 19 / 4], [1 / 4, 1 / 4, 3 / 8, 1 / 8])


def test_bonuses_go_on_after_an_episode_if_asked():
    agent = made(episodic_bonus=False)
    found = targets(agent, learner_of(agent), step_of(**ENDED))
    assert_distribution(found.bonus, [3 / 2, 5 / 2, 1, 5], UNEVEN)
    for target in found.value:
        assert_distribution(target, [1, 1, 1, 1], [1 / 4] * 4)


@pytest.mark.parametrize(
    ("episodic", "end", "expected"),
    [
        (True, {}, [9 / 4, 13 / 4, 7 / 4, 23 / 4]),  # 7/4 + 1/2 {1, 3, 0, 8}
        (True, ENDED, [7 / 4] * 4),  # the last disagreement is still to be had
        (False, ENDED, [9 / 4, 13 / 4, 7 / 4, 23 / 4]),
    ],
)
def test_the_disagreement_can_be_learned_as_a_reward(episodic, end, expected):
    """w_avg(s, 1) = 7/4 by the online networks, then γ b(s', a'_ε)."""
    agent = made(intrinsic_reward="learned", episodic_bonus=episodic)
    found = targets(agent, learner_of(agent), step_of(**end))
    assert_distribution(found.bonus, expected, UNEVEN)


def test_what_is_learned_is_not_added_again():
    """13/4 + 3/2 β against 7/4 + 5/2 β: equal at 3/2. In s' 5/2 + 5/4 β and 2 + 7/2 β, at 2/9."""
    agent = made(intrinsic_reward="learned")
    learner = learner_of(agent)
    found = estimates(agent, learner, NOW)
    close(found.bonus, [3 / 2, 5 / 2])
    close(found.disagreement, [1, 7 / 4])
    assert [action(agent, learner, beta=beta) for beta in (1.4, 1.6)] == [0, 1]
    # a'_ε = 0 at β = 0.2: the raw bonus of {0, 2} and p = 1/4.
    found = targets(agent, learner, step_of(), 0.2)
    assert_distribution(found.bonus, [7 / 4, 11 / 4, 7 / 4, 23 / 4], [1 / 4, 1 / 4, 3 / 8, 1 / 8])


def test_independent_members_have_targets_and_actions_of_their_own():
    """In s' online quantiles prefer action 1 (3 > 2), categories 0 (3 > 1).

    1 + 1/2 {3, 4} for the quantile model, 1 + 1/2 {0, 4} with p = 1/2 for the categorical one.
    """
    agent = made(backup="independent")
    found = targets(agent, learner_of(agent), step_of())
    assert_distribution(found.value[0], [5 / 2, 3], [1 / 2, 1 / 2])
    assert_distribution(found.value[1], [1, 3], [1 / 2, 1 / 2])
    assert_distribution(found.bonus, [3 / 2, 5 / 2, 1, 5], UNEVEN)


def test_without_propagation_the_disagreement_is_the_bonus():
    agent = made(propagate=False)
    learner = learner_of(agent)
    assert learner.params.bonus is None
    assert learner.target_params.bonus is None
    close(estimates(agent, learner, NOW).bonus, [1, 7 / 4])
    assert targets(agent, learner, step_of()).bonus is None
    # 13/4 + β against 7/4 + 7/4 β: equal at 2.
    assert [action(agent, learner, beta=beta) for beta in (1.9, 2.1)] == [0, 1]


@pytest.mark.parametrize(
    ("reward", "clipped"),
    # r + 1/2 {0, 2} and r + 1/2 {0, 4}, 1/4 each, on a support from 0 to 4.
    [(1.0, 0.0), (2.0, 0.0), (3.0, 1 / 4), (4.0, 1 / 2), (5.0, 1.0), (-1.0, 1 / 2), (-3.0, 1.0)],
)
def test_the_mass_outside_the_support_is_counted(reward, clipped):
    agent = made()
    found = targets(agent, learner_of(agent), step_of(reward))
    close(found.clipped, clipped)


# Losses

QUANTILE_LOSS = (3 / 4 * 1 / 2 * 1 / 2 + 1 / 4 * (1 / 4 * 1 / 2 + 1 / 4 * 3 / 2)) + 1 / 4 * 7 / 4
"""{3/2, 7/2} and the target 1, 2, 3 with 1/2, 1/4, 1/4, mean 7/4: 3/2 at τ = 1/4 is above by 1/2
half the time, else below by 1/2 or 3/2; 7/2 at τ = 3/4 is above all of it, by 7/4 on average.
Together 5/16 + 7/16."""

CATEGORICAL_LOSS = 9 / 16 * np.log((9 / 16) / (3 / 4)) + 7 / 16 * np.log((7 / 16) / (1 / 4))
"""The target's mean 7/4 is 7/16 of the way from 0 to 4; the model says 1/4."""

BONUS_QUANTILE_LOSS = (
    3 / 4 * (1 / 4 * 1 / 2 + 1 / 8 * 1)
    + 1 / 4 * (1 / 4 * 1 / 2 + 3 / 8 * 3)
    + 1 / 4 * (1 / 4 * 5 / 2 + 1 / 4 * 3 / 2 + 1 / 8 * 3)
    + 3 / 4 * (3 / 8 * 1)
)
"""{2, 4} and the target 3/2, 5/2, 1, 5 with 1/4, 1/4, 1/8, 3/8: 2 at τ = 1/4 is above the first and
the third, 4 at τ = 3/4 is above all but the last. Together 3/16 + 5/16 + 11/32 + 9/32 = 9/8."""

BONUS_CATEGORICAL_LOSS = 5 / 8 * np.log((5 / 8) / (3 / 4)) + 3 / 8 * np.log((3 / 8) / (1 / 4))
"""3 is 3/8 of the way from 0 to 8; the model says 1/4."""

LOSS = QUANTILE_LOSS + CATEGORICAL_LOSS + BONUS_QUANTILE_LOSS + BONUS_CATEGORICAL_LOSS

GREEDY_LOSS = (
    QUANTILE_LOSS
    + CATEGORICAL_LOSS
    + (3 / 4 * (1 / 4 * 5 / 4 + 1 / 4 * 1 / 4 + 3 / 8 * 5 / 4) + 1 / 4 * (1 / 8 * 11 / 4))
    + (1 / 4 * (1 / 4 * 13 / 4 + 1 / 4 * 9 / 4 + 3 / 8 * 13 / 4) + 3 / 4 * (1 / 8 * 3 / 4))
    + (13 / 16 * np.log((13 / 16) / (3 / 4)) + 3 / 16 * np.log((3 / 16) / (1 / 4)))
)
"""The bonus target of the greedy action 0: 3/4, 7/4, 3/4, 19/4 with 1/4, 1/4, 3/8, 1/8. {2, 4} are
above all but the last; the mean 3/2 is 3/16 of 8, the model says 1/4."""

ENDED_LOSS = (3 / 4 * 1 / 2 + 1 / 4 * 5 / 2) + 0 + (3 / 4 * 2 + 1 / 4 * 4) + np.log(4 / 3)
"""Targets 1 and 0, all quantiles above them: 3/2 and 7/2 by 1/2 and 5/2, 2 and 4 by themselves.
p = 1/4 is right for 1 in [0, 4]; that the bonus is 0 is certain, the model says 3/4."""


def test_the_loss_is_the_sum_over_all_models():
    agent = made()
    learner = learner_of(agent)
    for transition, expected in ((step_of(), LOSS), (step_of(**ENDED), ENDED_LOSS)):
        _, result = update(agent, learner, batch_of(transition), clock_at(), HYPER)
        close(result.metrics["loss"], expected)
        close(result.priorities, [expected])
        close(result.metrics["clipped"], 0.0)


def test_the_loss_of_a_batch_is_weighted_and_averaged():
    agent = made(batch_size=2)
    learner = learner_of(agent)
    batch = batch_of(step_of(), step_of(**ENDED), weights=[0.5, 3.0])
    _, result = update(agent, learner, batch, clock_at(), HYPER)
    close(result.metrics["loss"], (0.5 * LOSS + 3.0 * ENDED_LOSS) / 2)
    close(result.priorities, [LOSS, ENDED_LOSS])
    batch = batch_of(step_of(3.0), step_of(-1.0))
    _, result = update(agent, learner, batch, clock_at(), HYPER)
    close(result.metrics["clipped"], (1 / 4 + 1 / 2) / 2)


HALF_NOT_A_QUARTER = 1 / 2 * np.log((1 / 2) / (3 / 4)) + 1 / 2 * np.log((1 / 2) / (1 / 4))
"""Of the categorical model where the target's mean is 2."""

VARIANTS = {
    "independent": (
        {"backup": "independent"},
        {},
        # 3/2 is below 5/2 and 3, by 5/4 on average, 7/2 above them by 3/4; the mean of {1, 3} is 2.
        (1 / 4 * 5 / 4 + 1 / 4 * 3 / 4)
        + HALF_NOT_A_QUARTER
        + BONUS_QUANTILE_LOSS
        + BONUS_CATEGORICAL_LOSS,
    ),
    "not propagated": ({"propagate": False}, {}, QUANTILE_LOSS + CATEGORICAL_LOSS),
    "huber": (
        {"huber_width": 1.0},
        ENDED,
        # ENDED_LOSS with 1/2 u² up to 1 and |u| − 1/2 beyond.
        (3 / 4 * 1 / 8 + 1 / 4 * 2) + 0 + (3 / 4 * 3 / 2 + 1 / 4 * 7 / 2) + np.log(4 / 3),
    ),
    "learned": (
        {"intrinsic_reward": "learned"},
        ENDED,
        # The bonus target is 7/4: {2, 4} are above it by 1/4 and 9/4; it is 7/32 of 8.
        (3 / 4 * 1 / 2 + 1 / 4 * 5 / 2)
        + (3 / 4 * 1 / 4 + 1 / 4 * 9 / 4)
        + (25 / 32 * np.log((25 / 32) / (3 / 4)) + 7 / 32 * np.log((7 / 32) / (1 / 4))),
    ),
    "not episodic": (
        {"episodic_bonus": False},
        ENDED,
        (3 / 4 * 1 / 2 + 1 / 4 * 5 / 2) + BONUS_QUANTILE_LOSS + BONUS_CATEGORICAL_LOSS,
    ),
    "without priors": (
        {"priors": ()},
        ENDED | {"reward": 2.0},
        # −1/2 is below 2 by 5/2, 5/2 above by 1/2. The bonus is that of ENDED_LOSS.
        (1 / 4 * 5 / 2 + 1 / 4 * 1 / 2)
        + HALF_NOT_A_QUARTER
        + (3 / 4 * 2 + 1 / 4 * 4)
        + np.log(4 / 3),
    ),
}


@pytest.mark.parametrize(
    ("settings", "transition", "expected"), VARIANTS.values(), ids=VARIANTS.keys()
)
def test_the_losses_of_the_variants(settings, transition, expected):
    agent = made(**settings)
    found = loss(agent, learner_of(agent), step_of(**transition))
    close(found, expected)


# What an update changes

GRADIENTS = {
    # F(θ_k) − τ_k for quantiles, softmax less the target's probabilities for categories.
    "value": [[1 / 2 - 1 / 4, 1 - 3 / 4], [3 / 4 - 9 / 16, 1 / 4 - 7 / 16]],
    "bonus": [[3 / 8 - 1 / 4, 5 / 8 - 3 / 4], [3 / 4 - 5 / 8, 1 / 4 - 3 / 8]],
}


@pytest.mark.parametrize("batch_size", [1, 2])
def test_the_first_step_of_adam(batch_size):
    """−lr g/(|g| + ε) with ε = 1e-3/batch size, in the row of s, the columns of action 1.

    A batch of equal transitions has the gradient of one.
    """
    agent = made(batch_size=batch_size)
    before = learner_of(agent)
    batch = batch_of(*[step_of()] * batch_size)
    after, _ = update(agent, before, batch, clock_at(), HYPER)
    for name, gradients in GRADIENTS.items():
        steps = [-0.1 * np.array(g) / (np.abs(g) + 1e-3 / batch_size) for g in gradients]
        np.testing.assert_allclose(np.abs(steps), 0.1, rtol=0.01)
        layers = [getattr(x.params, name).layers[0] for x in (after, before)]
        moved = np.asarray(layers[0].weight) - np.asarray(layers[1].weight)
        moved = moved.reshape(2, 2, 2, 2)  # member, state, action, atom
        np.testing.assert_allclose(moved[:, 0, 1], steps, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(moved[:, 1], 0.0)
        np.testing.assert_array_equal(moved[:, :, 0], 0.0)
        biases = np.asarray(layers[0].bias).reshape(2, 2, 2)  # started at 0
        np.testing.assert_allclose(biases[:, 1], steps, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(biases[:, 0], 0.0)


def test_target_networks_are_copied_at_every_fourth_update_and_priors_never_change():
    agent = made()
    first = learner = learner_of(agent)
    target = learner.target_params
    for updates in range(9):
        learner, _ = update(agent, learner, batch_of(step_of()), clock_at(updates=updates), HYPER)
        if updates in (3, 7):
            assert unchanged(learner.target_params, learner.params)
            target = learner.params
        else:
            assert unchanged(learner.target_params, target)
            assert not unchanged(learner.target_params.value, learner.params.value)
            assert not unchanged(learner.target_params.bonus, learner.params.bonus)
        assert unchanged(learner.prior, first.prior)
    assert int(learner.opt_state.count) == 9


def test_the_period_of_copies_is_a_setting():
    agent = made(propagate=False, target_period=3)
    learner = learner_of(agent)
    copied = []
    for updates in range(6):
        learner, _ = update(agent, learner, batch_of(step_of()), clock_at(updates=updates), HYPER)
        copied.append(unchanged(learner.target_params, learner.params))
    assert copied == [False, False, True] * 2


# Settings


def test_the_defaults_are_the_papers_for_bsuite():
    config, hyper = Config(), Hyper()
    assert (config.num_atoms, config.hidden, config.batch_size) == (101, (512,), 128)
    assert (config.projections, config.priors) == (("quantile", "categorical"), ("quantile",))
    assert (config.capacity, config.target_period, config.huber_width) == (10_000, 4, 0.0)
    assert (hyper.learning_rate, hyper.gamma, hyper.prior_scale) == (5e-4, 0.99, 20.0)
    assert (hyper.beta, hyper.beta_final, hyper.beta_decay) == (5.0, 0.0, 1 / 3)
