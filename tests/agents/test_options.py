"""Options of several agents: ε, the intrinsic reward, Adam's ε."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.agents import AGENTS, Spec
from winkel.agents.learning import FLOOR_MEMORY, MEMORY, Floor, RunningMoments
from winkel.errors import InputError
from winkel.training.steps import start_clock
from winkel.types import Batch, Dense, Transition

KEY = jax.random.key(0)
SPEC = Spec(observation=Dense((3,)), num_actions=4)
SMALL = {
    "hidden": (4,), "c51_hidden": (4,), "num_atoms": 3, "num_members": 2, "batch_size": 5,
    "z_min": -1.0, "z_max": 1.0, "learning_rate": 0.01,
}  # fmt: skip
SIZE = SMALL["batch_size"]


def split(name, fields):
    """Fields of the Config and of the Hyper."""
    kind = AGENTS[name]
    static = {field.name for field in dataclasses.fields(kind.config_type)}
    config = {f: v for f, v in fields.items() if f in static}
    return config, {f: v for f, v in fields.items() if f in kind.hyper_type._fields}


def made(name, **fields):
    config, hyper = split(name, SMALL | fields)
    kind = AGENTS[name]
    return kind(kind.config_type(**config), SPEC), kind.hyper_type(**hyper)


def random_batch(name, **others):
    rng = np.random.default_rng(2)
    masks = jnp.ones((SIZE, SMALL["num_members"]), bool) if name in ("bdqn", "ids") else ()
    transitions = Transition(
        obs=jnp.asarray(rng.normal(size=(SIZE, 3)), jnp.float32),
        action=jnp.asarray(rng.integers(0, 4, SIZE)),
        reward=jnp.asarray(rng.normal(size=SIZE), jnp.float32),
        discount=jnp.zeros(SIZE),
        next_obs=jnp.asarray(rng.normal(size=(SIZE, 3)), jnp.float32),
        boundary=jnp.zeros(SIZE, bool),
        extras=masks,
    )
    return Batch(transitions, jnp.ones(SIZE), jnp.arange(SIZE), **others)


# ε


@functools.lru_cache
def acted(name):
    agent, _ = made(name)

    @jax.jit
    def act(keys, obs, env_steps, hyper):
        learner = agent.init(KEY, hyper)
        clock = start_clock()._replace(env_steps=env_steps)
        first, actor = jnp.zeros((), bool), agent.init_actor(KEY)

        def one(key):
            return agent.act(learner, actor, obs, first, clock, hyper, key)[0]

        return jax.vmap(one)(keys)

    return act


KEYS = jax.random.split(jax.random.key(9), 400)
OBS = jnp.array([0.5, -1.0, 2.0])


@pytest.mark.parametrize("name", AGENTS)
def test_epsilon_decays_with_the_steps_of_the_environment(name):
    """From uniform actions to the greedy one; without ε no key changes the action."""
    # With γ = 1 HyperAgent keeps its index for a whole episode.
    _, hyper = made(name, epsilon=1.0, epsilon_final=0.0, epsilon_steps=1000.0, gamma=1.0)
    none = hyper._replace(epsilon=0.0, epsilon_steps=0.0)
    (greedy,) = set(acted(name)(KEYS, OBS, jnp.asarray(3), none).action.tolist())
    for at, share in ((0, 0.25), (500, 0.625), (1000, 1.0)):
        actions = np.asarray(acted(name)(KEYS, OBS, jnp.asarray(at), hyper).action)
        found = np.mean(actions == greedy)
        assert abs(found - share) < 4 * np.sqrt(share * (1 - share) / len(KEYS)) + 1e-9
        assert len(set(actions.tolist())) == (1 if at == 1000 else 4)


def test_exploring_leaves_the_masks_of_members_as_they_are():
    for name in ("ids", "bdqn"):
        masks = []
        for epsilon in (0.0, 1.0):
            _, hyper = made(name, epsilon=epsilon, mask_probability=0.5)
            masks.append(acted(name)(KEYS, OBS, jnp.asarray(0), hyper).extras)
        np.testing.assert_array_equal(*masks)
        assert 0.4 < np.mean(masks[0]) < 0.6


# The intrinsic reward


def test_running_moments_are_those_of_all_batches_weighted_by_age():
    rng = np.random.default_rng(0)
    batches = [rng.normal(3.0 * i, 1.0 + i, 7).astype(np.float32) for i in range(5)]
    moments = RunningMoments.init()
    assert float(moments.deviation) == pytest.approx(1.0)
    for batch in batches:
        moments = moments.update(jnp.asarray(batch))
    values = np.concatenate(batches)
    weights = np.repeat([MEMORY**age for age in range(4, -1, -1)], 7)
    mean = np.average(values, weights=weights)
    variance = np.average((values - mean) ** 2, weights=weights)
    assert float(moments.weight) == pytest.approx(weights.sum(), rel=1e-5)
    assert float(moments.mean) == pytest.approx(mean, rel=1e-5)
    assert float(moments.deviation) == pytest.approx(np.sqrt(variance), rel=1e-5)


def test_equal_disagreements_do_not_divide_by_zero():
    moments = RunningMoments.init().update(jnp.ones(4))
    assert np.isfinite(1.0 / moments.deviation)


MOMENTS = RunningMoments(jnp.asarray(10.0), mean=jnp.asarray(1.0), variance=jnp.asarray(16.0))


@pytest.mark.parametrize("propagate", [True, False])
def test_disagreement_counts_in_units_of_its_deviation(propagate):
    """A bonus is what is learned plus w/4; as an average, plus (1 − γ³) w/4 for three steps."""
    fields = {"propagate": propagate, "n_step": 3}
    plain, hyper = made("pe_dqn", **fields, gamma=0.5)
    other, _ = made("pe_dqn", **fields, normalise_intrinsic=True)
    average, _ = made("pe_dqn", **fields, normalise_intrinsic=True, average_bonus=True)

    @jax.jit
    def estimates():
        learner = plain.init(KEY, hyper)
        scaled = learner._replace(intrinsic=MOMENTS)
        return plain.estimates(learner, OBS, hyper), [
            agent.estimates(scaled, OBS, hyper) for agent in (other, average)
        ]

    found, scaled = estimates()
    learned = found.bonus - found.disagreement
    for result, share in zip(scaled, (1.0, 1 - 0.5**3 if propagate else 1.0), strict=True):
        np.testing.assert_allclose(result.disagreement, found.disagreement, rtol=1e-5)
        wanted = learned + share * found.disagreement / 4.0
        np.testing.assert_allclose(result.bonus, wanted, rtol=1e-4, atol=1e-6)
    fresh = jax.eval_shape(lambda: other.init(KEY, hyper))
    assert isinstance(fresh.intrinsic, RunningMoments)


def test_the_floor_is_the_mean_of_the_medians_of_batches_weighted_by_age():
    batches = [np.float32(values) for values in ([1, 2, 9], [0, 0, 5], [4, 6, 8])]
    floor = Floor.init()
    np.testing.assert_array_equal(floor.apply(jnp.array([0.0, 0.5])), [0.0, 0.5])
    for batch in batches:
        floor = floor.update(jnp.asarray(batch))
    level = np.average([2, 0, 6], weights=FLOOR_MEMORY ** np.array([2, 1, 0]))
    np.testing.assert_allclose(floor.medians.mean, level, rtol=1e-6)
    np.testing.assert_allclose(floor.apply(jnp.array([1.0, level + 3])), [0.0, 3.0], rtol=1e-5)


@pytest.mark.parametrize("how", ["prior", "learned"])
def test_the_bonus_counts_what_is_above_the_floor(how):
    """In the choice of actions, in what the bonus learns; the floor follows greedy actions."""
    plain, hyper = made("pe_dqn", intrinsic_reward=how, beta=0.0, gamma=0.5)
    other, _ = made("pe_dqn", intrinsic_reward=how, bonus_floor=True)
    batch, beta = random_batch("pe_dqn"), jnp.zeros(())
    batch = batch._replace(transitions=batch.transitions._replace(discount=jnp.ones(SIZE)))
    level = 0.1

    @jax.jit
    def everything():
        learner = plain.init(KEY, hyper)
        floor = Floor(RunningMoments.init()._replace(weight=10.0, mean=jnp.asarray(level)))
        above = learner._replace(intrinsic=floor)
        targets = [
            jax.vmap(lambda t, agent=agent, of=of: agent.targets(of, beta, hyper, t, t.next_obs))(
                batch.transitions
            )
            for agent, of in ((plain, learner), (other, above))
        ]
        found = [
            jax.vmap(lambda obs, agent=agent, of=of: agent.estimates(of, obs, hyper))(obs)
            for agent, of in ((plain, learner), (other, above))
            for obs in (batch.transitions.obs, batch.transitions.next_obs)
        ]
        return targets, found, other.update(above, batch, start_clock(), hyper, KEY)[0]

    targets, (here, there, floored, _), learner = everything()
    rows = np.arange(SIZE)
    w_avg = there.disagreement[rows, np.argmax(there.value, axis=1)]  # β is 0: a'_ε is a'
    reward, lost = w_avg, w_avg - np.maximum(w_avg - level, 0.0)
    if how == "learned":
        reward = here.disagreement[rows, batch.transitions.action]
        lost = 2.0 * (reward - np.maximum(reward - level, 0.0))  # not discounted: γ is 0.5
        np.testing.assert_array_equal(floored.bonus, here.bonus)
    else:
        below = here.disagreement - np.maximum(here.disagreement - level, 0.0)
        np.testing.assert_allclose(floored.bonus, here.bonus - below, rtol=1e-4, atol=1e-6)
    assert np.sum(reward > level) > 0
    before, after = (t.bonus.locations for t in targets)
    wanted = np.broadcast_to(0.5 * lost[:, None], before.shape)
    np.testing.assert_allclose(before - after, wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(targets[1].disagreement, w_avg, rtol=1e-6)
    old = FLOOR_MEMORY * 10.0
    mean = (old * level + np.median(w_avg)) / (old + 1.0)
    np.testing.assert_allclose(learner.intrinsic.medians.mean, mean, rtol=1e-5)


def test_a_bonus_has_a_floor_or_is_normalised():
    with pytest.raises(InputError, match="need bonus_floor or normalise_intrinsic, got both"):
        made("pe_dqn", bonus_floor=True, normalise_intrinsic=True)


@pytest.mark.parametrize("how", ["prior", "learned"])
def test_the_bonus_learns_from_normalised_rewards(how):
    """The target moves by the reward, which the deviation divides; then the batch is counted."""
    plain, hyper = made("pe_dqn", intrinsic_reward=how, beta=0.0, gamma=0.5)
    other, _ = made("pe_dqn", intrinsic_reward=how, normalise_intrinsic=True)
    batch, beta = random_batch("pe_dqn"), jnp.zeros(())
    batch = batch._replace(transitions=batch.transitions._replace(discount=jnp.ones(SIZE)))

    @jax.jit
    def everything():
        learner = plain.init(KEY, hyper)
        scaled = learner._replace(intrinsic=MOMENTS)
        before, after = (
            jax.vmap(lambda t, agent=agent, of=of: agent.targets(of, beta, hyper, t, t.next_obs))(
                batch.transitions
            )
            for agent, of in ((plain, learner), (other, scaled))
        )
        now = jax.vmap(lambda obs: plain.estimates(learner, obs, hyper).disagreement)
        updated, _ = other.update(scaled, batch, start_clock(), hyper, KEY)
        return before, after, now(batch.transitions.obs), updated.intrinsic

    before, after, now, moments = everything()
    moved = before.bonus.locations - after.bonus.locations
    apart = 0.5 * before.disagreement
    if how == "learned":
        apart = now[jnp.arange(SIZE), batch.transitions.action]
    wanted = np.broadcast_to(apart[:, None] * (1 - 1 / 4), moved.shape)
    np.testing.assert_allclose(moved, wanted, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(moments, MOMENTS.update(before.disagreement), rtol=1e-4)


def test_bonuses_without_ends_decay_with_the_steps_of_a_sample():
    """All transitions end: of γ nothing is left in the values, and only the decay in bonuses."""
    agent, hyper = made("pe_dqn", episodic_bonus=False, beta=0.0)
    learner = jax.jit(lambda: agent.init(KEY, hyper))()
    update = jax.jit(lambda b, h: agent.update(learner, b, start_clock(), h, KEY)[1].priorities)

    def losses(gamma, **decay):
        return update(random_batch("pe_dqn", **decay), hyper._replace(gamma=gamma))

    halved = losses(0.8, gamma_power=jnp.full(SIZE, 0.5))
    np.testing.assert_allclose(halved, losses(0.4, gamma_power=jnp.ones(SIZE)), rtol=1e-5)
    assert np.abs(halved - losses(0.8, gamma_power=jnp.ones(SIZE))).max() > 1e-3


def test_bonuses_with_ends_have_the_decay_in_their_discounts():
    agent, hyper = made("pe_dqn", beta=0.0)
    learner, batch = jax.eval_shape(agent.init, KEY, hyper), random_batch("pe_dqn")
    learner = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), learner)
    one = jax.tree.map(lambda x: x[0], batch.transitions)._replace(discount=jnp.asarray(0.7))
    targets = jax.jit(
        lambda decay: agent.targets(learner, jnp.zeros(()), hyper, one, one.next_obs, decay)
    )
    for a, b in zip(*map(jax.tree.leaves, (targets(0.5), targets(1.0))), strict=True):
        np.testing.assert_array_equal(a, b)


# Adam


@pytest.mark.parametrize(("name", "epsilon"), [("pe_dqn", 5.0), ("bdqn", 5.0), ("c51", 1e-3)])
def test_adams_epsilon_is_the_setting_over_the_batch_size(name, epsilon):
    """A first step is α g / (|g| + ε)."""
    agent, hyper = made(name, adam_epsilon=epsilon)
    learner = jax.jit(lambda: agent.init(KEY, hyper))()
    batch = random_batch(name)
    after, _ = jax.jit(lambda *of: agent.update(*of, start_clock(), hyper, KEY))(learner, batch)
    for old, new, moment in zip(
        *map(jax.tree.leaves, (learner.params, after.params, after.opt_state.mu)), strict=True
    ):
        gradient = np.asarray(moment) / 0.1
        wanted = 0.01 * gradient / (np.abs(gradient) + epsilon / SIZE)
        np.testing.assert_allclose(old - new, wanted, rtol=1e-2, atol=1e-6)
