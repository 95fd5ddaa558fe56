"""Learning with one body under all networks of an agent. The torso is a small one here."""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.agents import AGENTS, Spec, learning
from winkel.errors import InputError
from winkel.networks.impala import Spectrum
from winkel.networks.mlp import Linear
from winkel.training.steps import start_clock
from winkel.types import Batch, Estimates, Image, Transition, Update

KEY = jax.random.key(1)
IMAGE = Image((5, 6), 2)
SPEC = Spec(observation=IMAGE, num_actions=3)
SIZE, FEATURES = 4, 2 * 2 * 2
SMALL = {
    "hidden": (5,), "c51_hidden": (5,), "num_atoms": 3, "num_members": 2, "batch_size": SIZE,
    "channels": 1, "target_period": 2, "z_min": -1.0, "z_max": 1.0, "double": True,
}  # fmt: skip
IMAGE_SHAPE = jax.ShapeDtypeStruct(IMAGE.shape, jnp.uint8)
CONVOLUTIONS = 5
"""In one pass of the small torso."""


@pytest.fixture(autouse=True)
def small_torso(monkeypatch):
    monkeypatch.setattr("winkel.networks.impala.CHANNELS", (2,))
    monkeypatch.setattr("winkel.networks.impala.SIDE", 2)


def made(name, spec=SPEC, **fields):
    """An agent, and its hyperparameters."""
    kind = AGENTS[name]
    static = {field.name for field in dataclasses.fields(kind.config_type)}
    known = static | set(kind.hyper_type._fields)
    fields = {field: value for field, value in (SMALL | fields).items() if field in known}
    config = kind.config_type(**{f: v for f, v in fields.items() if f in static})
    return kind(config, spec), kind.hyper_type(
        **{f: v for f, v in fields.items() if f not in static}
    )


def random_batch(name, seed=0):
    rng = np.random.default_rng(seed)

    def frames():
        return jnp.asarray(rng.integers(0, 256, (SIZE, *IMAGE.shape)), jnp.uint8)

    masks = jnp.ones((SIZE, SMALL["num_members"]), bool) if name in ("bdqn", "ids") else ()
    return Batch(
        transitions=Transition(
            obs=frames(),
            action=jnp.asarray(rng.integers(0, 3, SIZE)),
            reward=jnp.asarray(rng.normal(size=SIZE), jnp.float32),
            discount=jnp.ones(SIZE),
            next_obs=frames(),
            boundary=jnp.zeros(SIZE, bool),
            extras=masks,
        ),
        weights=jnp.ones(SIZE),
        indices=jnp.arange(SIZE),
    )


def near_leading(rng, body):
    """The body with spectra that a step of power iteration can improve on."""

    def spectrum(weight):
        left, _, right = np.linalg.svd(np.asarray(weight).reshape(len(weight), -1))
        ends = (x + 0.05 * rng.normal(size=x.shape) for x in (left[:, 0], right[0]))
        return Spectrum(*(jnp.asarray(x, jnp.float32) for x in ends))

    def spectra_of(weights):
        return jax.tree.map(lambda *of: jnp.stack(of), *map(spectrum, weights))

    spectra = tuple(map(spectra_of, body.torso.residual_weights))
    return eqx.tree_at(lambda b: b.spectra, body, spectra)


@functools.lru_cache
def drawn(name):
    """A learner of NumPy's numbers, for which nothing is compiled; target networks are others."""
    agent, hyper = made(name)
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(agent.init, KEY, hyper)
    learner = jax.tree.map(lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype), shapes)

    def with_fresh_moments(part):
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), part.opt_state)
        return part._replace(opt_state=zeros)

    shared = with_fresh_moments(learner.shared)
    shared = shared._replace(
        params=near_leading(rng, shared.params),
        target_params=near_leading(rng, shared.target_params),
    )
    if name != "ids":
        return with_fresh_moments(learner)._replace(shared=shared)
    ensemble, c51 = map(with_fresh_moments, (learner.ensemble, learner.c51))
    return learner._replace(ensemble=ensemble, c51=c51, shared=shared)


class Result(NamedTuple):
    learner: Any
    result: Update
    action: Any
    estimates: Estimates


@functools.lru_cache
def program(name, clip_norm=0.0):
    """An update, an action and estimates before it, compiled once for all tests."""
    agent, _ = made(name, clip_norm=clip_norm)

    def work(learner, batch, hyper, updates):
        clock, obs = start_clock()._replace(updates=jnp.asarray(updates)), batch.transitions.obs
        after, result = agent.update(learner, batch, clock, hyper, KEY)
        first, actor = jnp.ones((), bool), agent.init_actor(KEY)
        decision, _ = agent.act(learner, actor, obs[0], first, clock, hyper, KEY)
        look = jax.vmap(lambda one: agent.estimates(learner, one, hyper))
        return Result(after, result, decision.action, look(obs))

    compiled = jax.jit(work)
    return lambda learner, batch, hyper, updates=0: compiled(learner, batch, hyper, updates)


def bodies(learner):
    return learner.shared.params, learner.shared.target_params


def changed(before, after):
    return [
        bool(np.any(np.asarray(a) != np.asarray(b)))
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    ]


def test_an_image_has_the_shape_of_its_stack():
    assert Image((4, 5), 3).shape == (3, 4, 5)
    assert Image((4, 5, 2), 3).shape == (3, 4, 5, 2)


@pytest.mark.parametrize("frame", [(4,), (4, 5, 3, 2)])
def test_impossible_images_are_refused(frame):
    with pytest.raises(InputError, match=r"\(H, W\) or \(H, W, C\), got \(4,"):
        Image(frame, 1)


@pytest.mark.parametrize("name", ["bdqn", "dltv", "ids", "pe_dqn"])
def test_every_agent_learns_from_images_and_acts_on_them(name):
    """Two updates: heads and body move, and the targets are copies after the second."""
    _, hyper = made(name, learning_rate=1e-2, c51_learning_rate=1e-2)
    learner, batch = drawn(name), random_batch(name)
    once, result, action, found = program(name)(learner, batch, hyper, 0)
    assert np.isfinite(result.metrics["loss"])
    assert result.priorities.shape == (SIZE,)
    body, target = bodies(once)
    assert all(changed(learner.shared.params.spectra, body.spectra))
    assert all(changed(learner.shared.params.torso, body.torso))
    assert not any(changed(bodies(learner)[1], target))
    assert 0 <= int(action) < 3
    assert found.value.shape == (SIZE, 3)
    assert np.isfinite(found.value).all()
    twice, result, *_ = program(name)(once, batch, hyper, 1)
    assert np.isfinite(result.metrics["loss"])
    assert not any(changed(*bodies(twice)))
    for part in (twice.ensemble, twice.c51) if name == "ids" else (twice,):
        assert not any(changed(part.params, part.target_params))


@pytest.mark.parametrize("name", ["c51", "dqn", "qr_dqn", "statistic"])
def test_agents_made_of_the_same_parts_take_images_too(name):
    agent, hyper = made(name)
    learner = jax.eval_shape(agent.init, KEY, hyper)
    batch = jax.eval_shape(lambda: random_batch(name))
    after, _ = jax.eval_shape(
        lambda *of: agent.update(*of, start_clock(), hyper, KEY), learner, batch
    )
    assert jax.tree.structure(after) == jax.tree.structure(learner)
    assert after.shared.params.torso.residual_weights[0].shape == (4, 2, 3, 3, 2)
    found = jax.eval_shape(lambda *of: agent.estimates(*of, hyper), learner, IMAGE_SHAPE)
    assert found.value.shape == (3,)


def counted(function, *arguments):
    def walk(jaxpr):
        for equation in jaxpr.eqns:
            yield equation.primitive.name == "conv_general_dilated"
            for parameter in jax.tree.leaves(
                equation.params, is_leaf=lambda x: hasattr(x, "jaxpr") or hasattr(x, "eqns")
            ):
                inner = getattr(parameter, "jaxpr", parameter)
                if hasattr(inner, "eqns"):
                    yield from walk(inner)

    return sum(walk(jax.make_jaxpr(function)(*arguments).jaxpr))


@pytest.mark.parametrize(
    ("name", "fields", "passes"),
    [(name, {}, 3) for name in ("pe_dqn", "bdqn", "ids", "dltv")]
    + [
        ("pe_dqn", {"intrinsic_reward": "learned"}, 3),
        ("pe_dqn", {"backup": "independent", "propagate": False}, 3),
        ("bdqn", {"double": False}, 2),
        ("c51", {"double": False}, 2),
    ],
)
def test_the_body_runs_once_for_each_purpose(name, fields, passes, monkeypatch):
    """On s, on s' and by the target on s', and backwards on s; once to act."""
    choices = lambda *of, **ways: ways["cpu"](*of)  # noqa: E731
    monkeypatch.setattr(jax.lax, "platform_dependent", choices)
    agent, hyper = made(name, **fields)
    learner = jax.eval_shape(agent.init, KEY, hyper)
    batch = jax.eval_shape(lambda: random_batch(name))
    backward = 2 * CONVOLUTIONS  # in inputs and in weights
    update = counted(lambda *of: agent.update(*of, start_clock(), hyper, KEY), learner, batch)
    assert update == passes * CONVOLUTIONS + backward

    def act(learner, obs):
        first = jnp.ones((), bool)
        return agent.act(learner, agent.init_actor(KEY), obs, first, start_clock(), hyper, KEY)

    assert counted(act, learner, IMAGE_SHAPE) == CONVOLUTIONS


def test_heads_are_on_the_features_of_the_body():
    """Features by hand, then the same heads as networks on dense observations."""
    agent, hyper = made("pe_dqn")
    learner, obs = drawn("pe_dqn"), random_batch("pe_dqn").transitions.obs
    features = jax.jit(lambda body, x: body(x))(learner.shared.params, obs)
    assert features.shape == (SIZE, FEATURES)
    by_hand = jax.jit(lambda x: agent.predict(learner, x, hyper))
    found = program("pe_dqn")(learner, random_batch("pe_dqn"), hyper).estimates
    np.testing.assert_allclose(found.value[1], by_hand(features[1]).value, rtol=1e-4)
    np.testing.assert_allclose(found.bonus[1], by_hand(features[1]).bonus, rtol=1e-4)


def test_online_and_target_heads_get_the_features_of_their_own_body():
    """`encode` gives online features of s and s' after a step of power iteration, the target's of
    s'. Without `online_next` the second is the third.
    """
    shared, batch = drawn("pe_dqn").shared, random_batch("pe_dqn")

    @jax.jit
    def features(shared, batch):
        inputs, t = learning.encode(shared, batch), batch.transitions
        short = learning.encode(shared, batch, online_next=False)
        body, target = shared.params.power_iteration(), shared.target_params
        by_hand = body(t.obs), body(t.next_obs), target(t.next_obs)
        found = inputs.transitions.obs, inputs.transitions.next_obs, inputs.target_next_obs
        return (
            found,
            by_hand,
            short.transitions.next_obs,
            inputs.shared.params.spectra,
            body.spectra,
        )

    found, by_hand, short, spectra, stepped = features(shared, batch)
    for a, b in zip(found, by_hand, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(short, found[2])
    assert np.abs(found[2] - found[1]).max() > 1e-3
    assert not any(changed(spectra, stepped))
    assert all(changed(shared.params.spectra, spectra))


def test_targets_are_the_target_bodys():
    """The distribution at s' is that of target heads on target features, chosen by online ones."""
    agent, hyper = made("pe_dqn", beta=0.0)
    learner = drawn("pe_dqn")._replace(prior=None)
    online, later = (
        jnp.asarray(np.random.default_rng(i).normal(size=FEATURES), jnp.float32) for i in (0, 1)
    )
    transition = jax.tree.map(lambda x: x[0], random_batch("pe_dqn").transitions)
    transition = transition._replace(obs=online, next_obs=online)

    @jax.jit
    def everything(learner, transition, later):
        targets = agent.targets(learner, jnp.zeros(()), hyper, transition, later)
        chooser = agent.predict(learner, transition.next_obs, hyper)
        return (
            targets,
            chooser,
            learner.target_params.value(later),
            learner.target_params.bonus(later),
        )

    targets, chooser, theta, raw = everything(learner, transition, later)
    action = int(jnp.argmax(chooser.value))
    wanted = transition.reward + hyper.gamma * theta[0, action]
    np.testing.assert_allclose(targets.value[0].locations[:3], wanted, rtol=1e-4)
    wanted = hyper.gamma * (raw[0, action] + chooser.disagreement[action])
    np.testing.assert_allclose(targets.bonus.locations[:3], wanted, rtol=1e-4)


def test_lanes_side_by_side_are_lanes_alone():
    """Features of lanes with bodies of their own, and the gradients of those."""
    body = drawn("dltv").shared.params
    lanes = [body, jax.tree.map(lambda x: 0.8 * x, body)]
    batches = [random_batch("dltv", seed).transitions.obs for seed in (0, 1)]

    def work(body, obs):
        made, pull = jax.vjp(lambda torso: dataclasses.replace(body, torso=torso)(obs), body.torso)
        return made, pull(jnp.ones_like(made))

    stacked = [jax.tree.map(lambda *x: jnp.stack(x), *parts) for parts in (lanes, batches)]
    together, alone = jax.jit(jax.vmap(work))(*stacked), jax.jit(work)
    for lane, parts in enumerate(zip(lanes, batches, strict=True)):
        for a, b in zip(*map(jax.tree.leaves, (together, alone(*parts))), strict=True):
            np.testing.assert_allclose(a[lane], b, rtol=1e-3, atol=1e-4)


# Gradients


def without_weights(ensemble):
    """Heads that say the same of all features: their biases."""
    return jax.tree.map(
        lambda layer: eqx.tree_at(lambda one: one.weight, layer, replace_fn=jnp.zeros_like),
        ensemble,
        is_leaf=lambda x: isinstance(x, Linear),
    )


def update_of(name, learner):
    """An update of the learner, and whether it changed the torso.

    A gradient of 0 leaves Adam where it is.
    """
    done = program(name)(learner, random_batch(name), made(name, learning_rate=1e-2)[1])
    assert np.isfinite(done.result.metrics["loss"])
    return done, any(changed(learner.shared.params.torso, done.learner.shared.params.torso))


@pytest.mark.parametrize("name", ["pe_dqn", "bdqn", "dltv", "ids"])
def test_priors_give_the_body_no_gradient(name):
    """Only they depend on the features here, and the loss on them."""
    learner = drawn(name)
    if name == "ids":
        learner = learner._replace(
            ensemble=learner.ensemble._replace(params=without_weights(learner.ensemble.params)),
            c51=learner.c51._replace(params=without_weights(learner.c51.params)),
        )
    else:
        learner = learner._replace(params=without_weights(learner.params))
    done, moved = update_of(name, learner)
    assert np.ptp(done.estimates.value, axis=0).max() > 1e-4
    assert not moved


@pytest.mark.parametrize("quiet", ["value", "bonus"])
def test_losses_of_values_and_of_bonuses_both_reach_the_body(quiet):
    learner = drawn("pe_dqn")
    heads = without_weights(getattr(learner.params, quiet))
    learner = learner._replace(params=learner.params._replace(**{quiet: heads}))
    assert update_of("pe_dqn", learner)[1]


@pytest.mark.parametrize("quiet", ["ensemble", "c51"])
def test_both_models_of_ids_reach_the_body(quiet):
    learner = drawn("ids")
    model = getattr(learner, quiet)
    model = model._replace(params=without_weights(model.params))
    assert update_of("ids", learner._replace(**{quiet: model}))[1]


def test_the_bodys_gradient_is_that_of_the_whole_loss():
    """By finite differences along a random direction of the torso, through all heads at once.

    The prior, on which the loss depends but not its gradient, counts for nothing.
    """
    agent, hyper = made("pe_dqn", beta=1.0, prior_scale=0.0)
    learner, batch = drawn("pe_dqn"), random_batch("pe_dqn")
    rng = np.random.default_rng(8)
    torso = learner.shared.params.torso
    way = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), torso)

    @jax.jit
    def loss(step):
        """With the targets and the spectra that there are without a step."""
        inputs = learning.encode(learner.shared, batch)
        targets = jax.vmap(lambda t, later: agent.targets(learner, jnp.ones(()), hyper, t, later))(
            inputs.transitions, inputs.target_next_obs
        )
        moved = jax.tree.map(lambda x, d: x + step * d, torso, way)
        obs = dataclasses.replace(inputs.shared.params, torso=moved)(batch.transitions.obs)
        losses = jax.vmap(lambda t, y: agent.loss(learner.prior, hyper, learner.params, t, y))(
            inputs.transitions._replace(obs=obs), targets
        )
        return jnp.mean(losses)

    after, result, *_ = program("pe_dqn")(learner, batch, hyper)
    np.testing.assert_allclose(loss(0.0), result.metrics["loss"], rtol=1e-5)
    gradient = jax.tree.map(lambda m: m / 0.1, after.shared.opt_state.mu)
    slope = sum(jnp.vdot(g, d) for g, d in zip(*map(jax.tree.leaves, (gradient, way)), strict=True))
    step = 1e-4
    np.testing.assert_allclose(slope, (loss(step) - loss(-step)) / (2 * step), rtol=0.02)


@pytest.mark.parametrize("name", ["dltv", "ids"])
def test_all_gradients_are_clipped_together(name):
    """After a first step, Adam's mean is a tenth of the gradient."""
    learner, batch = drawn(name), random_batch(name)

    def length(*clip_norm):
        after = program(name, *clip_norm)(learner, batch, made(name)[1]).learner
        parts = (after.ensemble, after.c51) if name == "ids" else (after,)
        means = [part.opt_state.mu for part in (*parts, after.shared)]
        return 10.0 * np.sqrt(sum(np.sum(np.asarray(x) ** 2) for x in jax.tree.leaves(means)))

    assert length() > 0.2
    np.testing.assert_allclose(length(0.1), 0.1, rtol=1e-4)
