"""dm_env's environments as simulators.

Actions must be one choice: a `DiscreteArray`, or an integer between bounds. Observations: an array
is an array or a picture (`base.read_array`), a `DiscreteArray` is a one-hot vector, and nested ones
are flattened to one vector, dicts in the order of their sorted keys. The discount is that of the
time step: a last step with discount 0 is a termination, one with a discount above 0 a truncation.
The reward None is 0.

dm_env has no way to seed an environment. So a function with an argument `seed` is called again
with the seed at the first reset; others must make copies with different random numbers.
"""

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from winkel.errors import InputError
from winkel.simulators.base import (
    DEFAULT_STACK,
    Layout,
    Reader,
    Step,
    read_array,
    read_one_hot,
)


@dataclass(frozen=True)
class BsuiteMaker:
    """Makes one of DeepMind's own bsuite environments, such as 'catch/0', with winkel's seeds."""

    id: str

    def __call__(self) -> "DmSimulator":
        """Make one environment."""
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
    """A dm_env environment with the interface of `Simulator`.

    Args:
        env: the environment.
        remake: makes it again with a `seed`; None if it takes no seed.
        stack: number of frames that an agent sees if observations are pictures.
    """

    facts: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()

    def __init__(
        self, env: Any, remake: Callable[..., Any] | None = None, stack: int = DEFAULT_STACK
    ):
        self._env = env
        self._remake = remake
        self.num_actions, self._first_action = _count_actions(env.action_spec())
        self.layout, self._read = _make_reader(env.observation_spec(), stack)

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode."""
        if seed is not None and self._remake is not None:
            self._env.close()
            self._env = self._remake(seed=seed)
        return self._read(self._env.reset().observation)

    def step(self, action: int) -> Step:
        """Make one transition."""
        result = self._env.step(action + self._first_action)
        return Step(
            obs=self._read(result.observation),
            reward=0.0 if result.reward is None else result.reward,
            discount=1.0 if result.discount is None else result.discount,
            boundary=bool(result.last()),
        )

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def takes_seed(function: Callable[..., Any]) -> bool:
    """Return whether a function has an argument `seed`."""
    try:
        return "seed" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins have no signature
        return False


def _count_actions(spec: Any) -> tuple[int, int]:
    """Return the number of actions, and the first."""
    num = getattr(spec, "num_values", None)
    if num is not None:
        return int(num), 0
    bounded = hasattr(spec, "minimum") and hasattr(spec, "maximum")
    if bounded and spec.shape == () and np.issubdtype(spec.dtype, np.integer):
        return int(spec.maximum) - int(spec.minimum) + 1, int(spec.minimum)
    raise InputError(f"need discrete actions, a dm_env.specs.DiscreteArray, got {spec}")


def _make_reader(spec: Any, stack: int) -> Reader:
    leaves = _flatten(spec)
    for leaf in leaves:
        if not hasattr(leaf, "shape") or np.dtype(leaf.dtype).kind not in "fiub":
            raise InputError(f"need observations that are arrays of numbers, got {leaf}")
    readers = [_read_leaf(leaf, stack) for leaf in leaves]
    if not isinstance(spec, dict | list | tuple):
        return readers[0]
    if not readers:
        raise InputError(f"need observations with at least one array, got {spec}")

    def read(obs: Any) -> np.ndarray:
        parts = zip(readers, _flatten(obs), strict=True)
        return np.concatenate([np.ravel(reader.read(part)) for reader, part in parts])

    size = sum(int(np.prod(reader.layout.shape)) for reader in readers)
    return Reader(Layout((size,), "float32"), read)


def _read_leaf(spec: Any, stack: int) -> Reader:
    num = getattr(spec, "num_values", None)
    if num is not None:
        return read_one_hot(int(num), 0)
    return read_array(tuple(spec.shape), spec.dtype, stack)


def _flatten(tree: Any) -> list[Any]:
    """Return the leaves of nested dicts, lists and tuples; dicts in the order of sorted keys."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in _flatten(tree[key])]
    if isinstance(tree, list | tuple):
        return [leaf for inner in tree for leaf in _flatten(inner)]
    return [tree]
