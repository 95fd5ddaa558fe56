"""RND against numbers worked out on paper, and what its predictor learns."""

import jax
import jax.numpy as jnp
import numpy as np

from agents.toys import KEY, OBS, SPEC, batch_of, clock_at, constant, constants
from winkel.agents import Spec
from winkel.agents.learning import Learner, RunningMoments, init_optimizer
from winkel.agents.rnd import RND, Config, Hyper, Params
from winkel.types import OneHot

NOW = clock_at()
AGENT = RND(Config(hidden=(), num_features=1), SPEC)
LEARNED = RND(Config(hidden=(), num_features=1, immediate=False), SPEC)


def learner_of(values, target, error=0.0):
    """Constant Q and Q_i, and a predictor that is wrong by √error."""
    params, targets = (
        Params(constants(numbers), constant([[error**0.5], [error**0.5]]))
        for numbers in (values, target)
    )
    return Learner(
        params=params,
        target_params=targets,
        prior=constant([[0.0], [0.0]]),
        opt_state=init_optimizer(params),
        intrinsic=RunningMoments.init(),
    )


def with_deviation(learner, deviation):
    moments = RunningMoments.init()._replace(variance=jnp.asarray(deviation**2))
    return learner._replace(intrinsic=moments)


def test_targets_by_hand():
    """Q = [1, 4], Q_i = [9, 0], β = 1: a' is 1 for Q and 0 for Q_i.

    Errors of 4 over a deviation of 2 are intrinsic rewards of 2. The target of Q is 0.5 + 0.9 · 3;
    that of Q_i is 0.5 (2 + 7), as the reward at (s, a) is added to its output, else 2 + 0.5 · 7.
    """
    learner = learner_of([[1.0, 4.0], [9.0, 0.0]], [[2.0, 3.0], [7.0, 8.0]], error=4.0)
    learner, hyper = with_deviation(learner, 2.0), Hyper(gamma=0.9, bonus_gamma=0.5, beta=1.0)
    transition = jax.tree.map(lambda x: x[0], batch_of().transitions)
    ended = transition._replace(discount=jnp.array(0.0))
    for agent, wanted, last in ((AGENT, 4.5, 0.0), (LEARNED, 5.5, 2.0)):
        found = agent._targets(learner, hyper, transition, OBS)
        np.testing.assert_allclose(found, [3.2, wanted], rtol=1e-6)
        found = agent._targets(learner, hyper, ended, OBS)
        np.testing.assert_allclose(found, [0.5, last], rtol=1e-6)


def test_the_agent_acts_by_both_values_and_is_judged_by_one():
    learner = learner_of([[1.0, 4.0], [9.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]], error=4.0)
    learner, hyper = with_deviation(learner, 2.0), Hyper(beta=2.0)
    np.testing.assert_allclose(AGENT.scores(learner, OBS, NOW, hyper), [23.0, 8.0], rtol=1e-6)
    np.testing.assert_allclose(LEARNED.scores(learner, OBS, NOW, hyper), [19.0, 4.0], rtol=1e-6)
    found = AGENT.estimates(learner, OBS, Hyper())
    np.testing.assert_allclose(found.value, [1.0, 4.0])
    np.testing.assert_allclose(found.bonus, [11.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(found.disagreement, [4.0, 4.0], rtol=1e-6)


def test_known_pairs_lose_their_error_and_others_keep_it():
    """Tables share nothing: what is learned at (0, 1) says nothing of other cells and actions."""
    agent = RND(Config(hidden=(), num_features=8), Spec(OneHot((3,)), num_actions=2))
    hyper = Hyper(learning_rate=0.05)
    learner = agent.init(KEY, hyper)
    batch = batch_of(action=1, masks=[()] * 4)
    cells = jnp.zeros(4, int)
    batch = batch._replace(transitions=batch.transitions._replace(obs=cells, next_obs=cells + 1))

    def errors(learner):
        cells = jnp.arange(3)
        return jax.vmap(lambda s: agent.estimates(learner, s, hyper).disagreement)(cells)

    before = errors(learner)
    update = jax.jit(agent.update)
    for number in range(200):
        learner, made = update(learner, batch, clock_at(updates=number), hyper, KEY)
    after = errors(learner)
    assert after[0, 1] < 1e-3 * before[0, 1]
    assert made.metrics["intrinsic"] < 1e-3 * before[0, 1]
    # The bias of a table is common to its cells, so that compare only the other action.
    np.testing.assert_allclose(after[:, 0], before[:, 0], rtol=1e-5)


def test_intrinsic_rewards_are_divided_by_the_deviation_of_all():
    first, second = jnp.array([1.0, 3.0]), jnp.array([5.0, 7.0])
    moments = RunningMoments.init().update(first, memory=1.0).update(second, memory=1.0)
    np.testing.assert_allclose(moments.deviation, np.std([1.0, 3.0, 5.0, 7.0]), rtol=1e-5)
