"""Several environments as one, so that runs of all of them share one compiled program.

Every step computes the transitions of all of them and selects one: that costs little compared to an
update of an agent. `packs.toml` says which, and why.
"""

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.envs.base import Environment, Setting
from winkel.types import AnyArray, Dense, EnvStep

PACKS: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("packs.toml").read_text(encoding="utf-8")
)
"""Experiments of each pack."""


def pack_of(experiment: str, setting: Setting) -> str:
    """Return the name of a setting's pack."""
    if experiment in PACKS["deep-sea-50"]:
        return "deep-sea-30" if setting["size"] <= 30 else "deep-sea-50"
    return next(name for name, experiments in PACKS.items() if experiment in experiments)


Parts = tuple[PyTree, ...]
"""Something of each environment."""


class PackedParams(NamedTuple):
    """Index of the environment, and parameters for each; those of the others are placeholders."""

    which: Int[AnyArray, ""]
    inner: Parts


class Packed(Environment):
    """Several environments with dense observations, of which `params.which` selects one.

    Its flattened observations are padded with zeros, and facts of the others are 0. All else is as
    in the selected environment alone, with its keys. Actions that it lacks are undefined.
    """

    envs: tuple[Environment, ...]

    @property
    def observation(self) -> Dense:
        return Dense((max(math.prod(env.observation.shape) for env in self.envs),))

    @property
    def num_actions(self) -> int:
        return max(env.num_actions for env in self.envs)

    def draw_start(self, key: PRNGKeyArray, params: PackedParams) -> Parts:
        return tuple(e.draw_start(key, p) for e, p in zip(self.envs, params.inner, strict=True))

    def start(self, draws: Parts, episode: Int[Array, ""], params: PackedParams) -> Parts:
        parts = zip(self.envs, draws, params.inner, strict=True)
        return tuple(env.start(drawn, episode, p) for env, drawn, p in parts)

    def draw(self, key: PRNGKeyArray, params: PackedParams) -> Parts:
        return tuple(e.draw(key, p) for e, p in zip(self.envs, params.inner, strict=True))

    def transition(
        self, state: Parts, action: Int[Array, ""], draws: Parts, params: PackedParams
    ) -> tuple[Parts, EnvStep]:
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

    def observe(self, state: Parts, params: PackedParams) -> Float[Array, " O"]:
        (size,) = self.observation.shape
        parts = zip(self.envs, state, params.inner, strict=True)
        flat = [jnp.ravel(env.observe(s, p)) for env, s, p in parts]
        return _select(params.which, [jnp.pad(x, (0, size - len(x))) for x in flat])


def _select(which: Int[AnyArray, ""], cases: Sequence[Any]) -> Any:
    index = jnp.asarray(which, jnp.int32)
    return jax.tree.map(lambda *leaves: jax.lax.select_n(index, *leaves), *cases)
