"""Several environments as one, so that runs of all of them share one compiled program.

Every step computes the transitions of all of them and selects one: that costs little compared to an
update of an agent. The cost of a lane depends on the number of outputs (actions × atoms), then on
the number of inputs; a program runs as long as its longest run, and takes half a minute to compile.
So a pack holds settings of similar size and length. A network's first layer grows with the square
of the size of deep sea: padding small sizes to the largest would cost six times as much, and a
program for each size would leave most of a GPU idle.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.envs.base import Environment, Setting
from winkel.types import AnyArray, Dense, EnvStep

_CARTPOLE = ["cartpole", "cartpole_noise", "cartpole_scale"]
_CAR = ["mountain_car", "mountain_car_noise", "mountain_car_scale"]
_DEEP_SEA = ["deep_sea", "deep_sea_stochastic"]
PACKS: dict[str, list[str]] = {
    # At most 23 inputs, 3 actions and a million steps; chains end earlier and free their lanes.
    "long": [*_CARTPOLE, *_CAR, "cartpole_swingup", "memory_len", "umbrella_length"],
    # 42 to 103 inputs, 3 actions, at most 200,000 steps.
    "short": ["catch", "catch_noise", "catch_scale", "memory_size", "umbrella_distract"],
    "bandits": ["bandit", "bandit_noise", "bandit_scale"],
    # Padding its 5 actions to 11 costs more time than compiling a program of its own.
    "chains": ["discounting_chain"],
    "mnist": ["mnist", "mnist_noise", "mnist_scale"],
    "deep-sea-30": _DEEP_SEA,
    "deep-sea-50": _DEEP_SEA,
}
"""Experiments of each pack."""


def pack_of(experiment: str, setting: Setting) -> str:
    """Return the name of a setting's pack."""
    if experiment in _DEEP_SEA:
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
