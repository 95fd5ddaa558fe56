import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel import envs
from winkel.envs.bsuite import mnist
from winkel.envs.registry import EXPERIMENTS, FAMILIES, parse

GAMMA = 0.99


def ends(task_id, gamma=GAMMA):
    experiment, setting = parse(task_id)
    return FAMILIES[experiment.family].return_range(setting, gamma)


@pytest.mark.parametrize("gamma", [0.0, 0.9, 0.99, 1.0])
def test_all_settings_have_a_finite_support(gamma):
    found = {i: ends(i, gamma) for e in EXPERIMENTS.values() for i in e.ids}
    assert len(found) == 468
    for task_id, (low, high) in found.items():
        assert np.isfinite([low, high]).all(), task_id
        assert low < high, task_id


@pytest.mark.parametrize("gamma", [0.9, 0.99, 1.0])
def test_deep_sea_is_the_papers_whatever_the_size(gamma):
    for task_id in (*EXPERIMENTS["deep_sea"].ids, "deep_sea:size=100"):
        assert ends(task_id, gamma) == (-0.5, 1.5)


@pytest.mark.parametrize(
    ("task_id", "low", "high"),
    # The range of returns, and half of its width more at either end.
    [
        ("bandit/0", 0 - 0.5, 1 + 0.5),
        ("catch/0", -1 - 1, 1 + 1),
        ("discounting_chain/0", 0 - 0.55, 1.1 + 0.55),
        ("memory_len/0", -1 - 1, 1 + 1),
        ("memory_size/16", -1 - 1, 1 + 1),
        ("mnist/0", -1 - 1, 1 + 1),
        # (1 − 0.99^1000)/0.01 = 99.9957 is what 1 a step comes to.
        ("cartpole/0", 0 - 49.9978, 99.9957 + 49.9978),
        ("cartpole_swingup/0", -9.9996 - 54.9976, 99.9957 + 54.9976),
        ("mountain_car/0", -99.9957 - 49.9978, 0 + 49.9978),
        # Three standard deviations of noise that is one standard normal.
        ("deep_sea_stochastic/0", 0 - 0.5 - 3, 1 + 0.5 + 3),
    ],
)
def test_ranges_by_hand(task_id, low, high):
    np.testing.assert_allclose(ends(task_id), (low, high), rtol=1e-4)


def test_without_discounting_steps_are_counted():
    """A thousand of them, or one more."""
    np.testing.assert_allclose(ends("mountain_car/0", 1.0), (-1500.0, 500.0))
    np.testing.assert_allclose(ends("cartpole/0", 1.0), (-500.0, 1500.0), rtol=2e-3)


@pytest.mark.parametrize("name", ["bandit", "cartpole", "catch", "mnist", "mountain_car"])
def test_the_rewards_scale_multiplies_the_range(name):
    plain = np.array(ends(f"{name}/0"))
    experiment = EXPERIMENTS[f"{name}_scale"]
    for task_id, setting in zip(experiment.ids, experiment.settings, strict=True):
        np.testing.assert_allclose(ends(task_id), setting["reward_scale"] * plain)


def test_scaled_catch_by_hand():
    assert ends("catch_scale/0") == (-0.002, 0.002)
    assert ends("catch_scale/19") == (-2000.0, 2000.0)


@pytest.mark.parametrize(
    ("name", "deviation"),
    # Of a discounted sum of standard normals: sqrt((1 − 0.9801^steps)/(1 − 0.9801)).
    [
        ("bandit", 1.0),  # one step
        ("mnist", 1.0),
        ("catch", 2.883726),  # nine: sqrt(0.1654861 / 0.0199)
        ("cartpole", 7.088812),  # a thousand: sqrt(1 / 0.0199)
        ("mountain_car", 7.088812),
    ],
)
def test_noise_widens_the_range_by_three_deviations(name, deviation):
    low, high = ends(f"{name}/0")
    experiment = EXPERIMENTS[f"{name}_noise"]
    for task_id, setting in zip(experiment.ids, experiment.settings, strict=True):
        noise = 3 * setting["noise_scale"] * deviation
        np.testing.assert_allclose(ends(task_id), (low - noise, high + noise), rtol=1e-5)


def test_noisy_cartpole_by_hand():
    """0.1 · 7.088812 is the deviation; −49.9978 and 149.9935 the ends without noise."""
    np.testing.assert_allclose(
        ends("cartpole_noise/0"), (-49.9978 - 2.1266, 149.9935 + 2.1266), rtol=1e-5
    )


def test_noise_is_not_scaled():
    """Rewards are, and noise is added to them."""
    low, high = ends("catch:reward_scale=30,noise_scale=1")
    np.testing.assert_allclose((low, high), (-60 - 3 * 2.883726, 60 + 3 * 2.883726), rtol=1e-6)


def test_longer_umbrella_chains_are_noisier():
    """Up to sqrt(1 / 0.0199) for an endless one, three times on top of 2."""
    widths = [ends(task_id)[1] for task_id in EXPERIMENTS["umbrella_length"].ids]
    assert (np.diff(widths) > 0).all()
    assert widths[0] >= 2.0
    assert 2 + 3 * 7.088812 * 0.9 < widths[-1] < 2 + 3 * 7.088812
    for task_id in EXPERIMENTS["umbrella_distract"].ids:  # all of length 20
        low, high = ends(task_id)
        assert low == -high == -ends("umbrella_length:chain_length=20")[1]


def discounted_returns(batch, lanes, steps):
    """For each setting, of all episodes that end within so many steps of so many copies.

    Every other copy acts at random, the rest always takes the last action.
    """
    env = batch.env

    def one(params, lane):
        key = jax.random.fold_in(jax.random.key(0), lane)
        state, _ = env.reset(jax.random.fold_in(key, 0), params)

        def step(carry, count):
            state, total, weight = carry
            key_action, key_step = (jax.random.fold_in(key, 2 * count + use) for use in range(1, 3))
            anything = jax.random.randint(key_action, (), 0, env.num_actions)
            action = jnp.where(lane % 2 == 0, anything, env.num_actions - 1)
            state, result = env.step(key_step, state, action, params)
            total, ended = total + weight * result.reward, result.boundary
            fresh = jnp.where(ended, 0.0, total), jnp.where(ended, 1.0, weight * GAMMA)
            return (state, *fresh), (ended, total)

        start = state, jnp.zeros(()), jnp.ones(())
        return jax.lax.scan(step, start, jnp.arange(steps))[1]

    run = jax.jit(
        jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None)),
        compiler_options={"xla_backend_optimization_level": 0},  # quick to compile
    )
    ended, totals = (np.asarray(x) for x in run(batch.params, jnp.arange(lanes)))
    return [values[at] for values, at in zip(totals, ended, strict=True)]


@pytest.mark.parametrize(
    ("task_ids", "lanes", "steps"),
    [
        (["bandit_scale/16", "bandit_noise/19"], 100, 20),
        (["cartpole/0", "cartpole_noise/19"], 50, 1_001),
        (["cartpole_swingup/19"], 300, 1_001),
        (["catch_scale/0", "catch_noise/19"], 100, 90),
        (["deep_sea/0", "deep_sea/20"], 100, 200),
        (["deep_sea_stochastic/0"], 100, 100),
        (["discounting_chain/0"], 300, 100),
        (["memory_len/10"], 50, 130),
        (["memory_size/10"], 50, 30),
        (["mnist/0", "mnist_noise/19"], 100, 20),
        (["mountain_car/0", "mountain_car_noise/19"], 200, 1_000),
        (["umbrella_distract/0"], 2, 5_000),
        (["umbrella_length/0", "umbrella_length/19"], 50, 300),
    ],
    ids=lambda x: x[0].split("/")[0] if isinstance(x, list) else "",
)
def test_discounted_returns_lie_inside(task_ids, lanes, steps, monkeypatch):
    """All, without noise; three deviations and the margin hold all but 0.3 % of normal noise."""
    rng = np.random.default_rng(0)
    digits = rng.integers(0, 256, (8, 28, 28), np.uint8), rng.integers(0, 10, 8, np.uint8)
    monkeypatch.setattr(mnist, "load_mnist", lambda: digits)
    found = discounted_returns(envs.make_batch(task_ids), lanes, steps)
    for task_id, returns in zip(task_ids, found, strict=True):
        experiment, setting = parse(task_id)
        noisy = FAMILIES[experiment.family].returns(setting, GAMMA)[2] > 0
        low, high = ends(task_id)
        assert len(returns) >= 200
        assert np.mean((returns < low) | (returns > high)) <= (0.005 if noisy else 0.0)
