"""dm_env's environments as simulators.

Actions must be one choice: a `DiscreteArray`, or a whole number between bounds. Observations: one
array is an array or a picture (see `readers`), a `DiscreteArray` a one-hot vector; nested ones are
flattened into one vector, dicts by their sorted keys. The discount is the time step's own: a last
step with discount 0 is a termination, one with a discount above 0 a truncation, and discounts
between 0 and 1 inside an episode are passed on. The reward None is 0.

dm_env has no way to seed an environment, so that a factory with an argument `seed` is called again
with the seed at the first reset; without one, copies are as alike as the factory makes them.
"""

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from winkel.errors import InputError
from winkel.simulators.base import Layout, Moved
from winkel.simulators.readers import DEFAULT_STACK, Reader, array_reader, one_hot_reader


@dataclass(frozen=True)
class BsuiteMaker:
    """Makes one of DeepMind's own bsuite environments, such as 'catch/0', with our seeds."""

    id: str

    def __call__(self) -> "DmSimulator":
        """Make it."""
        try:
            from bsuite import bsuite, sweep
        except ImportError:
            raise InputError(f"dm:bsuite/{self.id} needs DeepMind's: pip install bsuite") from None
        if self.id not in sweep.SETTINGS:
            near = difflib.get_close_matches(self.id, list(sweep.SETTINGS), n=3, cutoff=0.5)
            hint = f"; did you mean dm:bsuite/{', dm:bsuite/'.join(near)}?" if near else ""
            raise InputError(f"unknown environment 'dm:bsuite/{self.id}'{hint}")
        load = bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT[self.id.partition("/")[0]]
        make = partial(load, **sweep.SETTINGS[self.id])
        return DmSimulator(make(), make if takes_seed(load) else None)


class DmSimulator:
    """A dm_env environment behind the interface of `Simulator`.

    Args:
        env: the environment.
        remake: makes the same with a `seed`, where that is possible.
        stack: frames that an agent sees, where observations are pictures.
    """

    facts: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()

    def __init__(
        self, env: Any, remake: Callable[..., Any] | None = None, stack: int = DEFAULT_STACK
    ):
        self._env = env
        self._remake = remake
        self.num_actions, self._first_action = _actions(env.action_spec())
        reader = _reader(env.observation_spec(), stack)
        self.layout: Layout = reader.layout
        self._read = reader.read

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode."""
        if seed is not None and self._remake is not None:
            self._env.close()
            self._env = self._remake(seed=seed)
        return self._read(self._env.reset().observation)

    def step(self, action: int) -> Moved:
        """Make one transition."""
        step = self._env.step(action + self._first_action)
        return Moved(
            obs=self._read(step.observation),
            reward=0.0 if step.reward is None else step.reward,
            discount=1.0 if step.discount is None else step.discount,
            boundary=bool(step.last()),
        )

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def takes_seed(factory: Callable[..., Any]) -> bool:
    """Whether a factory has an argument `seed`."""
    try:
        return "seed" in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # builtins have no signature
        return False


def _actions(spec: Any) -> tuple[int, int]:
    """How many actions there are, and the first."""
    num = getattr(spec, "num_values", None)
    if num is not None:
        return int(num), 0
    bounded = hasattr(spec, "minimum") and hasattr(spec, "maximum")
    if bounded and spec.shape == () and np.issubdtype(spec.dtype, np.integer):
        return int(spec.maximum) - int(spec.minimum) + 1, int(spec.minimum)
    raise InputError(f"need discrete actions, a dm_env.specs.DiscreteArray, got {spec}")


def _reader(spec: Any, stack: int) -> Reader:
    leaves = _leaves(spec)
    for leaf in leaves:
        if not hasattr(leaf, "shape") or np.dtype(leaf.dtype).kind not in "fiub":
            raise InputError(f"need observations that are arrays of numbers, got {leaf}")
    readers = [_array_reader(leaf, stack) for leaf in leaves]
    if not isinstance(spec, dict | list | tuple):
        return readers[0]
    if not readers:
        raise InputError(f"need observations with at least one array, got {spec}")

    def read(obs: Any) -> np.ndarray:
        parts = zip(readers, _leaves(obs), strict=True)
        return np.concatenate([np.ravel(reader.read(part)) for reader, part in parts])

    size = sum(int(np.prod(reader.layout.shape)) for reader in readers)
    return Reader(Layout((size,), "float32"), read)


def _array_reader(spec: Any, stack: int) -> Reader:
    num = getattr(spec, "num_values", None)
    if num is not None:
        return one_hot_reader(int(num), 0)
    return array_reader(tuple(spec.shape), spec.dtype, stack)


def _leaves(tree: Any) -> list[Any]:
    """What is in a nest of dicts, lists and tuples, dicts by their sorted keys."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in _leaves(tree[key])]
    if isinstance(tree, list | tuple):
        return [leaf for inner in tree for leaf in _leaves(inner)]
    return [tree]
