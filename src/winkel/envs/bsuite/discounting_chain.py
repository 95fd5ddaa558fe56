"""The first action chooses among rewards after 1, 3, 10, 30 and 100 steps; one pays 10 % more."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.envs.base import Dense, Environment, Outcome, outcome, time_table
from winkel.types import AnyArray

REWARD_STEPS = np.array([1, 3, 10, 30, 100])
NUM_STEPS = 100
TIME = time_table(np.arange(NUM_STEPS + 1) / NUM_STEPS)
UNDECIDED = -1


class ChainState(NamedTuple):
    """The choice, and the steps taken."""

    context: Int[Array, ""]
    step: Int[Array, ""]


class DiscountingChainParams(NamedTuple):
    """Which choice pays 1.1."""

    bonus_arm: Int[AnyArray, ""]


class DiscountingChain(Environment):
    """A hundred steps, of which the first decides."""

    @property
    def observation(self) -> Dense:
        """The choice, −1 before it, and the time."""
        return Dense((1, 2))

    @property
    def num_actions(self) -> int:
        """One for each delay."""
        return len(REWARD_STEPS)

    def draw_start(self, key: PRNGKeyArray, params: DiscountingChainParams) -> None:
        """Nothing is random."""

    def start(
        self, draws: None, episode: Int[Array, ""], params: DiscountingChainParams
    ) -> ChainState:
        """Undecided."""
        return ChainState(context=jnp.full((), UNDECIDED, jnp.int32), step=jnp.zeros((), jnp.int32))

    def draw(self, key: PRNGKeyArray, params: DiscountingChainParams) -> None:
        """Nothing is random."""

    def transition(
        self,
        state: ChainState,
        action: Int[Array, ""],
        draws: None,
        params: DiscountingChainParams,
    ) -> tuple[ChainState, Outcome]:
        """Pays when the delay of the choice has passed."""
        context = jnp.where(state.step == 0, action, state.context).astype(jnp.int32)
        step = state.step + 1
        paid = jnp.where(context == params.bonus_arm, 1.1, 1.0)
        reward = jnp.where(step == jnp.asarray(REWARD_STEPS)[context], paid, 0.0)
        return ChainState(context=context, step=step), outcome(reward, step == NUM_STEPS)

    def observe(self, state: ChainState, params: DiscountingChainParams) -> Float[Array, "1 2"]:
        """Choice and time."""
        return jnp.stack([state.context.astype(jnp.float32), jnp.asarray(TIME)[state.step]])[None]


def discounting_chain_params(mapping_seed: int) -> DiscountingChainParams:
    """The bonus arm is the seed modulo five."""
    return DiscountingChainParams(bonus_arm=np.asarray(mapping_seed % len(REWARD_STEPS), np.int32))
