"""DQN: one value for each action (Mnih et al. 2015), by default double (van Hasselt et al. 2016).

It uses the ensemble of bootstrapped DQN with one member and no prior, and acts ε-greedily.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from winkel.agents import base, bdqn, learning
from winkel.agents.learning import Learner
from winkel.types import Batch, Clock, Estimates, Update


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: as a member of `bdqn`, but double."""

    double: bool = True
    """The online network chooses the action that the target network evaluates."""
    huber_width: base.HuberWidth = 0.0
    hidden: base.Hidden = (64, 64)


class Hyper(NamedTuple):
    """Hyperparameters, traced."""

    learning_rate: base.LearningRate = 1e-3
    gamma: base.Discount = 0.99
    epsilon: base.Epsilon = 1.0
    epsilon_final: base.Epsilon = 0.05
    epsilon_decay: base.HorizonShare = 0.1
    epsilon_steps: base.EpsilonSteps = 0.0


@dataclass(frozen=True)
class DQN(base.Agent):
    """One value function; actions are ε-greedy."""

    config: Config
    config_type = Config
    hyper_type = Hyper

    def init(self, key: PRNGKeyArray, hyper: Any) -> Learner:
        """An ensemble of one network, without a prior; the target network starts as a copy."""
        return learning.init_learner(key, self, columns=1, members=1)

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Any, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on ½ δ² of the TD error δ, or on Huber's loss of it."""
        masks = jnp.ones((len(batch.weights), 1), bool)
        inputs = learning.encode(learner.shared, batch, online_next=self.config.double)
        gradients = bdqn.td_gradient(self, learner, inputs, masks, hyper)
        learner = learning.optimizer_step(self, learner, inputs, gradients, clock, hyper)
        metrics = {"loss": gradients.loss, **self.schedules(clock, hyper)}
        return learner, Update(priorities=gradients.losses, metrics=metrics)

    def estimates(self, learner: Learner, obs: Array, hyper: Any) -> Estimates:
        """A point mass at the value of each action; one member has no disagreement."""
        value = bdqn.values(learner.params, None, learning.features(learner.shared, obs), 0.0)
        return bdqn.point_masses(value, value[0], jnp.full_like(value[0], jnp.nan))

    def value_networks(self, learner: Learner, hyper: Hyper) -> base.ValueNetworks:
        return base.ValueNetworks(learner.params, (None,))

    def member_names(self) -> tuple[str, ...]:
        return ("dqn",)
