"""PE-DQN by kernels against PE-DQN in plain JAX, in Pallas' interpreter, and lowered for a GPU."""

import dataclasses
import functools
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.agents import Spec
from winkel.agents.pe_dqn import PEDQN, Config, Hyper
from winkel.kernels import common
from winkel.kernels import pe_dqn as fused
from winkel.training.steps import start_clock
from winkel.types import Batch, Dense, Image, OneHot, Transition

CONFIG = Config(
    hidden=(24,), num_atoms=9, batch_size=16, target_period=2, bonus_discount=0.9, bonus_support=1.5
)
DENSE = Spec(Dense((2, 3)), num_actions=3)
ONE_HOT = Spec(OneHot((5, 5), triangle=True), num_actions=2)
HYPER = Hyper(z_min=-2.0, z_max=3.0)


@partial(jax.jit, static_argnums=(0, 1))
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


@functools.cache
def fused_update(agent):
    """An update by kernels, compiled once for all tests."""

    @jax.jit
    def update(learner, batch, clock, beta):
        return fused.update(with_two(agent), learner, batch, clock, beta, HYPER)

    return update


def with_two(agent):
    """The agent in a lane with two actions."""
    return dataclasses.replace(agent, spec=agent.spec._replace(available=jnp.asarray(2)))


BOTH = {"projections": ("categorical", "quantile"), "priors": ("quantile", "categorical")}
NEITHER = {"priors": (), "episodic_bonus": False}


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        pytest.param(DENSE, {}, id="dense, paper"),
        pytest.param(ONE_HOT, {}, id="one-hot, paper"),
        pytest.param(ONE_HOT, {"bonus_floor": True}, id="one-hot, floor"),
        pytest.param(DENSE, {"bonus_floor": True}, id="dense, floor", marks=pytest.mark.long),
        pytest.param(DENSE, BOTH, id="dense, both priors", marks=pytest.mark.long),
        pytest.param(ONE_HOT, BOTH, id="one-hot, both priors", marks=pytest.mark.long),
        pytest.param(DENSE, NEITHER, id="dense, no priors", marks=pytest.mark.long),
        pytest.param(ONE_HOT, NEITHER, id="one-hot, no priors", marks=pytest.mark.long),
    ],
)
def test_updates_and_choices_equal_the_plain_ones(spec, changes):
    """Five updates, over two copies into the target networks."""
    batches = [random_batch(spec, CONFIG.batch_size, number) for number in range(5)]
    config = dataclasses.replace(CONFIG, **changes)
    agent = PEDQN(config, spec)
    assert agent.supported_by_kernels()
    plain = jax.jit(partial(with_two(agent).update, hyper=HYPER, key=jax.random.key(0)))
    expected = made = jax.jit(agent.init)(jax.random.key(1), HYPER)
    clock = start_clock()
    with jax.default_matmul_precision("highest"):
        for batch in batches:
            expected, wanted = plain(expected, batch, clock)
            made, found = fused_update(agent)(made, batch, clock, jnp.asarray(HYPER.beta))
            np.testing.assert_allclose(found.priorities, wanted.priorities, rtol=1e-4)
            for name, metric in wanted.metrics.items():
                np.testing.assert_allclose(found.metrics[name], metric, rtol=1e-4, atol=1e-6)
            clock = clock._replace(updates=clock.updates + 1)
        assert jax.tree.structure(made) == jax.tree.structure(expected)
        for x, y in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=2e-5)
        obs = jax.tree.map(lambda x: x[3], batch.transitions.obs)
        chosen = partial(fused.value_and_bonus, with_two(agent))
        value, bonus = jax.jit(chosen)(made, obs, HYPER)
        estimates = jax.jit(with_two(agent).estimates)(made, obs, HYPER)
    np.testing.assert_allclose(value, estimates.value, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(bonus, estimates.bonus, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", [DENSE, ONE_HOT], ids=["dense", "one-hot"])
def test_lanes_lower_to_kernels_for_a_gpu(spec, monkeypatch):
    """No GPU is needed to turn the program into Triton's language."""
    monkeypatch.setattr(common, "INTERPRET", False)
    config = dataclasses.replace(CONFIG, num_atoms=101, batch_size=128)
    agent = PEDQN(config, spec)
    keys = jax.random.split(jax.random.key(0), 3)
    learners = jax.eval_shape(jax.vmap(lambda key: agent.init(key, HYPER)), keys)
    batches = jax.eval_shape(jax.vmap(lambda _: random_batch(spec, 128, 0)), jnp.zeros(3))

    def step(learner, batch):
        obs = jax.tree.map(lambda x: x[0], batch.transitions.obs)
        chosen = fused.value_and_bonus(agent, learner, obs, HYPER)
        clock, beta = start_clock(), jnp.asarray(5.0)
        return chosen, fused.update(agent, learner, batch, clock, beta, HYPER)

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
        {"clip_norm": 10.0},
        {"adam_epsilon": 5e-3},
        {"normalise_intrinsic": True},
        {"average_bonus": True},
        {"n_step": 10, "episodic_bonus": False},
        {"kernels": False},
    ],
)
def test_configurations_that_the_kernels_do_not_support(changes):
    assert PEDQN(CONFIG, DENSE).supported_by_kernels()
    assert not PEDQN(dataclasses.replace(CONFIG, **changes), DENSE).supported_by_kernels()


def test_observations_that_the_kernels_do_not_support():
    assert PEDQN(dataclasses.replace(CONFIG, n_step=10), DENSE).supported_by_kernels()
    assert not PEDQN(CONFIG, Spec(Image((8, 8), 1), 2)).supported_by_kernels()
    assert not PEDQN(CONFIG, Spec(Dense((28, 28)), num_actions=10)).supported_by_kernels()
    assert PEDQN(
        CONFIG, Spec(OneHot((100, 100), triangle=True), num_actions=2)
    ).supported_by_kernels()


assert_equal_to_rounding = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(DENSE, id="dense"),
        pytest.param(ONE_HOT, id="one-hot", marks=pytest.mark.long),
    ],
)
def test_with_a_frozen_bonus_values_are_learned_as_before(spec):
    """To rounding: they are two programs."""
    agent = PEDQN(CONFIG, spec)
    whole, frozen = (fused_update(which) for which in (agent, agent.with_frozen_bonus()))
    zero = jnp.asarray(0.0)
    begun = expected = made = jax.jit(agent.init)(jax.random.key(1), HYPER)
    clock = start_clock()
    with jax.default_matmul_precision("highest"):
        for number in range(3):
            batch = random_batch(spec, CONFIG.batch_size, number)
            expected, _ = whole(expected, batch, clock, zero)
            made, _ = frozen(made, batch, clock, zero)
            clock = clock._replace(updates=clock.updates + 1)
    learners = made, expected, begun
    for trees in (
        [learner.params for learner in learners],
        [learner.target_params for learner in learners],
        [learner.opt_state.mu for learner in learners],
        [learner.opt_state.nu for learner in learners],
    ):
        jax.tree.map(assert_equal_to_rounding, trees[0].value, trees[1].value)
        jax.tree.map(np.testing.assert_array_equal, trees[0].bonus, trees[2].bonus)
    assert made.opt_state.count == expected.opt_state.count
    obs = jax.tree.map(lambda x: x[3], batch.transitions.obs)
    known, value = (
        jax.jit(partial(fused.value_and_bonus, which))(learner, obs, HYPER)
        for which, learner in ((agent, expected), (agent.with_frozen_bonus(), made))
    )
    value, bonus = value
    assert_equal_to_rounding(value, known[0])
    np.testing.assert_array_equal(bonus, np.zeros(spec.num_actions))


def test_the_bonus_can_be_frozen_when_beta_stays_zero(monkeypatch):
    agent = PEDQN(CONFIG, DENSE)
    assert not agent.can_freeze_bonus(1.0, HYPER)  # in plain JAX the bonus is always learned
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not agent.can_freeze_bonus(0.33, HYPER)
    assert agent.can_freeze_bonus(float(np.float32(1 / 3)), HYPER)
    assert agent.can_freeze_bonus(1.0, HYPER)
    assert not agent.can_freeze_bonus(1.0, HYPER._replace(beta_final=0.01))
    prioritised = dataclasses.replace(
        agent, config=dataclasses.replace(CONFIG, priority_exponent=0.6)
    )
    assert not prioritised.can_freeze_bonus(1.0, HYPER)  # priorities contain the loss of the bonus
    assert agent.with_frozen_bonus().bonus_frozen
    assert agent.with_frozen_bonus().config is agent.config


def test_importing_agents_imports_no_kernels():
    program = "import sys, winkel.agents; assert 'jax.experimental.pallas' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
