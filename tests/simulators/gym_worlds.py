"""Gymnasium environments with every kind of space, and with every fault."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Shows(gymnasium.Env):
    """Shows what it is given, one entry at each step; ends as it is told."""

    def __init__(self, space, shown, actions=None, ends=()):
        self.observation_space = space
        self.action_space = actions or spaces.Discrete(2)
        self.shown = shown
        self.ends = dict(enumerate(ends, start=1))
        self.taken = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.first_seed = seed
        return self.shown[0], {}

    def step(self, action):
        self.taken.append(action)
        self.time += 1
        terminated, truncated = self.ends.get(self.time, (False, False))
        return self.shown[self.time % len(self.shown)], 0.5, terminated, truncated, {}


class Dice(gymnasium.Env):
    """Throws of the environment's own random numbers."""

    observation_space = spaces.Discrete(6, start=1)
    action_space = spaces.Discrete(2)

    def __init__(self, sides=6):
        self.observation_space = spaces.Discrete(sides, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.throw(), {}

    def step(self, action):
        return self.throw(), 0.0, False, False, {}

    def throw(self):
        return int(self.np_random.integers(1, 1 + self.observation_space.n))


gymnasium.register("Dice-v0", entry_point=Dice, max_episode_steps=7)


def old_style():
    env = Dice()
    env.step = lambda action: (1, 0.0, False, {})
    return env


def plain_reset():
    env = Dice()
    env.reset = lambda seed: 1
    return env


def wrong_throw():
    env = Dice()
    env.throw = lambda: 7
    return env


def vector():
    return gymnasium.make_vec("CartPole-v1", num_envs=3)


def nothing():
    return np.zeros(3)
