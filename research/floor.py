"""PE-DQN+ whose bonus leaves out the disagreement that known state-actions have, too.

Where everything is known the members still differ, by about 0.03 at every step in a deep sea with
wind: their outputs jitter, and their projections differ. Over 20 steps that sums up to a bonus of
0.6 at the start, larger than the values. Here the level of disagreement at the greedy actions of
the batches, a quantile of each and a running mean of these, counts as none:

    w'(s, a) = max(0, w_avg(s, a) − level)

    winkel train deep_sea_stochastic:size=20 --agent research.floor:FloorPEDQN --episodes 10000 \
        --until 500 --seeds 10 --first-seed 100 --lanes 1
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from winkel.agents import base, pe_dqn
from winkel.agents.learning import Learner

MEMORY = 0.98
"""Decay of the weight of earlier batches."""


@dataclass(frozen=True, kw_only=True)
class Config(pe_dqn.Config):
    """The settings of `pe_dqn_plus`, without GPU kernels."""

    updates_per_step: base.Count = 2
    capacity: base.Count = 60_000
    priority_exponent: Annotated[float, base.Range(0.0, 1.0)] = 0.6
    importance_final: Annotated[float, base.Range(0.0, 1.0)] = 0.45
    bonus_discount: Annotated[float, base.Range(0.0, 1.0)] = 0.98
    bonus_support: Annotated[float, base.Range(0.0, open=True)] = 1.0
    unit_prior: bool = True
    kernels: bool = False
    floor: Annotated[float, base.Range(0.0, 1.0)] = 0.5
    """Quantile over a batch of the disagreement at greedy actions, which counts as none."""


class Hyper(NamedTuple):
    """As in `pe_dqn_plus`."""

    learning_rate: base.LearningRate = 2e-3
    gamma: base.Discount = 0.99
    prior_scale: base.PriorScale = 1.0
    beta: base.NonNegative = 1.0
    beta_final: base.NonNegative = 1.0
    beta_decay: base.HorizonShare = 1 / 3
    epsilon: base.Epsilon = 0.0
    epsilon_final: base.Epsilon = 0.0
    epsilon_steps: base.EpsilonSteps = 0.0
    z_min: base.Support = base.BY_ENVIRONMENT
    z_max: base.Support = base.BY_ENVIRONMENT


class Level(NamedTuple):
    """Running mean of a quantile of batches."""

    weight: Float[Array, ""]
    value: Float[Array, ""]
    quantile: Float[Array, ""]

    def update(self, disagreement: Float[Array, " B"]) -> "Level":
        weight = MEMORY * self.weight + 1.0
        change = (jnp.quantile(disagreement, self.quantile) - self.value) / weight
        return Level(weight, self.value + change, self.quantile)


@dataclass(frozen=True)
class FloorPEDQN(pe_dqn.PEDQN):
    """PE-DQN+ with a floor of its bonus."""

    config_type = Config
    hyper_type = Hyper

    def init(self, key: Array, hyper: Hyper) -> Learner:
        level = Level(jnp.zeros(()), jnp.zeros(()), jnp.asarray(self.config.floor))
        return super().init(key, hyper)._replace(intrinsic=level)

    def targets(self, learner, beta, hyper, transition, *others):
        online = self.predict(learner, transition.next_obs, hyper)
        greedy = jnp.argmax(self.spec.mask_unavailable(online.value))
        found = super().targets(learner, beta, hyper, transition, *others)
        return found._replace(disagreement=online.disagreement[greedy])

    def _intrinsic_reward(self, w_avg, learner, hyper):
        return jnp.maximum(w_avg - jax.lax.stop_gradient(learner.intrinsic.value), 0.0)
