"""Exploration by one statistic of a return distribution (PE-DQN paper, section 6.1, figure 3).

One model learns returns, by default as if all rewards were 0. The action is the one whose predicted
distribution has the highest mean, variance, skewness or kurtosis. Which states are visited then
shows how the projection generalises.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from winkel.agents import base
from winkel.agents.base import PerAction
from winkel.agents.distributional import SingleModel
from winkel.agents.learning import Learner
from winkel.distributions import kurtosis, mean, skewness, variance
from winkel.projections import find_projection
from winkel.types import Atoms, Batch, Clock, Estimates, Update

MOMENTS: dict[str, Callable[[Atoms], Float[Array, ""]]] = {
    moment.__name__: moment for moment in (mean, variance, skewness, kurtosis)
}
"""The first four moments, the last two standardised."""
LOWEST = float(np.finfo(np.float32).min)
"""Score of an action whose statistic is undefined: below all others, above unavailable actions."""


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: as the models of the paper's PE-DQN, without a prior."""

    projection: str = "quantile"
    """The model: a name from the table of projections."""
    moment: Literal["mean", "variance", "skewness", "kurtosis"] = "variance"
    """The statistic that the action maximises."""
    reward_free: bool = True
    """Rewards count as 0."""
    prior: bool = False
    """Add a fixed random network to the outputs."""
    hidden: base.Hidden = (512,)
    num_atoms: base.NumAtoms = 101
    """Odd for expectiles."""

    def __post_init__(self) -> None:
        super().__post_init__()
        find_projection(self.projection).spanning(self.num_atoms, 0.0, 1.0)


class Hyper(NamedTuple):
    """Hyperparameters, traced."""

    learning_rate: base.LearningRate = 5e-4
    gamma: base.Discount = 0.99
    prior_scale: base.PriorScale = 20.0
    epsilon: base.Epsilon = 0.0
    epsilon_final: base.Epsilon = 0.0
    epsilon_steps: base.EpsilonSteps = 0.0
    z_min: base.Support = base.BY_ENVIRONMENT
    z_max: base.Support = base.BY_ENVIRONMENT


@dataclass(frozen=True)
class Statistic(SingleModel):
    """One model; actions maximise one statistic of its distributions."""

    config: Config
    config_type = Config
    hyper_type = Hyper

    @property
    def model(self) -> str:
        return self.config.projection

    def scores(self, learner: Learner, obs: Array, clock: Clock, hyper: Hyper) -> PerAction:
        """The statistic S[Z], Z ~ η(s, ·); lowest for a point mass that has none."""
        statistic = self.estimates(learner, obs, hyper).bonus
        return jnp.where(jnp.isnan(statistic), LOWEST, statistic)

    def schedules(self, clock: Clock, hyper: Hyper) -> dict[str, Float[Array, ""]]:
        return {}

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on the projection's loss, without rewards if the configuration says so."""
        if self.config.reward_free:
            nothing = jnp.zeros_like(batch.transitions.reward)
            batch = batch._replace(transitions=batch.transitions._replace(reward=nothing))
        return super().update(learner, batch, clock, hyper, key)

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """The one model, and as its bonus the statistic, NaN for a point mass that has none."""
        found = super().estimates(learner, obs, hyper)
        model = jax.tree.map(lambda x: x[0], found.members)
        return found._replace(bonus=jax.vmap(MOMENTS[self.config.moment])(model))
