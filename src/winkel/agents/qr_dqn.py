"""QR-DQN: a quantile model of the return distribution (Dabney et al. 2018).

Learned by quantile regression, eq. 11 of the paper with a single member; acts ε-greedily.
"""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Array, PRNGKeyArray

from winkel.agents import base, distributional, learning
from winkel.agents.learning import Learner
from winkel.projections import Quantile
from winkel.types import Batch, Clock, Estimates, Update


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: as the quantile model of the paper's PE-DQN."""

    double: bool = True
    """The online network chooses the action that the target network evaluates."""
    huber_width: base.HuberWidth = 0.0
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


@dataclass(frozen=True)
class QRDQN(base.Agent):
    """A quantile model, acted on ε-greedily."""

    config: Config

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """One network without a prior; the target network starts as a copy."""
        hidden, columns = self.config.hidden, self.config.num_atoms
        return learning.init_learner(key, self.spec, self.config, hidden, columns)

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step of quantile regression."""
        double, gamma, rate = self.config.double, hyper.gamma, hyper.learning_rate
        inputs = learning.encode(learner.shared, batch.transitions, online_next=double)
        gradients, metrics = distributional.projected_gradient(
            self._projection(), learner, inputs, batch.weights, self.spec, gamma=gamma,
            double=double,
        )  # fmt: skip
        learner = learning.optimizer_step(learner, inputs, gradients, clock, self.config, rate)
        metrics["epsilon"] = base.epsilon_schedule(clock, hyper)
        return learner, Update(priorities=gradients.losses, metrics=metrics)

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """The one model."""
        predicted = distributional.predict(self._projection(), learner, obs)
        return distributional.estimates(predicted)

    def member_names(self) -> tuple[str, ...]:
        """The projection."""
        return ("quantile",)

    def _projection(self) -> Quantile:
        return Quantile(num_atoms=self.config.num_atoms, huber_width=self.config.huber_width)
