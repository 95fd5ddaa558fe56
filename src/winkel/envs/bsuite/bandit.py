"""Eleven arms that pay 0, 0.1 … 1, shuffled by the setting; an episode is one pull."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from winkel.envs.base import Dense, Environment, Outcome, outcome
from winkel.types import AnyArray

NUM_ARMS = 11
PAYS = np.linspace(0, 1, NUM_ARMS).astype(np.float32)


class BanditParams(NamedTuple):
    """ranks[a]: arm a pays ranks[a]/10."""

    ranks: Int[AnyArray, "A"]


class Bandit(Environment):
    """A bandit without context; the observation is 1 throughout."""

    @property
    def observation(self) -> Dense:
        """[[1.0]]."""
        return Dense((1, 1))

    @property
    def num_actions(self) -> int:
        """One for each arm."""
        return NUM_ARMS

    def draw_start(self, key: PRNGKeyArray, params: BanditParams) -> None:
        """Nothing is random."""

    def start(self, draws: None, episode: Int[Array, ""], params: BanditParams) -> Bool[Array, ""]:
        """There is no state; a placeholder."""
        return jnp.zeros((), bool)

    def draw(self, key: PRNGKeyArray, params: BanditParams) -> None:
        """Nothing is random."""

    def transition(
        self, state: Bool[Array, ""], action: Int[Array, ""], draws: None, params: BanditParams
    ) -> tuple[Bool[Array, ""], Outcome]:
        """Pays, and ends. Regret is counted in whole tenths, which add up exactly."""
        rank = jnp.asarray(params.ranks)[action]
        paid = jnp.asarray(PAYS)[rank]
        return state, outcome(paid, jnp.ones((), bool), missed_tenths=NUM_ARMS - 1 - rank)

    def observe(self, state: Bool[Array, ""], params: BanditParams) -> Float[Array, "1 1"]:
        """Always one."""
        return jnp.ones((1, 1))


def bandit_params(mapping_seed: int) -> BanditParams:
    """Arms in the original's order: a permutation by NumPy's legacy generator."""
    permutation = np.random.RandomState(mapping_seed).choice(
        range(NUM_ARMS), size=NUM_ARMS, replace=False
    )
    return BanditParams(ranks=np.asarray(permutation, np.int32))
