"""Run DeepMind's bsuite, keep every random number it draws, and replay them in our environments."""

import gzip
import struct
from typing import NamedTuple

import bsuite
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from bsuite.environments import mnist as their_mnist
from bsuite.utils import datasets

from winkel.envs.base import Environment
from winkel.envs.bsuite.cartpole import CartpoleState
from winkel.envs.bsuite.mountain_car import MountainCarState
from winkel.envs.registry import family_of


class RecordingRng:
    """A NumPy generator that notes what it gave."""

    def __init__(self, seed):
        self._rng = np.random.RandomState(seed)
        self.given = []

    def __getattr__(self, name):
        def draw(*args, **kwargs):
            value = getattr(self._rng, name)(*args, **kwargs)
            self.given.append((name, value))
            return value

        return draw

    def take(self):
        given, self.given = self.given, []
        return given


class Trajectory(NamedTuple):
    """What the original did: inputs for a replay, and outputs to compare with."""

    actions: np.ndarray
    first_start: object
    starts: object
    draws: object
    states: object
    first_obs: np.ndarray
    next_obs: np.ndarray
    obs: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    boundaries: np.ndarray
    infos: list


FIXED_SEED = ("memory_len", "memory_size", "umbrella_distract")
FLOAT64_STATE = ("cartpole", "cartpole_swingup", "mountain_car")


def start_draws(family, given):
    if family in ("catch", "mnist"):
        return np.int32(given[0][1])
    if family in ("cartpole", "cartpole_swingup"):
        return np.array([value for _, value in given], np.float32)
    if family == "mountain_car":
        return np.float32(given[0][1])
    if family == "umbrella_length":
        need, has, distractors = (value for _, value in given)
        return np.array([need, has, *distractors], np.int32)
    return None


def step_draws(family, given):
    if family in ("deep_sea", "deep_sea_stochastic"):
        found = dict(given)
        return np.float32(found.get("rand", 0.5)), np.float32(found.get("randn", 0.0))
    if family == "umbrella_length":
        reward = given[0][1] if len(given) == 2 else 0
        return np.array([reward, *given[-1][1]], np.int32)
    return None


def inner_state(family, raw):
    if family in ("cartpole", "cartpole_swingup"):
        x, x_dot, theta, theta_dot, elapsed = raw._state
        pose = (np.float32(v) for v in (x, x_dot, theta, theta_dot))
        return CartpoleState(*pose, step=np.int32(round(elapsed / 0.01)))
    if family == "mountain_car":
        return MountainCarState(
            np.float32(raw._position), np.float32(raw._velocity), np.int32(raw._timestep)
        )
    return None


def stack(values):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *values)


def record(bsuite_id, policy, num_steps, seed=1):
    """Run the original for `num_steps` transitions under policy(raw_env, t, rng) -> action."""
    experiment = bsuite_id.split("/")[0]
    family = family_of(experiment)
    env = bsuite.load_from_id(bsuite_id)
    raw = env._env if hasattr(env, "_env") else env
    rng = RecordingRng(seed)
    if hasattr(raw, "_rng") and family not in FIXED_SEED:
        raw._rng = rng
    noise = RecordingRng(seed + 1)
    if env is not raw:
        env._rng = noise
    choose = np.random.default_rng(seed)
    first = env.reset()
    first_start = start_draws(family, rng.take())
    columns = {name: [] for name in Trajectory._fields}
    for t in range(num_steps):
        columns["states"].append(inner_state(family, raw))
        action = policy(raw, t, choose)
        timestep = env.step(action)
        drawn = step_draws(family, rng.take())
        if experiment not in ("cartpole_swingup",) and hasattr(env, "_env"):
            randn = [value for name, value in noise.take() if name == "randn"]
            drawn = np.float32(randn[0] if randn else 0.0)
        elif family in ("bandit", "cartpole", "catch", "mnist", "mountain_car"):
            drawn = np.float32(0.0)
        columns["draws"].append(drawn)
        columns["actions"].append(action)
        columns["rewards"].append(timestep.reward)
        columns["discounts"].append(timestep.discount)
        columns["boundaries"].append(timestep.last())
        columns["next_obs"].append(timestep.observation)
        begun = first_start
        if timestep.last():
            columns["infos"].append(dict(env.bsuite_info()))
            timestep = env.reset()
            begun = start_draws(family, rng.take())
        columns["starts"].append(begun)
        columns["obs"].append(timestep.observation)
    return Trajectory(
        actions=np.array(columns["actions"], np.int32),
        first_start=first_start,
        starts=stack(columns["starts"]),
        draws=stack(columns["draws"]),
        states=stack(columns["states"]),
        first_obs=first.observation,
        next_obs=np.array(columns["next_obs"]),
        obs=np.array(columns["obs"]),
        rewards=np.array(columns["rewards"], np.float64),
        discounts=np.array(columns["discounts"]),
        boundaries=np.array(columns["boundaries"]),
        infos=columns["infos"],
    )


class Injected(Environment):
    """An environment whose random numbers come from its parameters: (params, starts, draws)."""

    env: Environment

    @property
    def observation(self):
        return self.env.observation

    @property
    def num_actions(self):
        return self.env.num_actions

    def draw_start(self, key, params):
        del key
        return params[1]

    def start(self, draws, episode, params):
        return self.env.start(draws, episode, params[0])

    def draw(self, key, params):
        del key
        return params[2]

    def transition(self, state, action, draws, params):
        return self.env.transition(state, action, draws, params[0])

    def observe(self, state, params):
        return self.env.observe(state, params[0])


@eqx.filter_jit
def replay(env, params, trajectory_inputs, inject_states):
    """Our run under the recorded actions and draws, through `Environment.step` itself."""
    injected = Injected(env=env)
    key = jax.random.key(0)

    def one(params, inputs):
        actions, first_start, starts, draws, states = inputs
        state, first_obs = injected.reset(key, (params, first_start, None))

        def body(state, now):
            action, start, drawn, given = now
            if inject_states:
                state = state._replace(inner=given)
            return injected.step(key, state, action, (params, start, drawn))

        _, steps = jax.lax.scan(body, state, (actions, starts, draws, states))
        return first_obs, steps

    return jax.vmap(one)(params, trajectory_inputs)


def inputs_of(trajectories):
    return stack([t[:5] for t in trajectories])


def small_mnist(directory, count=64, seed=0):
    """The four gzipped IDX files with random images, and a loader for the original."""
    rng = np.random.default_rng(seed)
    for part in ("train", "t10k"):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        with gzip.open(directory / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
        with gzip.open(directory / f"{part}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">II", 2049, count) + labels.tobytes())


def use_mnist_from(monkeypatch, directory):
    load = datasets.load_mnist
    monkeypatch.setattr(their_mnist.datasets, "load_mnist", lambda: load(str(directory)))


def as_dense(env, obs):
    """Our observations as the original's arrays, over any leading axes."""
    if hasattr(env.observation, "size"):
        ones = jax.nn.one_hot(jnp.asarray(obs), env.observation.size)
        return np.asarray(ones).reshape(*np.shape(obs), *env.observation.shape)
    return np.asarray(obs)
