import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from winkel.networks import MLP
from winkel.networks.mlp import TRUNCATION_STD, Linear, Lookup, add_prior, he_truncated_normal
from winkel.types import OneHot

KEY = jax.random.key(3)
HIDDEN = pytest.mark.parametrize("hidden", [(), (8,), (8, 8)], ids=str)
OUTPUTS = (3, 4)
OBS = jnp.zeros(6)


def shaped(*counts, inputs=6, one_hot=False, hidden=(8,)):
    """A network, or a number of them, of weights and biases from NumPy: nothing to compile."""
    rng = np.random.default_rng(5)
    shape = {"inputs": inputs, "one_hot": one_hot, "hidden": hidden, "outputs": OUTPUTS}
    make = functools.partial(MLP.init, **shape)
    if counts:
        leaves = jax.eval_shape(lambda key: ensemble_of(make, key, *counts), KEY)
    else:
        leaves = jax.eval_shape(make, KEY)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), leaves)


def ensemble_of(make, key, count):
    return jax.vmap(make)(jax.random.split(key, count))


@jax.jit
def call(network, obs):
    return network(obs)


@jax.jit
@jax.grad
def gradient(network, obs, cotangent):
    """Of a linear function of the outputs, in all weights and biases."""
    return jnp.sum(cotangent * network(obs))


def assert_equal_trees(first, second, **tolerance):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def member(ensemble, index):
    return jax.tree.map(lambda x: x[index], ensemble)


# He's truncated normal


def assert_he(weights, fan_in):
    """Standard deviation sqrt(2 / fan_in); truncated at twice the deviation before truncation."""
    deviation = np.sqrt(2.0 / fan_in)
    weights = np.asarray(weights)
    assert abs(weights.std() / deviation - 1.0) < 0.01
    assert abs(weights.mean()) < 0.01 * deviation
    edge = 2.0 * deviation / scipy.stats.truncnorm(-2, 2).std()
    assert np.abs(weights).max() <= edge * (1 + 1e-6)
    assert np.abs(weights).max() > 0.99 * edge


def test_the_deviation_of_the_truncated_normal_is_scipys():
    assert abs(TRUNCATION_STD - scipy.stats.truncnorm(-2, 2).std()) < 1e-12


@pytest.mark.parametrize("fan_in", [1, 7, 100])
def test_weights_have_hes_deviation_and_no_tails(fan_in):
    draw = jax.jit(lambda key: he_truncated_normal(key, (400, 500), fan_in))
    weights = draw(KEY)
    assert weights.shape == (400, 500)
    assert_he(weights, fan_in)
    inside = scipy.stats.truncnorm(-2, 2, scale=np.sqrt(2 / fan_in) / TRUNCATION_STD)
    assert scipy.stats.kstest(np.asarray(weights).ravel()[:20_000], inside.cdf).pvalue > 0.01


@pytest.mark.parametrize("one_hot", [False, True])
def test_the_fan_in_of_a_layer_is_its_number_of_inputs(one_hot):
    """Of a table too: all its cells, although one row at a time is read."""
    grid = OneHot((10, 10))
    network = jax.jit(
        lambda key: MLP.init(
            key, inputs=grid.size, one_hot=one_hot, hidden=(1_000,), outputs=(2, 101)
        )
    )(KEY)
    first, second = network.layers
    assert isinstance(first, Lookup if one_hot else Linear)
    assert isinstance(second, Linear)
    assert_he(first.weight, grid.size)
    assert_he(second.weight, 1_000)
    for layer in network.layers:
        np.testing.assert_array_equal(layer.bias, 0.0)


def test_the_layers_of_a_network_are_drawn_apart():
    network = jax.jit(
        lambda key: MLP.init(key, inputs=8, one_hot=False, hidden=(8,), outputs=(2, 4))
    )(KEY)
    weights = [np.asarray(layer.weight) for layer in network.layers]
    assert not np.allclose(weights[0], weights[1])


# Lookup


@pytest.fixture
def table(rng):
    """Weights and biases of a layer from 2 × 3 cells to 4 outputs."""
    return (jnp.asarray(x, jnp.float32) for x in (rng.normal(size=(6, 4)), rng.normal(size=4)))


@pytest.mark.parametrize("index", [0, 3, 5, 6])
def test_a_lookup_is_the_product_with_the_one_hot_vector(table, index):
    """Index 6 is the all-zero observation."""
    weight, bias = table
    dense = jax.nn.one_hot(index, 6)
    assert dense.sum() == (index < 6)
    index = jnp.asarray(index, jnp.int32)
    looked_up, product = Lookup(weight=weight, bias=bias), Linear(weight=weight, bias=bias)
    np.testing.assert_allclose(call(looked_up, index), call(product, dense), rtol=1e-6)
    cotangent = jnp.array([1.0, -2.0, 0.5, 3.0])
    found, expected = gradient(looked_up, index, cotangent), gradient(product, dense, cotangent)
    np.testing.assert_allclose(found.weight, expected.weight)
    np.testing.assert_allclose(found.bias, expected.bias)
    assert np.any(np.asarray(found.weight) != 0) == (index < 6)


# Networks


def by_hand(network, x):
    """Products and rectifiers in NumPy."""
    weights = [(np.asarray(la.weight), np.asarray(la.bias)) for la in network.layers]
    for depth, (weight, bias) in enumerate(weights):
        x = (x if depth == 0 else np.maximum(x, 0.0)) @ weight + bias
    return x.reshape(OUTPUTS)


@pytest.mark.parametrize(
    ("hidden", "shape"),
    [((), (6,)), ((8,), (6,)), ((8, 8), (6,)), ((8,), (1, 6)), ((8,), (2, 3)), ((8,), (1, 2, 3))],
    ids=str,
)
def test_dense_observations_of_any_shape(hidden, shape, rng):
    network = shaped(hidden=hidden)
    assert [la.weight.shape for la in network.layers] == list(
        zip((6, *hidden), (*hidden, 12), strict=True)
    )
    obs = rng.normal(size=shape).astype(np.float32)
    outputs = call(network, jnp.asarray(obs))
    assert outputs.shape == OUTPUTS
    assert outputs.dtype == jnp.float32
    np.testing.assert_allclose(outputs, by_hand(network, obs.ravel()), rtol=1e-5, atol=1e-6)


@HIDDEN
@pytest.mark.parametrize("index", [0, 4, 6])
def test_one_hot_observations(hidden, index):
    network = shaped(one_hot=True, hidden=hidden)
    dense = np.asarray(jax.nn.one_hot(index, 6))
    outputs = call(network, jnp.asarray(index, jnp.int32))
    assert outputs.shape == OUTPUTS
    np.testing.assert_allclose(outputs, by_hand(network, dense), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("one_hot", [False, True])
def test_a_batch_is_a_loop(one_hot, rng):
    network = shaped(3, one_hot=one_hot)
    batch = jnp.arange(7) if one_hot else jnp.asarray(rng.normal(size=(7, 2, 3)), jnp.float32)
    outputs = jax.jit(jax.vmap(call, in_axes=(None, 0)))(network, batch)
    assert outputs.shape == (7, 3, *OUTPUTS)
    for obs, expected in zip(batch, outputs, strict=True):
        np.testing.assert_allclose(call(network, obs), expected, rtol=1e-5, atol=1e-6)


# Ensembles


@HIDDEN
@pytest.mark.parametrize("one_hot", [False, True])
def test_an_ensemble_is_its_members_one_by_one(hidden, one_hot, rng):
    ensemble = shaped(3, one_hot=one_hot, hidden=hidden)
    obs = jnp.asarray(4, jnp.int32) if one_hot else jnp.asarray(rng.normal(size=6), jnp.float32)
    cotangent = jnp.asarray(rng.normal(size=(3, *OUTPUTS)), jnp.float32)
    outputs, slope = call(ensemble, obs), gradient(ensemble, obs, cotangent)
    assert outputs.shape == (3, *OUTPUTS)
    for i in range(3):
        alone = member(ensemble, i)
        np.testing.assert_allclose(outputs[i], call(alone, obs), rtol=1e-5, atol=1e-6)
        assert_equal_trees(
            member(slope, i), gradient(alone, obs, cotangent[i]), rtol=1e-5, atol=1e-6
        )


def test_members_differ_and_so_do_ensembles_of_other_keys():
    """A prior is an ensemble from another key."""
    init = jax.jit(
        lambda key: ensemble_of(
            functools.partial(MLP.init, inputs=6, one_hot=False, hidden=(8,), outputs=OUTPUTS),
            key,
            3,
        )
    )
    one, other = (init(jax.random.fold_in(KEY, use)) for use in range(2))
    weights = [member(e, i).layers[0].weight for e in (one, other) for i in range(3)]
    outputs = [call(member(e, i), jnp.ones(6)) for e in (one, other) for i in range(3)]
    for found in (weights, outputs):
        flat = np.stack([np.ravel(x) for x in found])
        gaps = np.abs(flat[:, None] - flat[None, :]).mean(axis=-1)
        assert gaps[~np.eye(6, dtype=bool)].min() > 0.05


# Priors


@pytest.mark.parametrize("members", [(0,), (1,), (0, 2), (0, 1, 2)], ids=str)
def test_a_prior_is_added_scaled_to_its_members_only(members, rng):
    outputs = rng.normal(size=(3, *OUTPUTS)).astype(np.float32)
    prior = rng.normal(size=(len(members), *OUTPUTS)).astype(np.float32)
    expected = outputs.copy()
    for network, index in enumerate(members):
        expected[index] += 20.0 * prior[network]
    fixed = jnp.asarray(prior)
    found = add_prior(jnp.asarray(outputs), lambda _: fixed, OBS, 20.0, members)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    bare = [i for i in range(3) if i not in members]
    np.testing.assert_array_equal(np.asarray(found)[bare], outputs[bare])


@pytest.mark.parametrize("members", [(1,), (0, 1)], ids=str)
def test_a_prior_gets_no_gradient_and_hides_none(members):
    network, prior = shaped(2), shaped(len(members))
    obs = jnp.linspace(-1.0, 1.0, 6)

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1, 2))
    def cotangent(network, prior, outputs):
        theta = add_prior(network(obs) + outputs, prior, obs, 20.0, members)
        return jnp.sum(theta**2)

    to_network, to_prior, to_outputs = cotangent(network, prior, jnp.zeros((2, *OUTPUTS)))
    for leaf in jax.tree.leaves(to_prior):
        np.testing.assert_array_equal(leaf, 0.0)
    theta = np.array(call(network, obs))
    theta[list(members)] += 20.0 * np.asarray(call(prior, obs))
    np.testing.assert_allclose(to_outputs, 2.0 * theta, rtol=1e-5, atol=1e-5)
    for i in range(2):
        expected = gradient(member(network, i), obs, 2.0 * theta[i])
        assert_equal_trees(member(to_network, i), expected, rtol=1e-4, atol=1e-4)


def test_no_prior_costs_nothing():
    outputs = jnp.ones((2, *OUTPUTS))
    assert add_prior(outputs, None, OBS, 20.0, ()) is outputs
    program = jax.make_jaxpr(lambda o: add_prior(o, None, OBS, 20.0, ()))(outputs)
    assert not program.eqns


def test_a_prior_costs_no_network_for_members_without_one():
    """One network runs for one carrier of three: one product with the hidden layer's weights."""
    ensemble, prior = shaped(3), shaped(1)

    def products(function):
        compiled = jax.jit(function).lower(jnp.ones(6)).compile()
        return compiled.cost_analysis()["flops"]

    alone = products(lambda x: ensemble(x))
    carried = products(lambda x: add_prior(ensemble(x), prior, x, 20.0, (1,)))
    assert carried - alone < 0.5 * alone
