"""An environment of `winkel.envs` as a simulator, with the keys of the loop on the accelerator.

'simulators.jax_env:make:env=catch/0' names it. Seed s gives the course of lane `key(s)` of
`winkel.training.compiled`: reset by fold_in(key, 2), step t by fold_in(fold_in(run, t), 1) with
run = fold_in(key, 3). Observations are dense, whatever the environment's own form.
"""

from functools import partial

import jax
import numpy as np

from winkel.envs.registry import make as make_task
from winkel.simulators import Layout, Step
from winkel.types import OneHot


def dense(observation, obs):
    """The array that the original environment shows."""
    if isinstance(observation, OneHot):
        return jax.nn.one_hot(obs, observation.size).reshape(observation.shape)
    return obs


class JaxSimulator:
    probes = ()

    def __init__(self, task):
        self._task = task
        self._step = jax.jit(task.env.step)
        self._reset = jax.jit(task.env.reset)
        self._dense = jax.jit(partial(dense, task.env.observation))
        self._time = 0
        self.layout = Layout(tuple(task.env.observation.shape), "float32")
        self.num_actions = int(task.env.num_actions)
        state, _ = jax.eval_shape(task.env.reset, jax.random.key(0), task.params)
        _, step = jax.eval_shape(task.env.step, jax.random.key(0), state, 0, task.params)
        self.facts = tuple(step.info)

    def reset(self, seed):
        """With a seed, the start of a run; without, where the last step has begun anew."""
        if seed is not None:
            key = jax.random.key(seed)
            self._run = jax.random.fold_in(key, 3)
            self._state, obs = self._reset(jax.random.fold_in(key, 2), self._task.params)
            self._begun = self._dense(obs)
        return np.asarray(self._begun)

    def step(self, action):
        key = jax.random.fold_in(jax.random.fold_in(self._run, self._time), 1)
        self._time += 1
        self._state, step = self._step(key, self._state, action, self._task.params)
        self._begun = self._dense(step.obs)
        return Step(
            obs=np.asarray(self._dense(step.next_obs)),
            reward=float(step.reward),
            discount=float(step.discount),
            boundary=bool(step.boundary),
            facts=tuple(float(step.info[name]) for name in self.facts),
        )

    def close(self):
        pass


def make(env="catch/0"):
    return JaxSimulator(make_task(env))
