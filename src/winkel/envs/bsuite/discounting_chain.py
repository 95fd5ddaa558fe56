"""The first action chooses a reward after 1, 3, 10, 30 or 100 steps; one pays 10 % more."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from winkel.envs.base import Environment, Experiment, Family, outcome
from winkel.envs.bsuite.common import reward_once
from winkel.errors import LARGEST_SEED
from winkel.types import AnyArray, Dense, EnvStep

REWARD_STEPS = np.array([1, 3, 10, 30, 100])
NUM_STEPS = 100
TIME = (np.arange(NUM_STEPS + 1) / NUM_STEPS).astype(np.float32)


class ChainState(NamedTuple):
    """The choice, and the number of steps."""

    context: Int[Array, ""]
    step: Int[Array, ""]


class DiscountingChain(Environment):
    """A hundred steps, of which only the first action counts; `params` is the one that pays 1.1."""

    observation = Dense((1, 2))
    """The choice, −1 before it, and the time."""
    num_actions = len(REWARD_STEPS)

    def start(self, draws: None, episode: Int[Array, ""], params: Int[AnyArray, ""]) -> ChainState:
        return ChainState(context=jnp.full((), -1, jnp.int32), step=jnp.zeros((), jnp.int32))

    def transition(
        self, state: ChainState, action: Int[Array, ""], draws: None, params: Int[AnyArray, ""]
    ) -> tuple[ChainState, EnvStep]:
        """Pay when the delay of the choice has passed."""
        context = jnp.where(state.step == 0, action, state.context).astype(jnp.int32)
        step = state.step + 1
        paid = jnp.where(context == params, 1.1, 1.0)
        reward = jnp.where(step == jnp.asarray(REWARD_STEPS)[context], paid, 0.0)
        return ChainState(context=context, step=step), outcome(reward, step == NUM_STEPS)

    def observe(self, state: ChainState, params: Int[AnyArray, ""]) -> Float[Array, "1 2"]:
        return jnp.stack([state.context.astype(jnp.float32), jnp.asarray(TIME)[state.step]])[None]


_NAME = "discounting_chain"
_SETTINGS = [{"mapping_seed": seed} for seed in range(20)]
FAMILY = Family(
    name=_NAME,
    experiments=(Experiment(_NAME, _NAME, 1_000, ("credit_assignment",), _SETTINGS),),
    defaults={"mapping_seed": 0},
    ranges={"mapping_seed": (0, LARGEST_SEED)},
    make_env=lambda _: DiscountingChain(),
    make_params=lambda _, s: np.asarray(s["mapping_seed"] % len(REWARD_STEPS), np.int32),
    returns=reward_once(0.0, 1.1),
    longest_episode=lambda _: NUM_STEPS,
)
