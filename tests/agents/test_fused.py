"""PE-DQN by kernels against PE-DQN in plain JAX, in Pallas' interpreter, and lowered for a GPU."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.agents import fused
from winkel.agents.base import Spec
from winkel.agents.pe_dqn import PEDQN, Config, Hyper
from winkel.training.steps import start_clock
from winkel.types import Batch, Dense, OneHot, Transition

CONFIG = Config(hidden=(24,), num_atoms=9, batch_size=16, target_period=2)
DENSE = Spec(Dense((2, 3)), num_actions=3)
SEA = Spec(OneHot((5, 5), triangle=True), num_actions=2)
HYPER = Hyper(z_min=-2.0, z_max=3.0)


def random_batch(spec, size, seed):
    keys = jax.random.split(jax.random.key(seed), 6)

    def observe(key):
        if spec.one_hot:
            down = jax.random.randint(key, (size,), 0, 5)
            right = jax.random.randint(jax.random.fold_in(key, 1), (size,), 0, down + 1)
            return (5 * down + right).at[0].set(25)
        return jax.random.normal(key, (size, *spec.observation.shape))

    return Batch(
        transitions=Transition(
            obs=observe(keys[0]),
            action=jax.random.randint(keys[1], (size,), 0, spec.num_actions),
            reward=jax.random.normal(keys[2], (size,)),
            discount=(jax.random.uniform(keys[3], (size,)) > 0.2).astype(float),
            next_obs=observe(keys[4]),
            boundary=jnp.zeros(size, bool),
            extras=(),
        ),
        weights=jax.random.uniform(keys[5], (size,)),
        indices=jnp.arange(size),
    )


@pytest.mark.parametrize("spec", [DENSE, SEA], ids=["dense", "one-hot"])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="paper"),
        pytest.param(
            {"projections": ("categorical", "quantile"), "priors": ("quantile", "categorical")},
            id="both-priors",
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"priors": (), "episodic_bonus": False}, id="no-priors", marks=pytest.mark.long
        ),
    ],
)
def test_updates_and_choices_equal_the_plain_ones(spec, changes):
    """Five updates, over two copies into the target networks."""
    spec = spec._replace(available=jnp.asarray(2))
    config = dataclasses.replace(CONFIG, **changes)
    agent = PEDQN(config, spec)
    assert fused.supports(config, spec)
    plain = jax.jit(partial(agent.update, hyper=HYPER, key=jax.random.key(0)))
    kernels = jax.jit(partial(fused.update, config, spec, hyper=HYPER, interpret=True))
    expected = made = agent.init(jax.random.key(1), HYPER)
    clock = start_clock()
    with jax.default_matmul_precision("highest"):
        for number in range(5):
            batch = random_batch(spec, config.batch_size, number)
            expected, told = plain(expected, batch, clock)
            made, said = kernels(made, batch, clock)
            np.testing.assert_allclose(said.priorities, told.priorities, rtol=1e-4)
            for name, metric in told.metrics.items():
                np.testing.assert_allclose(said.metrics[name], metric, rtol=1e-4, atol=1e-6)
            clock = clock._replace(updates=clock.updates + 1)
        assert jax.tree.structure(made) == jax.tree.structure(expected)
        for x, y in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=2e-5)
        obs = jax.tree.map(lambda x: x[3], batch.transitions.obs)
        value, bonus = fused.judge_one(config, spec, made, obs, HYPER, interpret=True)
        estimates = agent.estimates(made, obs, HYPER)
    np.testing.assert_allclose(value, estimates.value, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(bonus, estimates.bonus, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", [DENSE, SEA], ids=["dense", "one-hot"])
def test_lanes_lower_to_kernels_for_a_gpu(spec):
    """No GPU is needed to turn the program into Triton's language."""
    config = dataclasses.replace(CONFIG, num_atoms=101, batch_size=128)
    agent = PEDQN(config, spec)
    keys = jax.random.split(jax.random.key(0), 3)
    learners = jax.eval_shape(jax.vmap(lambda key: agent.init(key, HYPER)), keys)
    batches = jax.eval_shape(jax.vmap(lambda _: random_batch(spec, 128, 0)), jnp.zeros(3))

    def step(learner, batch):
        obs = jax.tree.map(lambda x: x[0], batch.transitions.obs)
        chosen = fused.judge_one(config, spec, learner, obs, HYPER)
        return chosen, fused.update(config, spec, learner, batch, start_clock(), HYPER)

    lowered = jax.jit(jax.vmap(step)).trace(learners, batches).lower(lowering_platforms=("cuda",))
    assert lowered.as_text().count("xla.gpu.triton") >= 8


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden": (8, 8)},
        {"batch_size": 24},
        {"batch_size": 8},
        {"backup": "independent"},
        {"propagate": False},
        {"huber_width": 1.0},
        {"distance": "grid"},
        {"intrinsic_reward": "learned"},
        {"projections": ("quantile", "quantile")},
    ],
)
def test_what_the_kernels_do_not_know_is_left_to_plain_jax(changes):
    assert not fused.supports(dataclasses.replace(CONFIG, **changes), DENSE)


def test_wide_observations_are_left_to_plain_jax():
    assert not fused.supports(CONFIG, Spec(Dense((28, 28)), num_actions=10))
    assert fused.supports(CONFIG, Spec(OneHot((100, 100), triangle=True), num_actions=2))


@pytest.mark.parametrize("spec", [DENSE, SEA], ids=["dense", "one-hot"])
def test_at_rest_values_are_learned_as_ever_and_the_bonus_is_not(spec):
    agent = PEDQN(CONFIG, spec)
    whole, resting = (
        jax.jit(
            partial(fused.update, CONFIG, spec, hyper=HYPER, resting=resting, interpret=True),
            compiler_options={"xla_cpu_use_fusion_emitters": True},  # equal bits in two programs
        )
        for resting in (False, True)
    )
    begun = expected = made = agent.init(jax.random.key(1), HYPER)
    clock = start_clock()._replace(progress=jnp.asarray(0.5))
    for number in range(3):
        batch = random_batch(spec, CONFIG.batch_size, number)
        expected, _ = whole(expected, batch, clock)
        made, told = resting(made, batch, clock)
        clock = clock._replace(updates=clock.updates + 1)
    assert told.metrics["beta"] == 0.0
    learners = made, expected, begun
    for trees in (
        [learner.params for learner in learners],
        [learner.target_params for learner in learners],
        [learner.opt_state.mu for learner in learners],
        [learner.opt_state.nu for learner in learners],
    ):
        jax.tree.map(np.testing.assert_array_equal, trees[0].value, trees[1].value)
        jax.tree.map(np.testing.assert_array_equal, trees[0].bonus, trees[2].bonus)
    assert made.opt_state.count == expected.opt_state.count
    obs = jax.tree.map(lambda x: x[3], batch.transitions.obs)
    known, _ = fused.judge_one(CONFIG, spec, expected, obs, HYPER, interpret=True)
    value, bonus = fused.judge_one(CONFIG, spec, made, obs, HYPER, resting=True, interpret=True)
    np.testing.assert_array_equal(value, known)
    np.testing.assert_array_equal(bonus, np.zeros(spec.num_actions))


def test_an_agent_has_settled_when_beta_is_zero_for_good(monkeypatch):
    agent = PEDQN(CONFIG, DENSE)
    assert not agent.settled(1.0, HYPER)  # without kernels nothing rests
    monkeypatch.setattr(PEDQN, "_has_kernels", lambda _: True)
    assert not agent.settled(0.33, HYPER)
    assert agent.settled(float(np.float32(1 / 3)), HYPER)
    assert agent.settled(1.0, HYPER)
    assert not agent.settled(1.0, HYPER._replace(beta_final=0.01))
    assert agent.at_rest().resting
    assert agent.at_rest().config is agent.config
