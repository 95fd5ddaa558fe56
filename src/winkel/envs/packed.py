"""Environments of different families as one, so that runs of all of them share one program.

All of them move at every step and one is looked at: a step of an environment costs next to nothing
beside an update of an agent.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.envs.base import Dense, Environment, Outcome
from winkel.errors import InputError
from winkel.types import AnyArray


class PackedParams(NamedTuple):
    """Which environment it is, and parameters for each; all but its own are placeholders."""

    which: Int[AnyArray, ""]
    inner: tuple[Any, ...]


class Packed(Environment):
    """Several environments, of which `params.which` names the one that there is.

    Its observations, raveled, are padded with zeros to the longest; its facts are joined by those
    of the others, which are 0. For the same keys and actions everything else is as in it alone:
    each gets the key that it would get. Actions that it does not have are undefined.
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
        """As many numbers as the longest has."""
        return Dense((max(math.prod(env.observation.shape) for env in self.envs),))

    @property
    def num_actions(self) -> int:
        """As many as any has."""
        return max(env.num_actions for env in self.envs)

    def draw_start(self, key: PRNGKeyArray, params: PackedParams) -> tuple[PyTree, ...]:
        """Those of each."""
        return tuple(e.draw_start(key, p) for e, p in zip(self.envs, params.inner, strict=True))

    def start(
        self, draws: tuple[PyTree, ...], episode: Int[Array, ""], params: PackedParams
    ) -> tuple[PyTree, ...]:
        """That of each."""
        parts = zip(self.envs, draws, params.inner, strict=True)
        return tuple(env.start(drawn, episode, p) for env, drawn, p in parts)

    def draw(self, key: PRNGKeyArray, params: PackedParams) -> tuple[PyTree, ...]:
        """Those of each."""
        return tuple(e.draw(key, p) for e, p in zip(self.envs, params.inner, strict=True))

    def transition(
        self,
        state: tuple[PyTree, ...],
        action: Int[Array, ""],
        draws: tuple[PyTree, ...],
        params: PackedParams,
    ) -> tuple[tuple[PyTree, ...], Outcome]:
        """The one that there is moves, the others stay."""
        parts = zip(self.envs, state, draws, params.inner, strict=True)
        moved = [env.transition(s, action, drawn, p) for env, s, drawn, p in parts]
        names = sorted({name for _, result in moved for name in result.info})
        nothing = jnp.zeros((), jnp.int32)
        results = [
            result._replace(info={name: result.info.get(name, nothing) for name in names})
            for _, result in moved
        ]
        states = tuple(
            jax.tree.map(lambda new, old, i=i: jnp.where(params.which == i, new, old), after, s)
            for i, ((after, _), s) in enumerate(zip(moved, state, strict=True))
        )
        return states, _selected(params.which, results)

    def observe(self, state: tuple[PyTree, ...], params: PackedParams) -> Float[Array, " O"]:
        """What the one that there is shows, then zeros."""
        (size,) = self.observation.shape
        seen = []
        for env, s, p in zip(self.envs, state, params.inner, strict=True):
            shown = jnp.ravel(env.observe(s, p))
            seen.append(jnp.pad(shown, (0, size - len(shown))))
        return _selected(params.which, seen)


def _selected(which: Int[AnyArray, ""], cases: Sequence[Any]) -> Any:
    if len(cases) == 1:
        return cases[0]
    chosen = jnp.asarray(which, jnp.int32)
    return jax.tree.map(lambda *leaves: jax.lax.select_n(chosen, *leaves), *cases)
