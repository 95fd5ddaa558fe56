"""PE-DQN+, PE-DQN with one setting and no schedule, and the settings that it adds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import winkel
from runs.tiny import TINY
from winkel.agents import VARIANTS, Spec
from winkel.agents.pe_dqn import PEDQN, Config, Hyper
from winkel.errors import InputError
from winkel.runs.results import read_metrics
from winkel.runs.spec import Options
from winkel.types import OneHot, Transition

SMALL = {**TINY, "lanes": 2, "seeds": 2, "options": Options(chunk_steps=20, snapshots=0)}


def train(agent="pe_dqn_plus", **settings):
    return winkel.train("deep_sea:size=4", agent, **{**SMALL, **settings})


def test_the_first_episodes_do_not_depend_on_the_horizon():
    """Horizons of 500, 2,000 and 10,000 episodes: equal bits up to episode 30."""
    runs = [train(episodes=horizon, until=30).runs for horizon in (500, 2_000, 10_000)]
    for others in runs[1:]:
        for ours, theirs in zip(runs[0], others, strict=True):
            np.testing.assert_array_equal(ours.episodes["return"], theirs.episodes["return"])
            jax.tree.map(np.testing.assert_array_equal, ours.learner, theirs.learner)


def test_the_papers_agent_depends_on_the_horizon():
    """The test above can fail: β and the importance exponent of PE-DQN follow the horizon."""
    runs = [train("pe_dqn", episodes=horizon, until=30).runs[0] for horizon in (40, 10_000)]
    leaves = [jax.tree.leaves(run.learner.params) for run in runs]
    assert any((ours != theirs).any() for ours, theirs in zip(*leaves, strict=True))


@pytest.mark.parametrize("env", ["deep_sea:size=4", "simulators.jax_env:make:env=deep_sea/0"])
def test_two_updates_for_each_step(env, tmp_path):
    """Both kinds of environments: the last of 80 steps is number 144 of the updates after 8."""
    simulated = {"workers": 0, "z_min": 0.0, "z_max": 1.0} if ":make" in env else {}
    settings = SMALL | {"options": Options(chunk_steps=24, snapshots=0)} | simulated
    runs = winkel.train(env, "pe_dqn_plus", steps=80, out=tmp_path, **settings).runs
    assert [int(run.learner.opt_state.count) for run in runs] == [144, 144]
    for path in tmp_path.rglob("metrics.jsonl"):
        rows = read_metrics(path)
        assert [row["updates"] for row in rows] == [48, 96, 144]
        assert [row["env_steps"] for row in rows] == [32, 56, 80]
    assert len([*tmp_path.rglob("metrics.jsonl")]) == 2


def test_updates_per_step_are_checked():
    with pytest.raises(InputError, match="need updates_per_step >= 1, a whole number, got 0"):
        Config(updates_per_step=0)


@pytest.mark.parametrize("size", [10, 40])
def test_a_unit_prior_has_the_same_deviation_in_every_grid(size):
    """√2 times the scale; without it √(2 / cells)."""
    spec = Spec(OneHot((size, size)), num_actions=2)

    def deviation(unit):
        agent = PEDQN(Config(num_atoms=5, hidden=(64,), unit_prior=unit), spec)
        prior = agent.init(jax.random.key(0), Hyper(z_min=0.0, z_max=1.0)).prior
        return float(jnp.std(jax.vmap(prior)(jnp.arange(size**2))))

    np.testing.assert_allclose(deviation(True), 2**0.5, rtol=0.1)
    np.testing.assert_allclose(deviation(False), 2**0.5 / size, rtol=0.1)


def test_the_bonus_has_its_own_discount_and_support():
    """b_raw of the target network and w_avg are discounted by γ times `bonus_discount`."""
    hyper = Hyper(z_min=-1.0, z_max=2.0)
    spec = Spec(OneHot((3,)), num_actions=2)
    agent, other = (
        PEDQN(Config(num_atoms=5, hidden=(8,), bonus_support=1.5, bonus_discount=share), spec)
        for share in (1.0, 0.5)
    )
    np.testing.assert_allclose(agent._bonus_projections(hyper)[1].z_max, 4.5)
    learner = agent.init(jax.random.key(1), hyper)
    cell = jnp.array(0)
    one = Transition(cell, cell, jnp.zeros(()), jnp.ones(()), cell + 1, jnp.array(False), ())

    def target(agent):
        made = agent.targets(learner, jnp.ones(()), hyper, one, cell + 1)
        return made.bonus.locations, made.value[0].locations

    (whole, value), (half, same) = target(agent), target(other)
    np.testing.assert_allclose(half, 0.5 * whole, rtol=1e-5)
    np.testing.assert_array_equal(value, same)


def test_its_settings_are_constant():
    fields = VARIANTS["pe_dqn_plus"][1]
    assert fields["beta"] == fields["beta_final"]
    assert fields["importance_final"] == Config().importance_exponent
