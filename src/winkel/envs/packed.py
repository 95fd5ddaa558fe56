"""Several environments as one, so that runs of all of them share one compiled program.

Every step computes the transitions of all of them and selects one: a step of an environment costs
little compared to an update of an agent.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.envs.base import Environment, Outcome
from winkel.errors import InputError
from winkel.types import AnyArray, Dense


class PackedParams(NamedTuple):
    """Index of the environment, and parameters for each; those of the others are placeholders."""

    which: Int[AnyArray, ""]
    inner: tuple[Any, ...]


class Packed(Environment):
    """Several environments, of which `params.which` selects one.

    Its flattened observations are padded with zeros to the longest ones, and facts of the other
    environments are 0. Everything else is as in the selected environment alone, for the same keys
    and actions: it gets the keys that it would get alone. Actions that it lacks are undefined.
    """

    envs: tuple[Environment, ...]

    def __check_init__(self) -> None:
        if not self.envs:
            raise InputError("need at least one environment to pack, got none")
        for env in self.envs:
            if not isinstance(env.observation, Dense):
                raise InputError(f"need dense observations to pack, got {env.observation}")

    @property
    def observation(self) -> Dense:
        """As many numbers as the longest observation."""
        return Dense((max(math.prod(env.observation.shape) for env in self.envs),))

    @property
    def num_actions(self) -> int:
        """The largest number of actions."""
        return max(env.num_actions for env in self.envs)

    def draw_start(self, key: PRNGKeyArray, params: PackedParams) -> tuple[PyTree, ...]:
        """Draw for each environment."""
        return tuple(e.draw_start(key, p) for e, p in zip(self.envs, params.inner, strict=True))

    def start(
        self, draws: tuple[PyTree, ...], episode: Int[Array, ""], params: PackedParams
    ) -> tuple[PyTree, ...]:
        """Start each environment."""
        parts = zip(self.envs, draws, params.inner, strict=True)
        return tuple(env.start(drawn, episode, p) for env, drawn, p in parts)

    def draw(self, key: PRNGKeyArray, params: PackedParams) -> tuple[PyTree, ...]:
        """Draw for each environment."""
        return tuple(e.draw(key, p) for e, p in zip(self.envs, params.inner, strict=True))

    def transition(
        self,
        state: tuple[PyTree, ...],
        action: Int[Array, ""],
        draws: tuple[PyTree, ...],
        params: PackedParams,
    ) -> tuple[tuple[PyTree, ...], Outcome]:
        """Make a transition in the selected environment; the others keep their states."""
        parts = zip(self.envs, state, draws, params.inner, strict=True)
        steps = [env.transition(s, action, drawn, p) for env, s, drawn, p in parts]
        names = sorted({name for _, result in steps for name in result.info})
        zero = jnp.zeros((), jnp.int32)
        results = [
            result._replace(info={name: result.info.get(name, zero) for name in names})
            for _, result in steps
        ]
        states = tuple(
            jax.tree.map(lambda new, old, i=i: jnp.where(params.which == i, new, old), after, s)
            for i, ((after, _), s) in enumerate(zip(steps, state, strict=True))
        )
        return states, _select(params.which, results)

    def observe(self, state: tuple[PyTree, ...], params: PackedParams) -> Float[Array, " O"]:
        """Observe the selected environment and pad with zeros."""
        (size,) = self.observation.shape
        padded = []
        for env, s, p in zip(self.envs, state, params.inner, strict=True):
            flat = jnp.ravel(env.observe(s, p))
            padded.append(jnp.pad(flat, (0, size - len(flat))))
        return _select(params.which, padded)


def _select(which: Int[AnyArray, ""], cases: Sequence[Any]) -> Any:
    if len(cases) == 1:
        return cases[0]
    index = jnp.asarray(which, jnp.int32)
    return jax.tree.map(lambda *leaves: jax.lax.select_n(index, *leaves), *cases)
