"""DQN, C51 and QR-DQN against numbers worked out on paper, and the tables of agents.

All toys have one observation and two actions, and networks that are just their biases.
"""

import dataclasses

import jax
import numpy as np
import pytest

from agents.toys import (
    OBS,
    SPEC,
    batch_of,
    constant,
    constants,
    first_gradient,
    learner_of,
    update,
)
from winkel.agents import AGENTS, VARIANTS, c51, dqn, qr_dqn


def single_learner(theta, target):
    return learner_of(constant(theta), constant(target))


def dqn_learner(values, target):
    return learner_of(constants([values]), constants([target]))


@pytest.mark.parametrize(
    ("settings", "discount", "loss", "slope"),
    [
        # Online [1, 3] chooses action 1, which the target network [5, 2] holds for worth 2:
        # y = 0.5 + 0.9 · 2 = 2.3, δ = 1 − 2.3 = −1.3, ½ δ² = 0.845.
        ({}, 1.0, 0.845, -1.3),
        # The target network itself would choose 5: y = 5, δ = −4, ½ δ² = 8; Huber 4 − ½ = 3.5.
        ({"double": False}, 1.0, 8.0, -4.0),
        ({"double": False, "huber_width": 1.0}, 1.0, 3.5, -1.0),
        # Nothing follows: y = 0.5, δ = 0.5, ½ δ² = 0.125.
        ({}, 0.0, 0.125, 0.5),
    ],
)
def test_dqn(settings, discount, loss, slope):
    agent = dqn.DQN(dqn.Config(hidden=(), **settings), SPEC)
    learner, result = update(
        agent,
        dqn_learner([1.0, 3.0], [5.0, 2.0]),
        batch_of(discount=discount),
        dqn.Hyper(gamma=0.9),
    )
    np.testing.assert_allclose(result.metrics["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(first_gradient(learner.opt_state.mu), [[slope, 0.0]], rtol=1e-5)


@pytest.mark.parametrize(
    ("double", "reward", "to_zero", "clipped"),
    [
        # On 0 and 1. Online means ¾ and ½ choose action 0, whose target probabilities are ½, ½.
        # The atoms 0.1 and 0.1 + 0.5 put ½ · 0.1 + ½ · 0.6 = 0.35 on 1.
        (True, 0.1, 0.65, 0.0),
        # The target network's own choice is action 1, with 0.2, 0.8: 0.2 · 0.1 + 0.8 · 0.6 = 0.5.
        (False, 0.1, 0.5, 0.0),
        # The atoms 0.8 and 1.3, of which the latter counts as 1: ½ · 0.8 + ½ = 0.9.
        (True, 0.8, 0.1, 0.5),
    ],
)
def test_c51(double, reward, to_zero, clipped):
    """Predicted is (¼, ¾) of action 0; the loss is KL(target ‖ predicted), of slope p − target."""
    agent = c51.C51(c51.Config(hidden=(), num_atoms=2, double=double), SPEC)
    learner, result = update(
        agent,
        single_learner(np.log([[0.25, 0.75], [0.5, 0.5]]), np.log([[0.5, 0.5], [0.2, 0.8]])),
        batch_of(reward),
        c51.Hyper(gamma=0.5, z_min=0.0, z_max=1.0),
    )
    target, predicted = np.array([to_zero, 1.0 - to_zero]), np.array([0.25, 0.75])
    loss = np.sum(target * np.log(target / predicted))
    np.testing.assert_allclose(result.metrics["loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(result.metrics["clipped"], clipped, atol=1e-6)
    gradient = [*(predicted - target), 0.0, 0.0]
    np.testing.assert_allclose(first_gradient(learner.opt_state.mu), gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("double", "loss", "gradient"),
    [
        # Online means 2 and 1 choose action 0, target quantiles [1, 3]: y = 0.5 + 0.9 · [1, 3] =
        # [1.4, 3.2]. θ = 1 at ¼: ¼ (0.4 + 2.2) / 2 = 0.325; θ = 3 at ¾: u = −1.6 and 0.2,
        # (¼ · 1.6 + ¾ · 0.2) / 2 = 0.275. Slopes F(θ) − τ: 0 − ¼ and ½ − ¾.
        (True, 0.6, [-0.25, -0.25]),
        # The target network's own choice is action 1, [5, 5]: y = 5 twice. ¼ · 4 + ¾ · 2 = 2.5.
        (False, 2.5, [-0.25, -0.75]),
    ],
)
def test_qr_dqn(double, loss, gradient):
    agent = qr_dqn.QRDQN(qr_dqn.Config(hidden=(), num_atoms=2, double=double), SPEC)
    learner, result = update(
        agent,
        single_learner([[1.0, 3.0], [1.0, 1.0]], [[1.0, 3.0], [5.0, 5.0]]),
        batch_of(),
        qr_dqn.Hyper(gamma=0.9),
    )
    np.testing.assert_allclose(result.metrics["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(
        first_gradient(learner.opt_state.mu), [*gradient, 0.0, 0.0], rtol=1e-5
    )
    assert "clipped" not in result.metrics


def test_qr_dqn_with_a_huber_width():
    """κ = 2, y = [1.4, 3.2] as above; L_κ(u)/κ is u²/4 up to |u| = 2 and |u| − 1 beyond.

    θ = 1 at ¼: (0.16/4 + 1.2) / 2 · ¼ = 0.155; θ = 3 at ¾: (¼ · 2.56/4 + ¾ · 0.04/4) / 2 = 0.08375.
    """
    agent = qr_dqn.QRDQN(qr_dqn.Config(hidden=(), num_atoms=2, huber_width=2.0), SPEC)
    learner = single_learner([[1.0, 3.0], [1.0, 1.0]], [[1.0, 3.0], [5.0, 5.0]])
    _, result = update(agent, learner, batch_of(), qr_dqn.Hyper(gamma=0.9))
    np.testing.assert_allclose(result.metrics["loss"], 0.23875, rtol=1e-5)


PLAIN = {
    "dqn": (dqn.DQN(dqn.Config(hidden=()), SPEC), dqn_learner([1.0, 3.0], [0.0, 0.0]), dqn.Hyper()),
    "c51": (
        c51.C51(c51.Config(hidden=(), num_atoms=2), SPEC),
        single_learner(np.log([[0.5, 0.5], [0.25, 0.75]]), np.zeros((2, 2))),
        c51.Hyper(z_min=0.0, z_max=1.0),
    ),
    "qr_dqn": (
        qr_dqn.QRDQN(qr_dqn.Config(hidden=(), num_atoms=2), SPEC),
        single_learner([[0.0, 2.0], [1.0, 5.0]], np.zeros((2, 2))),
        qr_dqn.Hyper(),
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_epsilon_decays_over_a_tenth_of_the_horizon(name):
    """From 1 to 0.05; half way 0.525."""
    agent, learner, hyper = PLAIN[name]
    for progress, epsilon in [(0.0, 1.0), (0.05, 0.525), (0.1, 0.05), (1.0, 0.05)]:
        _, result = update(agent, learner, batch_of(), hyper, progress)
        np.testing.assert_allclose(result.metrics["epsilon"], epsilon, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "value", "locations"),
    [
        ("dqn", [1.0, 3.0], [[[1.0], [3.0]]]),
        ("c51", [0.5, 0.75], [[[0.0, 1.0], [0.0, 1.0]]]),
        ("qr_dqn", [1.0, 3.0], [[[0.0, 2.0], [1.0, 5.0]]]),
    ],
)
def test_estimates(name, value, locations):
    agent, learner, hyper = PLAIN[name]
    found = jax.jit(agent.estimates)(learner, OBS, hyper)
    np.testing.assert_allclose(found.value, value, rtol=1e-6)
    np.testing.assert_allclose(found.members.locations, locations)
    assert len(agent.member_names()) == 1
    assert np.isnan(found.disagreement).all()
    assert np.isnan(found.bonus).all()


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_override_fields_that_exist(name):
    agent, overrides = VARIANTS[name]
    kind = AGENTS[agent]
    static = {field.name for field in dataclasses.fields(kind.config_type)}
    assert name not in AGENTS
    assert set(overrides) <= static | set(kind.hyper_type._fields)
    config = kind.config_type(**{field: v for field, v in overrides.items() if field in static})
    assert (
        config != kind.config_type() or name == "statistic_quantile_variance"
    )  # the default itself
