"""Exploration by one statistic of a predicted return distribution (section 5.1, figure 2).

A single model learns returns, by default in a world without rewards; the action is the one whose
predicted distribution has the highest mean, variance, skewness or kurtosis. What that explores
shows how the projection generalises.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from winkel.agents import base, images, single
from winkel.agents.base import Number, Spec
from winkel.agents.settings import Settings
from winkel.agents.single import Learner
from winkel.distributions import kurtosis, mean, skewness, variance
from winkel.exploration import epsilon_greedy
from winkel.projections import PROJECTIONS, Projection
from winkel.types import Atoms, Batch, Clock, Decision, Estimates, Update

MOMENTS: Mapping[str, Callable[[Atoms], Float[Array, ""]]] = {
    "mean": mean,
    "variance": variance,
    "skewness": skewness,
    "kurtosis": kurtosis,
}
"""The first four, the last two standardised."""
LAST = float(np.finfo(np.float32).min)
"""The score of an action that has no statistic: behind all that have, before those that are not."""


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """What shapes the program. Defaults: as the models of the paper's PE-DQN, without a prior."""

    projection: str = "quantile"
    """The model: a name from the table of projections."""
    moment: Literal["mean", "variance", "skewness", "kurtosis"] = "variance"
    """What the action maximises."""
    reward_free: bool = True
    """Rewards count as 0."""
    prior: bool = False
    """Add a fixed random network to the outputs."""
    hidden: tuple[int, ...] = (512,)
    """Hidden layers of every network."""
    num_atoms: int = 101
    """K."""

    def __post_init__(self) -> None:
        base.check_learning(self)
        base.check_names("projection", (self.projection,), PROJECTIONS)
        base.check_names("moment", (self.moment,), MOMENTS)
        PROJECTIONS[self.projection].spanning(self.num_atoms, 0.0, 1.0)


class Hyper(NamedTuple):
    """What one tunes."""

    learning_rate: Number = 5e-4
    gamma: Number = 0.99
    prior_scale: Number = 20.0
    epsilon: Number = 0.0
    """Chance of an action that is not chosen so."""
    epsilon_final: Number = 0.0
    epsilon_steps: Number = 0.0
    """Steps over which ε falls to its final value; with 0 it stays what it is."""
    z_min: Number = base.BY_ENVIRONMENT
    z_max: Number = base.BY_ENVIRONMENT
    """Support of the values."""


@dataclass(frozen=True)
class Statistic:
    """A single model, one statistic of which chooses."""

    config: Config
    spec: Spec

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """A fresh network."""
        return single.init(
            key,
            self.spec,
            self.config,
            hidden=self.config.hidden,
            num_atoms=self.config.num_atoms,
            prior=self.config.prior,
        )

    def init_actor(self, key: PRNGKeyArray) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def act(
        self,
        learner: Learner,
        actor: tuple[()],
        obs: Array,
        first: Bool[Array, ""],
        clock: Clock,
        hyper: Hyper,
        key: PRNGKeyArray,
    ) -> tuple[Decision, tuple[()]]:
        """argmax_a S[Z], Z ~ η(s, a); a point mass, where it has no statistic, comes last."""
        statistic = self._statistic(self._predict(learner, obs, hyper))
        score = jnp.where(jnp.isnan(statistic), LAST, statistic)
        available = self.spec.available
        score = base.possible(score, available)
        action = epsilon_greedy(key, score, base.epsilon(clock, hyper), available)
        return Decision(action=action), actor

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on the projection's loss; the target's action is greedy by the mean."""
        if self.config.reward_free:
            nothing = jnp.zeros_like(batch.transitions.reward)
            batch = batch._replace(transitions=batch.transitions._replace(reward=nothing))
        return single.update(
            self._projection(hyper),
            learner,
            batch,
            clock,
            self.config,
            learning_rate=hyper.learning_rate,
            gamma=hyper.gamma,
            prior_scale=hyper.prior_scale,
            available=self.spec.available,
        )

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """The one model, and as its bonus the statistic, NaN where a point mass has none."""
        predicted = self._predict(learner, obs, hyper)
        return single.estimates(predicted, bonus=self._statistic(predicted))

    def member_names(self) -> tuple[str, ...]:
        """The projection."""
        return (self.config.projection,)

    def _projection(self, hyper: Hyper) -> Projection:
        ends: Any = (hyper.z_min, hyper.z_max)
        return PROJECTIONS[self.config.projection].spanning(self.config.num_atoms, *ends)

    def _predict(self, learner: Learner, obs: Array, hyper: Hyper) -> Atoms:
        seen = images.features(learner.shared, obs)
        return single.predict(
            self._projection(hyper), learner.params, learner.prior, seen, hyper.prior_scale
        )

    def _statistic(self, predicted: Atoms) -> Float[Array, " A"]:
        return jax.vmap(MOMENTS[self.config.moment])(predicted)
