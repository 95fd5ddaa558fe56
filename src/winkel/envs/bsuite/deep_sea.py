"""Deep sea: N steps down an N × N grid, where one of 2^N action sequences finds the treasure.

`deep_sea_stochastic` adds wind, which blocks moves to the right, and noise on the last row.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from winkel.envs.base import MARGIN, Environment, Experiment, Family, Setting, outcome
from winkel.envs.bsuite.common import count
from winkel.errors import LARGEST_SEED
from winkel.types import AnyArray, EnvStep, OneHot


class DeepSeaState(NamedTuple):
    """Position, and whether the episode has left the diagonal by its own action."""

    row: Int[Array, ""]
    column: Int[Array, ""]
    bad: Bool[Array, ""]


class DeepSeaParams(NamedTuple):
    """Numbers of one setting."""

    size: Int[AnyArray, ""]
    right: Int[AnyArray, "max_size max_size"]
    """The action that means right in each cell; padded to the environment's size."""
    move_cost: Float[AnyArray, ""]
    wind: Float[AnyArray, ""]
    """A move to the right succeeds if a uniform number exceeds this."""
    end_noise: Float[AnyArray, ""]
    """Standard deviation of the noise at both ends of the last row."""


Draws = tuple[Float[Array, ""], Float[Array, ""]]
"""A uniform number for the wind, a normal one for the noise."""


class DeepSea(Environment):
    """Deep sea of any size up to `max_size`, the side of the observed grid."""

    max_size: int = eqx.field(static=True)

    num_actions = 2
    """Left and right, in an order that differs between cells."""

    @property
    def observation(self) -> OneHot:
        """The cell row · max_size + column, column ≤ row; no cell at the end of an episode."""
        return OneHot((self.max_size, self.max_size), triangle=True)

    def start(self, draws: None, episode: Int[Array, ""], params: DeepSeaParams) -> DeepSeaState:
        zero = jnp.zeros((), jnp.int32)
        return DeepSeaState(row=zero, column=zero, bad=jnp.zeros((), bool))

    def draw(self, key: PRNGKeyArray, params: DeepSeaParams) -> Draws:
        """Draw wind and noise, also for settings without them."""
        key_wind, key_noise = (jax.random.fold_in(key, use) for use in range(2))
        return jax.random.uniform(key_wind), jax.random.normal(key_noise)

    def transition(
        self, state: DeepSeaState, action: Int[Array, ""], draws: Draws, params: DeepSeaParams
    ) -> tuple[DeepSeaState, EnvStep]:
        """Move; reward, cost and 'bad' depend on the column before the move.

        The cost is paid also if the wind blocks the move. An episode is bad if an action leaves
        the diagonal, not if the wind does.
        """
        row, column = state.row, state.column
        wind, noise = draws
        last = params.size - 1
        right = action == jnp.asarray(params.right)[row, column]
        treasure = right & (column == last)
        at_end = (row == last) & ((column == 0) | (column == last))
        found, noise = treasure.astype(jnp.float32), at_end * params.end_noise * noise
        reward = found + noise - right * params.move_cost
        moved = right & (wind > params.wind)
        new_column = jnp.where(right, jnp.where(moved, column + 1, column), column - 1)
        bad = state.bad | (~right & (row == column))
        ended = row + 1 == params.size
        following = DeepSeaState(
            row=row + 1, column=jnp.clip(new_column, 0, last).astype(jnp.int32), bad=bad
        )
        return following, outcome(reward, ended, bad=ended & bad, treasure=treasure)

    def observe(self, state: DeepSeaState, params: DeepSeaParams) -> Int[Array, ""]:
        cell = state.row * self.max_size + state.column
        return jnp.where(state.row < params.size, cell, self.observation.size).astype(jnp.int32)


def _make_params(stochastic: bool, env: DeepSea, setting: Setting) -> DeepSeaParams:
    """Draw the mapping of actions as the original does, by NumPy's legacy generator."""
    size, rng = setting["size"], np.random.RandomState(setting["mapping_seed"])
    right = np.zeros((env.max_size, env.max_size), np.int32)
    right[:size, :size] = rng.binomial(1, 0.5, [size, size])
    return DeepSeaParams(
        size=np.asarray(size, np.int32),
        right=right,
        move_cost=np.asarray(setting["move_cost"] / size, np.float32),
        wind=np.asarray(1 / size if stochastic else -1.0, np.float32),
        end_noise=np.asarray(stochastic, np.float32),
    )


def _family(name: str, *tags: str, stochastic: bool) -> Family:
    settings = [{"size": size, "mapping_seed": 42} for size in range(10, 51, 2)]
    noise_std = 1.0 if stochastic else 0.0
    return Family(
        name=name,
        experiments=(Experiment(name, name, 10_000, tags, settings),),
        defaults={"size": 10, "mapping_seed": 42, "move_cost": 0.01},
        # The mapping of a larger grid takes minutes to draw.
        ranges={"size": (2, 5_000), "mapping_seed": (0, LARGEST_SEED)},
        make_env=lambda settings: DeepSea(max_size=max(s["size"] for s in settings)),
        make_params=partial(_make_params, stochastic),
        # The margin holds the cost of all moves, unless a user raises it above MARGIN.
        returns=lambda setting, _: (min(0.0, MARGIN - setting["move_cost"]), 1.0, noise_std),
        longest_episode=lambda setting: setting["size"],
        inputs=lambda setting: setting["size"] ** 2,
        num_pairs=lambda setting: setting["size"] * (setting["size"] + 1),
        facts=("bad", "treasure"),
        info=lambda episodes: {
            "total_bad_episodes": count(episodes["bad"]),
            "denoised_return": 1.0 * count(episodes["treasure"]),
        },
    )


DETERMINISTIC = _family("deep_sea", "exploration", stochastic=False)
STOCHASTIC = _family("deep_sea_stochastic", "exploration", "noise", stochastic=True)
