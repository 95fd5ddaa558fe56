"""Eleven arms that pay 0, 0.1 … 1 in an order given by the setting; an episode is one step."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from winkel.envs.base import Experiment, Family, Setting, outcome
from winkel.envs.bsuite.common import PerturbedReward, count, perturbed, reward_once
from winkel.errors import LARGEST_SEED
from winkel.types import AnyArray, Dense, EnvStep

NUM_ARMS = 11
PAYS = np.linspace(0, 1, NUM_ARMS).astype(np.float32)
Ranks = Int[AnyArray, "A"]
"""Ranks of the arms: arm a pays ranks[a]/10."""


class Bandit(PerturbedReward):
    """A bandit without context; the observation is 1 throughout."""

    observation = Dense((1, 1))
    num_actions = NUM_ARMS

    def start(self, draws: None, episode: Int[Array, ""], params: Any) -> Bool[Array, ""]:
        return jnp.zeros((), bool)  # a placeholder: there is no state

    def exact_transition(
        self, state: Bool[Array, ""], action: Int[Array, ""], inner: Ranks
    ) -> tuple[Bool[Array, ""], EnvStep]:
        """Pay and end. 'missed_tenths' is ten times the regret: integers add up exactly."""
        rank = jnp.asarray(inner)[action]
        paid = jnp.asarray(PAYS)[rank]
        return state, outcome(paid, jnp.ones((), bool), missed_tenths=NUM_ARMS - 1 - rank)

    def observe(self, state: Bool[Array, ""], params: Any) -> Float[Array, "1 1"]:
        return jnp.ones((1, 1))


def _ranks(_: Bandit, setting: Setting) -> Ranks:
    """Permute the arms as the original does, by NumPy's legacy generator."""
    rng = np.random.RandomState(setting["mapping_seed"])
    return rng.choice(range(NUM_ARMS), size=NUM_ARMS, replace=False).astype(np.int32)


_ARMS = [{"mapping_seed": seed} for seed in range(20)]
FAMILY = perturbed(
    Family(
        name="bandit",
        experiments=(Experiment("bandit", "bandit", 10_000, ("basic",), _ARMS),),
        defaults={"mapping_seed": 0},
        ranges={"mapping_seed": (0, LARGEST_SEED)},
        make_env=lambda _: Bandit(),
        make_params=_ranks,
        returns=reward_once(0.0, 1.0),
        longest_episode=lambda _: 1,
        facts=("missed_tenths",),
        info=lambda episodes: {"total_regret": count(episodes["missed_tenths"]) / 10},
    )
)
