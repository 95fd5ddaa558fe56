"""The torso against plain NumPy, and under `vmap`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from winkel.errors import InputError
from winkel.networks import MLP, Body
from winkel.networks.convolution import Conv, convolve, halve, resize
from winkel.networks.impala import Impala, num_features
from winkel.networks.mlp import he_uniform
from winkel.types import Image

KEY = jax.random.key(7)
PAPERS = Image((42, 42), 6)


def random_frames(observation, count, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.integers(0, 256, (count, *observation.shape)), jnp.uint8)


def filled(make):
    """A module of NumPy's random weights, for which nothing is compiled."""
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(make)
    return jax.tree.map(lambda x: jnp.asarray(0.5 * rng.normal(size=x.shape), x.dtype), shapes)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# In plain NumPy, one number at a time.


def slow_convolution(x, weight, bias):
    count, height, width, _ = x.shape
    made = np.zeros((count, height, width, len(weight))) + bias
    for row, column, down, right in np.ndindex(height, width, 3, 3):
        at = row + down - 1, column + right - 1
        if 0 <= at[0] < height and 0 <= at[1] < width:
            made[:, row, column] += x[:, at[0], at[1]] @ weight[:, down, right].T
    return made


def slow_halved(x):
    count, height, width, depth = x.shape
    made = np.zeros((count, -(-height // 2), -(-width // 2), depth))
    for row, column in np.ndindex(*made.shape[1:3]):
        top, left = 2 * row - 1, 2 * column - 1
        window = x[:, max(top, 0) : top + 3, max(left, 0) : left + 3]
        made[:, row, column] = window.max(axis=(1, 2))
    return made


def slow_resized(x, side):
    made = np.zeros((x.shape[0], side, side, x.shape[3]))
    ends = [
        [(int(np.floor(i * size / side)), int(np.ceil((i + 1) * size / side))) for i in range(side)]
        for size in x.shape[1:3]
    ]
    for row, column in np.ndindex(side, side):
        (top, bottom), (left, right) = ends[0][row], ends[1][column]
        made[:, row, column] = x[:, top:bottom, left:right].max(axis=(1, 2))
    return made


def slow_torso(torso, frames):
    def conv(layer, x, at=...):
        return slow_convolution(x, np.asarray(layer.weight)[at], np.asarray(layer.bias)[at])

    def relu(x):
        return np.maximum(x, 0.0)

    stacked = [frames[:, i] if frames.ndim == 5 else frames[:, i, ..., None] for i in (0, 1)]
    # The channels of a frame lie apart by the depth of the stack.
    x = np.stack(stacked, axis=-1).reshape(*stacked[0].shape[:3], -1) / 255.0
    for block in torso.blocks:
        x = slow_halved(conv(block.conv, x))
        for first, second in ((0, 1), (2, 3)):
            inner = conv(block.units, relu(x), first)
            x = x + conv(block.units, relu(inner), second)
    return slow_resized(relu(x), 8).reshape(len(x), -1)


@pytest.mark.parametrize("frame", [(8, 11), (13, 9, 2)], ids=str)
def test_the_torso_is_the_one_of_the_paper(frame, monkeypatch):
    monkeypatch.setattr("winkel.networks.impala.CHANNELS", (2, 3, 3))
    observation = Image(frame, 2)
    torso = filled(lambda: Impala.init(KEY, observation, 1))
    frames = random_frames(observation, 3)
    found = jax.jit(lambda torso, x: torso(x))(torso, frames)
    assert found.shape == (3, num_features(observation, 1)) == (3, 8 * 8 * 3)
    np.testing.assert_allclose(found, slow_torso(torso, np.asarray(frames)), rtol=1e-4, atol=1e-4)


def test_the_papers_shapes_and_number_of_parameters():
    """Channels 32, 64, 64; a 3 × 3 convolution of I to O has 9 I O weights and O biases.

    (9·6·32 + 32) + 4 (9·32² + 32) = 38,752; (9·32·64 + 64) + 4 (9·64² + 64) = 166,208;
    (9·64² + 64) + 4 (9·64² + 64) = 184,640.
    """
    torso = jax.eval_shape(lambda: Impala.init(KEY, PAPERS, 2))
    counts = [sum(x.size for x in jax.tree.leaves(block)) for block in torso.blocks]
    assert counts == [38_752, 166_208, 184_640]
    assert [len(weight) for weight in torso.residual_weights] == [4, 4, 4]
    frames = jax.ShapeDtypeStruct((5, *PAPERS.shape), jnp.uint8)
    assert jax.eval_shape(lambda t, x: t(x), torso, frames).shape == (5, 4096)
    assert num_features(PAPERS, 2) == 4096
    left = [PAPERS.frame[0]]
    for _ in torso.blocks:
        left.append(-(-left[-1] // 2))
    assert left == [42, 21, 11, 6]


def test_small_frames_are_refused():
    with pytest.raises(InputError, match="at least 8 × 8, got 42 × 7"):
        Impala.init(KEY, Image((42, 7), 1), 1)


# Pooling


@settings(max_examples=7)
@given(height=st.integers(1, 20), width=st.integers(1, 20), side=st.integers(1, 9))
def test_pooling_is_that_of_the_definition(height, width, side):
    x = normal(height * width, 2, height, width, 3)
    pooled = jax.jit(lambda x: (resize(x, side), halve(x)))
    for found, wanted in zip(pooled(x), (slow_resized(x, side), slow_halved(x)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_six_by_six_is_enlarged_by_repetition():
    """Rows from ⌊6i/8⌋ to ⌈6(i+1)/8⌉: 0, 01, 12, 2, 3, 34, 45, 5, of rows that grow."""
    x = jnp.broadcast_to(jnp.arange(6.0)[None, :, None, None], (1, 6, 6, 1))
    enlarged = jax.jit(lambda x: resize(x, 8))(x)
    np.testing.assert_array_equal(enlarged[0, :, 0, 0], [0, 1, 2, 2, 3, 4, 5, 5])


def slow_gradient(pooled, x, cotangent):
    """Each number of `cotangent` added where its maximum is; all of `x` differ."""
    wanted = np.zeros_like(x)
    for value, slope in zip(np.ravel(jax.jit(pooled)(x)), cotangent.ravel(), strict=True):
        wanted += np.where(x == value, slope, 0)
    return wanted


@settings(max_examples=7)
@given(height=st.integers(1, 12), width=st.integers(1, 12), side=st.integers(1, 9))
def test_gradients_of_maxima_go_to_where_they_are(height, width, side):
    x = normal(height + 20 * width, 2, height, width, 2)
    for pooled in (halve, functools.partial(resize, side=side)):
        cotangent = normal(side, *jax.eval_shape(pooled, x).shape)
        found = jax.jit(lambda x, c, pooled=pooled: jax.vjp(pooled, x)[1](c)[0])(x, cotangent)
        np.testing.assert_allclose(found, slow_gradient(pooled, x, cotangent), rtol=1e-5, atol=1e-5)


def test_of_equal_numbers_one_gets_the_gradient():
    for pooled in (halve, functools.partial(resize, side=3)):
        ones = jnp.ones((1, 7, 8, 1))
        found = jax.jit(jax.grad(lambda x, pooled=pooled: jnp.sum(pooled(x))))(ones)
        np.testing.assert_array_equal(found, np.round(found))
        assert found.sum() == jax.eval_shape(pooled, ones).size


# Convolutions


def plain(x, weight):
    numbers = ("NHWC", "OHWI", "NHWC")
    return jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=numbers)


def with_gradients(convolution, x, weight, cotangent):
    made, pull = jax.vjp(convolution, x, weight)
    return made, *pull(cotangent)


expected = jax.jit(functools.partial(with_gradients, plain))
WAYS = [
    pytest.param((0, 0, 0), id="lanes"),
    pytest.param((0, None, 0), id="pictures"),
    pytest.param((None, 0, 0), id="weights"),
]


@pytest.mark.parametrize("axes", WAYS)
@pytest.mark.parametrize("platform", ["cpu", "default"])
def test_convolutions_and_their_gradients_under_vmap_are_a_loop(axes, platform, monkeypatch):
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *of, **ways: ways[platform](*of))
    parts = [normal(0, 3, 2, 5, 6, 4), normal(1, 3, 2, 3, 3, 4), normal(2, 3, 2, 5, 6, 2)]
    given_ = [jnp.asarray(x if axis == 0 else x[0]) for x, axis in zip(parts, axes, strict=True)]
    batched = jax.jit(jax.vmap(lambda *of: with_gradients(convolve, *of), axes))
    for i, found in enumerate(zip(*batched(*given_), strict=True)):
        one = [x[i] if axis == 0 else x for x, axis in zip(given_, axes, strict=True)]
        for a, b in zip(found, expected(*one), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_lanes_of_pictures_one_at_a_time():
    """As in acting: lanes with weights of their own, in each several environments."""
    x, weight = jnp.asarray(normal(0, 2, 3, 5, 5, 2)), jnp.asarray(normal(1, 2, 4, 3, 3, 2))
    one = jax.vmap(lambda picture, w: convolve(picture[None], w)[0], in_axes=(0, None))
    found = jax.jit(jax.vmap(one))(x, weight)
    for lane in range(2):
        np.testing.assert_allclose(found[lane], plain(x[lane], weight[lane]), rtol=1e-4, atol=1e-4)


def convolutions(jaxpr):
    """Equations of convolutions, also in what is called."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "conv_general_dilated":
            yield equation
        for parameter in jax.tree.leaves(
            equation.params, is_leaf=lambda x: hasattr(x, "jaxpr") or hasattr(x, "eqns")
        ):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from convolutions(inner)


def test_no_convolution_is_made_of_groups():
    """Neither over a batch nor over lanes, forward or backward."""
    x, weight = jnp.zeros((2, 3, 5, 5, 2)), jnp.zeros((2, 4, 3, 3, 2))
    cotangent = jnp.zeros((2, 3, 5, 5, 4))
    lanes = jax.make_jaxpr(jax.vmap(lambda *of: with_gradients(convolve, *of)))
    found = list(convolutions(lanes(x, weight, cotangent).jaxpr))
    assert len(found) >= 2 * 3
    pictures = jax.make_jaxpr(jax.vmap(convolve, in_axes=(0, None)))(x, weight[0]).jaxpr
    assert [e.outvars[0].aval.shape for e in convolutions(pictures)] == [(6, 5, 5, 4)]
    for equation in [*found, *convolutions(pictures)]:
        assert equation.params["feature_group_count"] == 1
        assert equation.params["batch_group_count"] == 1


def test_a_bias_is_added_everywhere():
    conv = Conv(weight=jnp.zeros((3, 3, 3, 2)), bias=jnp.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(conv(jnp.ones((1, 2, 2, 2)))[0, 1, 0], [1.0, 2.0, 3.0])


# Initialisation


def assert_he_uniform(weights, fan_in):
    bound = np.sqrt(6.0 / fan_in)
    weights = np.asarray(weights).ravel()
    assert np.abs(weights).max() <= bound * (1 + 1e-6)
    assert scipy.stats.kstest(weights, scipy.stats.uniform(-bound, 2 * bound).cdf).pvalue > 0.01


def test_weights_are_hes_uniform():
    assert_he_uniform(he_uniform(KEY, (100, 200), 37), 37)
    assert_he_uniform(he_uniform(KEY, (100, 200), 37, slope=5.0**0.5), 6 * 37)
    torso = Impala.init(KEY, Image((8, 8, 3), 2), 1)
    first, second = torso.blocks[0], torso.blocks[1]
    assert first.conv.weight.shape == (16, 3, 3, 6)
    assert_he_uniform(first.conv.weight, 9 * 6)
    assert_he_uniform(first.units.weight[1], 9 * 16)
    assert_he_uniform(second.units.weight[2], 9 * 32)
    leaves = [np.asarray(x).ravel() for group in torso.residual_weights for x in group]
    assert len({x[0] for x in leaves}) == len(leaves)
    top = MLP.init(KEY, inputs=50, hidden=(40,), outputs=(3, 5), he_slope=0.0)
    for layer, fan_in in zip(top.layers, (50, 40), strict=True):
        assert_he_uniform(layer.weight, fan_in)
    assert not any(np.any(b) for b in (first.conv.bias, *(layer.bias for layer in top.layers)))
    assert top(jnp.ones(50)).shape == (3, 5)


# Precision


def test_bfloat16_is_for_the_convolutions_alone(monkeypatch):
    monkeypatch.setattr("winkel.networks.impala.CHANNELS", (4,))
    observation = Image((9, 9), 2)
    frames = random_frames(observation, 2)

    torso = filled(lambda: Impala.init(KEY, observation, 1))

    def features(torso, dtype):
        return Body(torso, (), dtype)(frames)

    exact, rough = jax.jit(lambda torso: [features(torso, d) for d in ("float32", "bfloat16")])(
        torso
    )
    assert exact.dtype == rough.dtype == jnp.float32
    error = np.linalg.norm(exact - rough) / np.linalg.norm(exact)
    assert 0.0 < error < 0.02
    gradient = jax.eval_shape(jax.grad(lambda torso: jnp.sum(features(torso, "bfloat16"))), torso)
    assert {x.dtype for x in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    equations = convolutions(jax.make_jaxpr(lambda torso: features(torso, "bfloat16"))(torso).jaxpr)
    assert {e.outvars[0].aval.dtype for e in equations} == {jnp.dtype("bfloat16")}
