"""Lanes with fewer actions than their program: what is not there is never chosen."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.agents import AGENTS, VARIANTS, Spec
from winkel.agents.base import epsilon_greedy
from winkel.envs.registry import make
from winkel.networks import MLP
from winkel.runs.spec import configure, field_names
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes
from winkel.training.steps import Horizon, Plan, start_clock
from winkel.types import Batch, Dense, Transition

NAMES = [*AGENTS, "pe_dqn_ind", "ids_clip"]
ALL = pytest.mark.parametrize("name", NAMES)
SMALL = {
    "hidden": (8,), "c51_hidden": (8,), "num_atoms": 5, "num_members": 3, "batch_size": 8,
    "burn_in": 8, "capacity": 64, "z_min": -1.0, "z_max": 1.0, "double": True, "beta": 1.0,
}  # fmt: skip
ACTIONS, COUNT = 3, 16
OBS = np.random.default_rng(0).normal(size=(COUNT, 4)).astype(np.float32)


def small_fields(name):
    return {field: SMALL[field] for field in field_names(name) if field in SMALL}


def small(name):
    task = make("catch/0")
    agent, hyper = configure(name, small_fields(name), task)
    spec = Spec(observation=Dense((4,)), num_actions=ACTIONS)
    return dataclasses.replace(agent, spec=spec), hyper


def masked(agent, available):
    """With so many actions, a traced number as in a lane."""
    return dataclasses.replace(agent, spec=agent.spec._replace(available=available))


def tempting(learner):
    """The same learner, whose networks all promise the most of the last action."""

    def tempt(network):
        if not isinstance(network, MLP):
            return network
        bias = network.layers[-1].bias
        each = bias.reshape(*bias.shape[:-1], ACTIONS, -1)
        promise = 30.0 * (1.0 + jnp.arange(each.shape[-1]) ** 2)
        changed = each.at[..., -1, :].set(jnp.broadcast_to(promise, each[..., -1, :].shape))
        return eqx.tree_at(lambda n: n.layers[-1].bias, network, changed.reshape(bias.shape))

    return jax.tree.map(tempt, learner, is_leaf=lambda x: isinstance(x, MLP))


@functools.lru_cache
def program(name):
    """Acting and learning in one program, compiled once; `available` is traced, or None."""
    agent, hyper = small(name)

    @jax.jit
    def act_and_learn(available, tempt, progress):
        fitted = masked(agent, available)
        plain = fitted.init(jax.random.key(0), hyper)
        tempted = tempting(plain)
        learner = jax.tree.map(lambda a, b: jnp.where(tempt, a, b), tempted, plain)

        def decide(key, obs):
            clock, first = start_clock()._replace(progress=progress), jnp.ones((), bool)
            return fitted.act(tempted, fitted.init_actor(key), obs, first, clock, hyper, key)[0]

        keys = jax.random.split(jax.random.key(1), COUNT)
        decisions = jax.vmap(decide)(keys, jnp.asarray(OBS))
        batch = Batch(
            transitions=Transition(
                obs=jnp.asarray(OBS),
                action=jnp.arange(COUNT) % 2,
                reward=jnp.linspace(-1.0, 1.0, COUNT),
                discount=jnp.ones(COUNT),
                next_obs=jnp.asarray(OBS[::-1]),
                boundary=jnp.zeros(COUNT, bool),
                extras=decisions.extras,
            ),
            weights=jnp.ones(COUNT),
            indices=jnp.arange(COUNT),
        )
        after, result = fitted.update(learner, batch, start_clock(), hyper, jax.random.key(2))
        return decisions.action, (result.priorities, jax.tree.leaves(after))

    return act_and_learn


def chosen(name, available, progress):
    """Actions at some observations by a learner that is tempted."""
    return np.asarray(program(name)(available, True, progress)[0])


def learned(name, available, tempt):
    """Losses and new weights after an update on transitions of the first two actions."""
    return program(name)(available, tempt, 0.0)[1]


@ALL
@pytest.mark.parametrize("progress", [0.0, 1.0])
def test_an_action_that_is_not_there_is_not_chosen(name, progress):
    two = chosen(name, jnp.asarray(2), progress)
    assert set(two) <= {0, 1}
    if progress == 1.0:  # with the last, no one would choose anything else but by chance
        assert np.mean(chosen(name, jnp.asarray(ACTIONS), progress) == 2) > 0.5


@ALL
def test_targets_do_not_look_at_an_action_that_is_not_there(name):
    plain, tempted = (learned(name, jnp.asarray(2), t)[0] for t in (False, True))
    np.testing.assert_allclose(plain, tempted, rtol=1e-4, atol=1e-5)
    everything = learned(name, jnp.asarray(ACTIONS), True)[0]
    assert not np.allclose(plain, everything, rtol=1e-2)


@pytest.mark.parametrize("name", ["bdqn", "dqn", "ids"])
def test_a_lane_with_all_actions_is_unchanged(name):
    """In a program without a mask. Here one agent of each way to act."""
    for progress in (0.0, 1.0):
        same = (chosen(name, n, progress) for n in (None, jnp.asarray(ACTIONS)))
        np.testing.assert_array_equal(*same)
    ours, theirs = (learned(name, n, False) for n in (None, jnp.asarray(ACTIONS)))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_random_actions_are_drawn_among_those_that_there_are():
    keys = jax.random.split(jax.random.key(0), 3_000)

    @jax.jit
    def draw(available):
        spec = Spec(Dense((1,)), num_actions=4, available=available)
        return jax.vmap(lambda key: epsilon_greedy(key, jnp.zeros(4), 1.0, spec))(keys)

    for available in (1, 3, 4):
        counts = np.bincount(np.asarray(draw(jnp.asarray(available))), minlength=4)
        assert (counts[available:] == 0).all()
        np.testing.assert_allclose(counts[:available] / 3_000, 1 / available, atol=0.05)
    np.testing.assert_array_equal(draw(jnp.asarray(4)), draw(None))


def test_lanes_of_one_program_have_their_own_actions():
    """Through burn-in, learning and evaluation; a neighbour with all actions sees no difference."""
    task = make("catch/0")
    agent, hyper = configure("dqn", small_fields("dqn"), task)

    def played(availables):
        plans = [
            Plan(task.params, hyper, Horizon(episodes=99), 0, available=available)
            for available in availables
        ]
        lanes = Lanes(agent, CompiledWorld(task.env), plans, 2, 30)
        lanes.advance()
        actions = np.asarray(lanes.row.states.replay.items.action)[:, :38]
        return actions, lanes.evaluate([0, 1], 1, 3)

    actions, returns = played([2, None])
    assert set(actions[0]) == {0, 1}
    assert set(actions[1]) == {0, 1, 2}
    plain, plain_returns = played([ACTIONS, None])
    np.testing.assert_array_equal(plain[1], actions[1])
    np.testing.assert_array_equal(plain_returns[1], returns[1])


def test_variants_are_known():
    assert set(NAMES) <= {*AGENTS, *VARIANTS}
