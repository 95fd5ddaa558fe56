"""dm_env environments with every kind of spec."""

import dm_env
import numpy as np
from dm_env import specs

MID, LAST = dm_env.StepType.MID, dm_env.StepType.LAST


class Tells(dm_env.Environment):
    """Tells the rewards, discounts and ends that it is given."""

    def __init__(self, spec, shown, steps=(), actions=None):
        self.spec = spec
        self.shown = shown
        self.steps = steps
        self.actions = actions or specs.DiscreteArray(2)
        self.taken = []

    def observation_spec(self):
        return self.spec

    def action_spec(self):
        return self.actions

    def reset(self):
        self.time = 0
        return dm_env.restart(self.shown)

    def step(self, action):
        self.taken.append(action)
        kind, reward, discount = self.steps[self.time]
        self.time += 1
        return dm_env.TimeStep(kind, reward, discount, self.shown)


class Dice(Tells):
    def __init__(self, seed=None):
        super().__init__(specs.DiscreteArray(6), 0, [(MID, None, 1.0)] * 100)
        self.random = np.random.default_rng(seed)

    @property
    def shown(self):
        return int(self.random.integers(6))

    @shown.setter
    def shown(self, _):
        pass


def seedless():
    return Dice(4)
