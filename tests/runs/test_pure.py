"""`winkel.make_train`: a run as a pure function computes what `winkel.train` computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import winkel
from helpers import unchecked
from winkel.agents import dqn, pe_dqn
from winkel.envs import Dense, Environment, make, outcome
from winkel.errors import InputError

SMALL = {"hidden": (16,), "batch_size": 8, "burn_in": 8, "capacity": 64}
AGENTS = {"dqn": SMALL, "pe_dqn": {**SMALL, "num_atoms": 5}}
STEPS = 8 + 100  # one chunk after burn-in: `winkel.train` stops between chunks


def keys_of(seeds):
    return jax.vmap(jax.random.key)(np.asarray(seeds))


def assert_equal_runs(found, expected):
    """Episodes and all that was learned are equal, bit for bit."""
    for lane, record in enumerate(expected.runs):
        whole = jax.tree.map(lambda x, lane=lane: x[lane], found)
        ended = np.asarray(whole.ended)
        for name in ("return", "length"):
            np.testing.assert_array_equal(
                np.asarray(whole.sums[name])[ended], record.episodes[name]
            )
        leaves = zip(
            jax.tree.leaves(whole.state.learner), jax.tree.leaves(record.learner), strict=True
        )
        for ours, theirs in leaves:
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("env", "agent"), [("deep_sea:size=6", "pe_dqn"), ("catch/0", "dqn")])
def test_a_pure_run_equals_winkel_train(env, agent):
    train = winkel.make_train(env, agent, steps=STEPS, **AGENTS[agent])
    found = jax.jit(jax.vmap(train))(keys_of(range(3)))
    expected = winkel.train(env, agent, seeds=3, steps=STEPS, **AGENTS[agent])
    assert len(expected.runs[0].episodes["return"]) > 5
    assert_equal_runs(found, expected)
    np.testing.assert_array_equal(found.state.clock.env_steps, STEPS)
    assert found.metrics["loss"].shape == (3, STEPS - 8)


def test_a_grid_of_hyperparameters_equals_runs_with_arrays_of_all():
    train = winkel.make_train("deep_sea:size=6", "dqn", steps=STEPS, **SMALL)
    keys, rates = keys_of([0, 0, 1]), jnp.array([1e-3, 1e-2, 1e-2])

    def with_rate(key, rate):
        return train(key, train.hyper._replace(learning_rate=rate))

    hypers = jax.tree.map(lambda x: jnp.full(3, x), train.hyper)._replace(learning_rate=rates)
    some, full = jax.jit(jax.vmap(with_rate))(keys, rates), jax.jit(jax.vmap(train))(keys, hypers)
    for ours, theirs in zip(
        jax.tree.leaves(some.state.learner), jax.tree.leaves(full.state.learner), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    losses = np.asarray(some.metrics["loss"])
    assert losses[0, 0] == losses[1, 0]
    assert (losses[0, 20:] != losses[1, 20:]).all()


def test_copies_of_a_setting_have_the_key_of_winkel_train():
    small = {**SMALL, "steps": STEPS}
    found = jax.jit(jax.vmap(winkel.make_train("catch/3", "dqn", **small)))(keys_of([0]))
    assert_equal_runs(found, winkel.train("catch/3", "dqn", **small))


def test_a_horizon_in_episodes_has_the_steps_of_the_longest_episodes():
    train = winkel.make_train("deep_sea:size=6", "dqn", episodes=10, **SMALL)
    assert train.num_steps == 60
    ended = jax.jit(train)(jax.random.key(0)).ended
    assert ended.sum() == 10


class Corridor(Environment):
    """Walk to the end of a corridor."""

    length: int = 4
    num_actions = 2

    @property
    def observation(self):
        return Dense((1,))

    def start(self, draws, episode, params):
        return jnp.zeros((), jnp.int32)

    def transition(self, state, action, draws, params):
        following = jnp.maximum(state + 2 * action.astype(jnp.int32) - 1, 0)
        ended = following == self.length
        return following, outcome(ended.astype(jnp.float32), ended)

    def observe(self, state, params):
        return (state / self.length)[None].astype(jnp.float32)


def test_an_environment_of_ones_own_is_trained_in():
    train = winkel.make_train(Corridor(), "dqn", steps=200, epsilon=1.0, epsilon_final=1.0, **SMALL)
    whole = jax.jit(train)(jax.random.key(0))
    assert whole.ended.any()
    np.testing.assert_array_equal(whole.sums["return"][whole.ended], 1.0)


def test_a_task_is_taken_as_its_name():
    named = winkel.make_train("deep_sea:size=6", "dqn", steps=STEPS, **SMALL)
    given = winkel.make_train(make("deep_sea:size=6"), "dqn", steps=STEPS, **SMALL)
    key = jax.random.key(3)
    np.testing.assert_array_equal(
        jax.jit(named)(key).metrics["loss"], jax.jit(given)(key).metrics["loss"]
    )


class Optimist(dqn.DQN):
    """An agent from outside the package."""


def test_an_agent_of_ones_own_is_trained():
    train = winkel.make_train("deep_sea:size=6", Optimist, steps=STEPS, **SMALL)
    assert isinstance(train.agent, Optimist)
    assert jnp.isfinite(jax.jit(train)(jax.random.key(0)).metrics["loss"]).all()


@pytest.mark.parametrize(
    ("env", "agent", "fields", "message"),
    [
        ("gym:CartPole-v1", "dqn", {"steps": 500}, "got the simulator 'gym:CartPole-v1'"),
        (7, "dqn", {"steps": 500}, "for env, got 7"),
        ("deep_sea/0", "dqn", {"steps": 100}, "need more than 128 steps, the burn-in, got 100"),
        ("deep_sea/0", "dqm", {"steps": 500}, "unknown agent 'dqm'; did you mean dqn"),
        ("deep_sea/0", "dqn", {"steps": 500, "width": 3}, "dqn has no field 'width'"),
        ("deep_sea/0", "dqn", {"steps": 1.5}, "need steps >= 1, a whole number, got 1.5"),
        ("deep_sea/0", "dqn", {"steps": 2**31 - 2, "capacity": 2**31 - 1}, "of memory"),
        (Corridor(), "dqn", {"episodes": 5}, "whose longest episode is unknown"),
        (Corridor(), "dqn", {}, "need episodes or steps, the horizon, for Corridor"),
        (Corridor(), "pe_dqn", {"steps": 500}, "need z_min and z_max"),
    ],
)
def test_bad_input_to_make_train_is_one_line(env, agent, fields, message):
    with unchecked(), pytest.raises(InputError, match=message) as raised:
        winkel.make_train(env, agent, **fields)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("key", [0.5, np.array([0.0, 1.0]), jax.random.PRNGKey(0), keys_of([0, 1])])
def test_bad_keys_are_one_line(key):
    train = winkel.make_train("deep_sea:size=6", "dqn", steps=STEPS, **SMALL)
    with unchecked(), pytest.raises(InputError, match=r"need a key such as jax.random.key\(0\)"):
        jax.jit(train)(key)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda hyper: hyper._replace(beta=-1.0), "need a finite beta >= 0, got -1.0"),
        (lambda hyper: hyper._replace(beta=jnp.array(-1.0)), "need a finite beta >= 0"),
        (lambda hyper: hyper._replace(beta=[1.0, 2.0]), "need one beta, and jax.vmap"),
        (lambda hyper: {"beta": 1.0}, "need a tuple such as train.hyper for hyper"),
        (lambda hyper: pe_dqn.Hyper(), "need a finite z_min, got nan"),
    ],
)
def test_bad_hyperparameters_are_one_line(change, message):
    train = winkel.make_train("deep_sea:size=6", steps=STEPS, **AGENTS["pe_dqn"])
    with unchecked(), pytest.raises(InputError, match=message):
        train(jax.random.key(0), change(train.hyper))
