"""What every entry of `AGENTS` must do."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import compilations
from winkel.agents import AGENTS, VARIANTS, Spec
from winkel.agents.base import check_number
from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.networks import MLP
from winkel.runs.spec import configure
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes
from winkel.training.steps import Horizon, Plan, start_clock
from winkel.types import Batch, Dense, OneHot, Transition

ALL = pytest.mark.parametrize("name", AGENTS)
SMALL = {
    "hidden": (16,), "c51_hidden": (16,), "num_atoms": 11, "num_members": 3, "batch_size": 8,
    "burn_in": 8, "capacity": 64,
}  # fmt: skip
GAMMA = 0.9
PLAIN = [name for name, kind in AGENTS.items() if "prior_scale" not in kind.hyper_type._fields]
SEA = "deep_sea:size=3"


@ALL
def test_every_hyperparameter_declares_its_range(name):
    """Defaults lie in it, or are left to the environment; text and infinity never do."""
    kind = AGENTS[name]
    for field, default in kind.hyper_type._field_defaults.items():
        if not math.isnan(default):
            assert check_number(kind, field, default) == default
        for wrong in ("1", True, math.nan, math.inf):
            with pytest.raises(InputError, match=f"need a finite {field}.*, got {wrong!r}"):
                check_number(kind, field, wrong)
    with pytest.raises(InputError, match="need a finite learning_rate > 0, got 0"):
        check_number(kind, "learning_rate", 0)
    with pytest.raises(InputError, match=r"need a finite gamma in \[0, 1\], got 1.5"):
        check_number(kind, "gamma", 1.5)


def small_fields(name, **others):
    kind = AGENTS[VARIANTS[name][0] if name in VARIANTS else name]
    known = {field.name for field in dataclasses.fields(kind.config_type)} | set(
        kind.hyper_type._fields
    )
    return {field: value for field, value in (SMALL | others).items() if field in known}


def small(name, **others):
    return configure(name, small_fields(name, **others), make(SEA))


def plans(hyper, seeds, episodes=12):
    params = make(SEA).params
    return [Plan(params, hyper, Horizon(episodes=episodes), seed) for seed in seeds]


def finished(configured, seeds, num_lanes):
    """Records and final learners by seed."""
    world = CompiledWorld(make(SEA).env)
    agent, hyper = configured
    lanes = Lanes(agent, world, plans(hyper, seeds), num_lanes, 16)
    records, learners = {seed: [] for seed in seeds}, {}
    while reports := lanes.advance():
        for report in reports:
            records[seeds[report.run]].append(report.episodes)
            assert report.failure is None
            if report.finished:
                state = lanes.state(report.run)
                learners[seeds[report.run]] = state.learner
                lanes.release(report.run)
    tables = {
        seed: {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for seed, parts in records.items()
    }
    return tables, learners


@pytest.mark.parametrize(
    ("name", "num_lanes"),
    [(name, 3) for name in AGENTS]
    + [pytest.param(name, 1, marks=pytest.mark.long) for name in ("bdqn", "ids", "pe_dqn")],
)
def test_a_lane_alone_equals_the_same_lane_in_a_batch_and_seeds_differ(name, num_lanes):
    """Alone in a program of its own too, which rounds otherwise (`test_lanes.py` has PE-DQN)."""
    configured = small(name)
    together, learners = finished(configured, [0, 1, 2], num_lanes=3)
    alone, learner = finished(configured, [1], num_lanes)
    for column in alone[1]:
        np.testing.assert_array_equal(alone[1][column], together[1][column])
    for one, other in zip(jax.tree.leaves(learner[1]), jax.tree.leaves(learners[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    weights = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(learners[s])]) for s in (0, 1)]
    assert np.abs(weights[0] - weights[1]).max() > 1e-2


@ALL
def test_programs_are_compiled_once(name):
    finished(small(name), [0, 1, 2], num_lanes=3)
    rate = {"learning_rate": 3e-4, "gamma": 0.5}
    with compilations() as found:
        finished(small(name, **rate), [3, 4, 5], num_lanes=3)
    assert not {program for program, _ in found} & {"begin", "advance"}


@functools.lru_cache
def fresh(name, observation):
    """A fresh learner, what its networks and the agent give for one observation, and an action."""
    agent, hyper = small(name)
    agent = dataclasses.replace(agent, spec=Spec(observation=observation, num_actions=3))

    @jax.jit
    def look(key, obs):
        learner = agent.init(key, hyper)
        decision, _ = agent.act(
            learner, agent.init_actor(key), obs, jnp.ones((), bool), start_clock(),
            hyper, key,
        )  # fmt: skip
        outputs = [
            [network(obs) for network in jax.tree.leaves((p.params, p.prior), is_leaf=is_network)]
            for p in parts_of(learner)
        ]
        found = agent.estimates(learner, obs, hyper)
        return learner, outputs, found, decision.action

    obs = jnp.asarray(4) if isinstance(observation, OneHot) else jnp.ones((2, 2))
    return agent, *look(jax.random.key(0), obs)


def is_network(node):
    return isinstance(node, MLP)


def parts_of(learner):
    return (learner.ensemble, learner.c51) if hasattr(learner, "c51") else (learner,)


ONE_HOT, DENSE = OneHot((3, 3)), Dense((2, 2))
STATISTICS = ("statistic_quantile_mean", "statistic_categorical_kurtosis")
"""Of the variants that differ in the moment only."""
SHOWN = [n for n in VARIANTS if not n.startswith("statistic") or n in STATISTICS]
OBSERVED = pytest.mark.parametrize(
    ("name", "observation"),
    [(name, ONE_HOT) for name in [*AGENTS, *SHOWN]]
    + [
        pytest.param(name, DENSE, marks=() if name in ("pe_dqn", "dqn") else pytest.mark.long)
        for name in AGENTS
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)


@OBSERVED
def test_fresh_networks_are_independent_and_their_targets_copies(name, observation):
    """Members and priors differ, Adam's moments are 0, and only agents with priors have them."""
    agent, learner, outputs, *_ = fresh(name, observation)
    for part, made in zip(parts_of(learner), outputs, strict=True):
        jax.tree.map(np.testing.assert_array_equal, part.target_params, part.params)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(part.opt_state))
        rows = [np.asarray(x).reshape(-1, x.shape[-2] * x.shape[-1]) for x in made]
        for width in {row.shape[1] for row in rows}:
            values = np.concatenate([row for row in rows if row.shape[1] == width])
            gaps = np.abs(values[:, None] - values[None]).max(axis=-1)
            assert (gaps + np.eye(len(values))).min() > 1e-3
        has_prior = getattr(
            agent.config,
            "prior",
            getattr(agent.config, "priors", name not in PLAIN or name == "rnd"),
        )
        assert (part.prior is not None) == bool(has_prior)


@OBSERVED
def test_estimates_are_finite_and_shaped_as_promised(name, observation):
    agent, _, _, found, action = fresh(name, observation)
    members = len(agent.member_names())
    assert found.value.shape == found.disagreement.shape == found.bonus.shape == (3,)
    assert found.members.locations.shape == found.members.probs.shape
    assert found.members.locations.shape[:2] == (members, 3)
    assert np.isfinite(found.value).all()
    assert np.isfinite(found.members.locations).all()
    np.testing.assert_allclose(found.members.probs.sum(axis=-1), 1.0, rtol=1e-5)
    for optional in (found.disagreement, found.bonus):
        assert np.isfinite(optional).all() or np.isnan(optional).all()
    assert 0 <= int(action) < 3


def probe(count):
    """Every transition of a two-step chain, `count` times.

    In state 0 action 0 leads to state 1 for nothing and action 1 ends with 0.5; in state 1 action 0
    ends with 1 and action 1 with −1. So Q(0, ·) = (γ, 0.5) and Q(1, ·) = (1, −1).
    """
    transition = Transition(
        obs=jnp.array([0, 0, 1, 1], jnp.int32),
        action=jnp.array([0, 1, 0, 1], jnp.int32),
        reward=jnp.array([0.0, 0.5, 1.0, -1.0]),
        discount=jnp.array([1.0, 0.0, 0.0, 0.0]),
        next_obs=jnp.array([1, 2, 2, 2], jnp.int32),
        boundary=jnp.array([False, True, True, True]),
        extras=(),
    )
    return jax.tree.map(lambda x: jnp.tile(x, count), transition)


PROBED = np.array([[GAMMA, 0.5], [1.0, -1.0]])


@pytest.mark.parametrize("name", [n for n in [*AGENTS, "pe_dqn_ind", "pe_dqn_c51_c51"]])
def test_the_values_of_a_probe_are_learned(name):
    """Every action's value within 0.05 after 1,500 updates (0 everywhere, without rewards)."""
    fields = {"batch_size": 16, "hidden": (32,), "c51_hidden": (32,), "prior_scale": 1.0}
    agent, hyper = small(
        name, **fields, learning_rate=3e-3, c51_learning_rate=3e-3, gamma=GAMMA, z_min=-1.5,
        z_max=1.5, beta=0.0, target_period=2,
    )  # fmt: skip
    agent = dataclasses.replace(agent, spec=Spec(observation=OneHot((2,)), num_actions=2))

    @jax.jit
    def learned(key, hyper):
        learner = agent.init(key, hyper)
        decision, _ = agent.act(
            learner, agent.init_actor(key), jnp.zeros((), jnp.int32), jnp.ones((), bool),
            start_clock(), hyper, key,
        )  # fmt: skip
        extras = jax.tree.map(lambda x: jnp.broadcast_to(x, (16, *x.shape)), decision.extras)
        batch = Batch(
            transitions=probe(4)._replace(extras=extras),
            weights=jnp.ones(16),
            indices=jnp.arange(16),
        )

        def step(learner, count):
            clock = start_clock()._replace(updates=count)
            return agent.update(learner, batch, clock, hyper, key)[0], None

        learner, _ = jax.lax.scan(step, learner, jnp.arange(1_500))
        return jax.vmap(lambda obs: agent.estimates(learner, obs, hyper).value)(jnp.arange(2))

    wanted = 0.0 * PROBED if getattr(agent.config, "reward_free", False) else PROBED
    np.testing.assert_allclose(learned(jax.random.key(0), hyper), wanted, atol=0.05)
