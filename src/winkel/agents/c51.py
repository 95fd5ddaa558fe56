"""C51: a categorical model of the return distribution (Bellemare, Dabney and Munos 2017).

Learned by the KL divergence from the projected target, eq. 12 of the paper; acts ε-greedily.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from winkel.agents import base, distributional, learning
from winkel.agents.learning import Learner
from winkel.projections import Categorical
from winkel.types import Batch, Clock, Estimates, Update


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: as the categorical model of the paper's PE-DQN."""

    double: bool = True
    """The online network chooses the action that the target network evaluates."""
    hidden: base.Hidden = (512,)
    num_atoms: base.NumAtoms = 101


class Hyper(NamedTuple):
    """Hyperparameters, traced."""

    learning_rate: base.LearningRate = 5e-4
    gamma: base.Discount = 0.99
    epsilon: base.Epsilon = 1.0
    epsilon_final: base.Epsilon = 0.05
    epsilon_decay: base.HorizonShare = 0.1
    epsilon_steps: base.EpsilonSteps = 0.0
    z_min: base.Support = base.BY_ENVIRONMENT
    z_max: base.Support = base.BY_ENVIRONMENT


@dataclass(frozen=True)
class C51(base.Agent):
    """A categorical model, acted on ε-greedily."""

    config: Config

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """One network without a prior; the target network starts as a copy."""
        hidden, columns = self.config.hidden, self.config.num_atoms
        return learning.init_learner(key, self.spec, self.config, hidden, columns)

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on the KL divergence of eq. 12."""
        double, gamma, rate = self.config.double, hyper.gamma, hyper.learning_rate
        inputs = learning.encode(learner.shared, batch.transitions, online_next=double)
        gradients, metrics = distributional.projected_gradient(
            self._projection(hyper), learner, inputs, batch.weights, self.spec, gamma=gamma,
            double=double,
        )  # fmt: skip
        learner = learning.optimizer_step(learner, inputs, gradients, clock, self.config, rate)
        metrics["epsilon"] = base.epsilon_schedule(clock, hyper)
        return learner, Update(priorities=gradients.losses, metrics=metrics)

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """The one model."""
        predicted = distributional.predict(self._projection(hyper), learner, obs)
        return distributional.estimates(predicted)

    def member_names(self) -> tuple[str, ...]:
        """The projection."""
        return ("categorical",)

    def _projection(self, hyper: Hyper) -> Categorical:
        z_min, z_max = jnp.asarray(hyper.z_min), jnp.asarray(hyper.z_max)
        return Categorical(num_atoms=self.config.num_atoms, z_min=z_min, z_max=z_max)
