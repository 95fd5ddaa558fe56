"""What equals the original in distribution only: moments of ≥ 10⁵ draws, in 4.5 standard errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel import envs
from winkel.envs.bsuite.mnist import Mnist

COUNT = 200_000
KEYS = jax.random.split(jax.random.key(7), COUNT)
EPISODE = jnp.zeros((), jnp.int32)


def starts(task):
    draw = jax.vmap(lambda key: task.env.draw_start(key, task.params))
    return jax.tree.map(np.asarray, jax.jit(draw)(KEYS))


def draws(task):
    draw = jax.vmap(lambda key: task.env.draw(key, task.params))
    return jax.tree.map(np.asarray, jax.jit(draw)(KEYS))


def assert_mean(values, mean, deviation):
    """Means of independent draws lie within 4.5 standard errors but once in 150,000 times."""
    error = abs(np.mean(values, dtype=np.float64) - mean) / (deviation / np.sqrt(len(values)))
    assert error < 4.5, (np.mean(values), mean)


def assert_uniform(values, low, high):
    assert values.min() >= low
    assert values.max() <= high
    center, width = (low + high) / 2, high - low
    assert_mean(values, center, width / np.sqrt(12))
    assert_mean((values - center) ** 2, width**2 / 12, width**2 / np.sqrt(180))


def assert_standard_normal(values):
    for power, mean, deviation in ((1, 0, 1), (2, 1, np.sqrt(2)), (3, 0, np.sqrt(15))):
        assert_mean(values.astype(np.float64) ** power, mean, deviation)
    assert_mean(values.astype(np.float64) ** 4, 3, np.sqrt(96))


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_reward_noise_is_gaussian(scale):
    task = envs.make(f"bandit_noise/0:noise_scale={scale}")
    state = task.env.start(None, EPISODE, task.params)
    action = jnp.zeros((), jnp.int32)
    reward = jax.jit(
        jax.vmap(lambda key: task.env.transition(
            state, action, task.env.draw(key, task.params), task.params)[1].reward)
    )(KEYS)  # fmt: skip
    pays = float(np.linspace(0, 1, 11)[task.params.inner[0]])
    assert_standard_normal((np.asarray(reward) - pays) / scale)


@pytest.mark.parametrize("size", [10, 50])
def test_the_wind_blows_once_in_size_moves_to_the_right(size):
    task = envs.make(f"deep_sea_stochastic:size={size}")
    right = jnp.asarray(task.params.right)[0, 0]
    state = task.env.start(None, EPISODE, task.params)
    moved = jax.jit(
        jax.vmap(lambda key: task.env.transition(
            state, right, task.env.draw(key, task.params), task.params)[0].column)
    )(KEYS)  # fmt: skip
    chance = 1 - 1 / size
    assert_mean(np.asarray(moved), chance, np.sqrt(chance / size))


def test_the_noise_at_both_ends_of_the_stochastic_sea_is_normal():
    wind, noise = draws(envs.make("deep_sea_stochastic/0"))
    assert_standard_normal(noise)
    assert_uniform(wind, 0.0, 1.0)


def test_start_states():
    pose = starts(envs.make("cartpole/0"))
    for column in pose.T:
        assert_uniform(column, -0.05, 0.05)
    assert abs(np.corrcoef(pose.T) - np.eye(4)).max() < 4.5 / np.sqrt(COUNT)
    assert_uniform(starts(envs.make("mountain_car/0")), -0.6, -0.4)
    hanging = envs.make("cartpole_swingup/0")
    first = hanging.env.start(jnp.zeros(4), EPISODE, hanging.params)
    assert float(first.theta) == pytest.approx(np.pi)


def test_balls_and_digits_are_uniform():
    columns = starts(envs.make("catch/0"))
    for column in range(5):
        assert_mean(columns == column, 0.2, 0.4)
    digits = Mnist(images=np.zeros((7, 28, 28), np.int8), labels=np.arange(7))
    shown = np.asarray(jax.jit(jax.vmap(lambda key: digits.draw_start(key, None)))(KEYS))
    for index in range(7):
        assert_mean(shown == index, 1 / 7, np.sqrt(6) / 7)


def test_umbrella_coins_are_fair_and_independent():
    task = envs.make("umbrella_length:n_distractor=3,chain_length=5")
    for coins in (np.asarray(starts(task)), np.asarray(draws(task))):
        for coin in coins.T:
            assert_mean(coin, 0.5, 0.5)
        assert abs(np.corrcoef(coins.T) - np.eye(coins.shape[1])).max() < 4.5 / np.sqrt(COUNT)
