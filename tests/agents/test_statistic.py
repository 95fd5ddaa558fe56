"""Choice by a statistic, against numbers worked out on paper."""

import jax
import numpy as np
import pytest

from agents.toys import OBS, act, batch_of, constant, learner_of, update
from winkel.agents import Spec
from winkel.agents.statistic import MOMENTS, Config, Hyper, Statistic
from winkel.types import Dense

HYPER = Hyper(gamma=0.5, z_min=0.0, z_max=1.0)


def agent_of(theta, **settings):
    actions, num_atoms = np.shape(theta)
    config = Config(num_atoms=num_atoms, hidden=(), **settings)
    return Statistic(config, Spec(Dense((1,)), num_actions=actions))


def action_of(theta, prior_outputs=None, **settings):
    prior = None if prior_outputs is None else constant(prior_outputs)
    return act(agent_of(theta, **settings), learner_of(constant(theta), prior=prior), HYPER)


# Ten equally likely atoms each:
#     mean   variance           skewness                      kurtosis
# 0:  10     4 · 1 / 10 = 0.4   0                             (4 / 10) / 0.16 = 2.5
# 1:  0      8 · 25 / 10 = 20   0                             (8 · 625 / 10) / 400 = 1.25
# 2:  1      (8 + 32) / 10 = 4  (−8 + 128) / 10 / 8 = 1.5     (8 + 512) / 10 / 16 = 3.25
# 3:  0      2 · 25 / 10 = 5    0                             (2 · 625 / 10) / 25 = 5
FOUR = [
    [9.0, 9.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 11.0, 11.0],
    [-5.0, -5.0, -5.0, -5.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0],
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 5.0],
    [-5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0],
]
STATISTICS = {
    "mean": [10.0, 0.0, 1.0, 0.0],
    "variance": [0.4, 20.0, 4.0, 5.0],
    "skewness": [0.0, 0.0, 1.5, 0.0],
    "kurtosis": [2.5, 1.25, 3.25, 5.0],
}


@pytest.mark.parametrize(("action", "moment"), list(enumerate(MOMENTS)))
def test_each_moment_has_its_action(action, moment):
    assert action_of(FOUR, moment=moment) == action
    agent = agent_of(FOUR, moment=moment)
    found = jax.jit(lambda learner: agent.estimates(learner, OBS, HYPER))(
        learner_of(constant(FOUR))
    )
    np.testing.assert_allclose(found.bonus, STATISTICS[moment], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.value, STATISTICS["mean"], rtol=1e-5, atol=1e-6)
    assert np.isnan(found.disagreement).all()


@pytest.mark.parametrize(("moment", "action"), [("mean", 1), ("variance", 0)])
def test_a_categorical_model(moment, action):
    """On 0 and 1 with probabilities (½, ½) and (¼, ¾): means ½ and ¾, variances ¼ and 3/16."""
    theta = np.log([[0.5, 0.5], [0.25, 0.75]])
    assert action_of(theta, projection="categorical", moment=moment) == action


def test_a_point_mass_without_the_statistic_comes_last():
    """Action 0 has no skewness, action 1 one of −1.5: mean 4, variance 4, (8 − 128) / 10 / 8."""
    theta = [[7.0] * 10, [0.0, 0.0, *[5.0] * 8]]
    assert action_of(theta, moment="skewness") == 1
    assert action_of(theta, moment="mean") == 0
    assert action_of([[7.0] * 10, [3.0] * 10], moment="kurtosis") == 0


def test_the_prior_takes_part():
    """Atoms [0, 1] and [0, 2]; 20 times [0, 1] makes the first [0, 21]."""
    theta, added = [[0.0, 1.0], [0.0, 2.0]], [[0.0, 1.0], [0.0, 0.0]]
    assert action_of(theta, moment="variance") == 1
    assert action_of(theta, added, prior=True, moment="variance") == 0


def updated(theta, reward, **settings):
    learner = learner_of(constant(theta))
    return update(agent_of(theta, **settings), learner, batch_of(reward), HYPER)


def test_rewards_count_as_nothing():
    """γ = ½; the higher mean is action 1's, [2, 6]: the atoms are 1 and 3, whatever the reward.

    θ = [1, 2] of action 0 at levels ¼, ¾. θ = 1: ¼ (0 + 2) / 2 = 0.25. θ = 2: u = −1 and 1,
    (¼ + ¾) / 2 = 0.5. Together 0.75. With a reward of 1 the atoms are 2 and 4: ¼ (1 + 3) / 2 = 0.5
    and ¾ (0 + 2) / 2 = 0.75, together 1.25.
    """
    theta = [[1.0, 2.0], [2.0, 6.0]]
    for reward in (0.0, 1.0):
        _, result = updated(theta, reward)
        np.testing.assert_allclose(result.metrics["loss"], 0.75, rtol=1e-5)
    _, result = updated(theta, 1.0, reward_free=False)
    np.testing.assert_allclose(result.metrics["loss"], 1.25, rtol=1e-5)


def test_the_target_is_greedy_by_the_mean_not_by_the_statistic():
    """Action 0 has more variance, action 1 the higher mean.

    Its atoms 3 and 3.5, halved to 1.5 and 1.75. θ = [−2, 2]: ¼ (3.5 + 3.75) / 2 = 0.90625, and
    u = −0.5 and −0.25 at ¾: ¼ (0.75) / 2 = 0.09375. Together 1.
    """
    _, result = updated([[-2.0, 2.0], [3.0, 3.5]], 0.0, moment="variance")
    np.testing.assert_allclose(result.metrics["loss"], 1.0, rtol=1e-5)


@pytest.mark.parametrize("projection", ["quantile", "categorical"])
def test_only_a_support_can_clip(projection):
    _, result = updated([[0.0, 0.0], [0.0, 0.0]], 0.0, projection=projection)
    assert ("clipped" in result.metrics) == (projection == "categorical")
