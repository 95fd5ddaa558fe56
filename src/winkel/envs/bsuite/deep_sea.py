"""Deep sea: N steps down an N × N grid, one of 2^N ways pays; with wind and noise if asked."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from winkel.envs.base import Environment, OneHot, Outcome, outcome
from winkel.types import AnyArray

NO_WIND = -1.0


class DeepSeaState(NamedTuple):
    """Where the diver is, and whether it has left the only good way."""

    row: Int[Array, ""]
    column: Int[Array, ""]
    bad: Bool[Array, ""]


class DeepSeaParams(NamedTuple):
    """One sea.

    Attributes:
        size: N.
        right: the action that means right, for each cell; padded to the environment's size.
        move_cost: paid for every move to the right.
        wind: moves to the right succeed where a uniform number exceeds this.
        end_noise: standard deviation of the noise at both ends of the last row.
    """

    size: Int[AnyArray, ""]
    right: Int[AnyArray, "max_size max_size"]
    move_cost: Float[AnyArray, ""]
    wind: Float[AnyArray, ""]
    end_noise: Float[AnyArray, ""]


class DeepSeaDraws(NamedTuple):
    """A uniform for the wind, a normal for the noise."""

    wind: Float[Array, ""]
    noise: Float[Array, ""]


class DeepSea(Environment):
    """A sea of any size up to `max_size`, which is the observed grid's."""

    max_size: int = eqx.field(static=True)

    @property
    def observation(self) -> OneHot:
        """The cell row · max_size + column; nothing at the end of an episode.

        A diver is never further right than down.
        """
        return OneHot((self.max_size, self.max_size), triangle=True)

    @property
    def num_actions(self) -> int:
        """Two, which mean left and right in an order of each cell's own."""
        return 2

    def draw_start(self, key: PRNGKeyArray, params: DeepSeaParams) -> None:
        """Nothing is random."""

    def start(self, draws: None, episode: Int[Array, ""], params: DeepSeaParams) -> DeepSeaState:
        """The upper left corner."""
        zero = jnp.zeros((), jnp.int32)
        return DeepSeaState(row=zero, column=zero, bad=jnp.zeros((), bool))

    def draw(self, key: PRNGKeyArray, params: DeepSeaParams) -> DeepSeaDraws:
        """Wind and noise, used or not."""
        key_wind, key_noise = (jax.random.fold_in(key, use) for use in range(2))
        return DeepSeaDraws(wind=jax.random.uniform(key_wind), noise=jax.random.normal(key_noise))

    def transition(
        self,
        state: DeepSeaState,
        action: Int[Array, ""],
        draws: DeepSeaDraws,
        params: DeepSeaParams,
    ) -> tuple[DeepSeaState, Outcome]:
        """Reward, cost and the verdict on the way all look at the column before the move.

        The cost is paid although the wind may block the move; being blown off the good way does
        not make an episode bad, turning left on it does.
        """
        row, column = state.row, state.column
        last = params.size - 1
        right = action == jnp.asarray(params.right)[row, column]
        treasure = right & (column == last)
        at_end = (row == last) & ((column == 0) | (column == last))
        reward = (
            treasure.astype(jnp.float32)
            + at_end * params.end_noise * draws.noise
            - right * params.move_cost
        )
        moved = right & (draws.wind > params.wind)
        new_column = jnp.where(right, jnp.where(moved, column + 1, column), column - 1)
        bad = state.bad | (~right & (row == column))
        ended = row + 1 == params.size
        following = DeepSeaState(
            row=row + 1, column=jnp.clip(new_column, 0, last).astype(jnp.int32), bad=bad
        )
        return following, outcome(reward, ended, bad=ended & bad, treasure=treasure)

    def observe(self, state: DeepSeaState, params: DeepSeaParams) -> Int[Array, ""]:
        """The cell's index, or the index of nothing."""
        cell = state.row * self.max_size + state.column
        return jnp.where(state.row < params.size, cell, self.observation.size).astype(jnp.int32)


def deep_sea_params(
    max_size: int, size: int, mapping_seed: int, move_cost: float, stochastic: bool
) -> DeepSeaParams:
    """One sea, its mapping drawn as the original draws it: by NumPy's legacy generator."""
    mapping = np.random.RandomState(mapping_seed).binomial(1, 0.5, [size, size])
    right = np.zeros((max_size, max_size), np.int32)
    right[:size, :size] = mapping
    return DeepSeaParams(
        size=np.asarray(size, np.int32),
        right=right,
        move_cost=np.asarray(move_cost / size, np.float32),
        wind=np.asarray(1 / size if stochastic else NO_WIND, np.float32),
        end_noise=np.asarray(1.0 if stochastic else 0.0, np.float32),
    )
