"""QR-DQN: a quantile model of the return distribution (Dabney et al. 2018).

Learned by quantile regression, eq. 11 of the paper with a single member; acts ε-greedily.
"""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Array, Bool, Float, PRNGKeyArray

from winkel.agents import base, images, single
from winkel.agents.base import Number, Spec
from winkel.agents.settings import Settings
from winkel.agents.single import Learner
from winkel.exploration import epsilon_greedy, falling, linear_decay
from winkel.projections import Quantile
from winkel.types import Atoms, Batch, Clock, Decision, Estimates, Update


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """What shapes the program. Defaults: as the quantile model of the paper's PE-DQN."""

    double: bool = True
    """The online network chooses the action that the target network evaluates."""
    huber_width: float = 0.0
    """Width of the Huber loss; 0 for plain quantile regression."""
    hidden: tuple[int, ...] = (512,)
    """Hidden layers of every network."""
    num_atoms: int = 101
    """K."""

    def __post_init__(self) -> None:
        base.check_learning(self)
        Quantile(num_atoms=self.num_atoms, huber_width=self.huber_width)


class Hyper(NamedTuple):
    """What one tunes."""

    learning_rate: Number = 5e-4
    gamma: Number = 0.99
    epsilon: Number = 1.0
    epsilon_final: Number = 0.05
    epsilon_decay: Number = 0.1
    """Share of the horizon over which ε falls linearly."""
    epsilon_steps: Number = 0.0
    """Steps over which it does, in place of that share; 0 for the share."""


@dataclass(frozen=True)
class QRDQN:
    """A quantile model, acted on ε-greedily."""

    config: Config
    spec: Spec

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """A fresh network without a prior."""
        return single.init(
            key,
            self.spec,
            self.config,
            hidden=self.config.hidden,
            num_atoms=self.config.num_atoms,
            prior=False,
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
        """The action of the highest mean, or with probability ε any."""
        available = self.spec.available
        value = base.possible(single.action_values(self._predict(learner, obs)), available)
        action = epsilon_greedy(key, value, self._epsilon(clock, hyper), available)
        return Decision(action=action), actor

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step of quantile regression."""
        learner, update = single.update(
            self._projection(),
            learner,
            batch,
            clock,
            self.config,
            learning_rate=hyper.learning_rate,
            gamma=hyper.gamma,
            prior_scale=0.0,
            double=self.config.double,
            available=self.spec.available,
        )
        metrics = {**update.metrics, "epsilon": self._epsilon(clock, hyper)}
        return learner, update._replace(metrics=metrics)

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """The one model."""
        return single.estimates(self._predict(learner, obs))

    def member_names(self) -> tuple[str, ...]:
        """The projection."""
        return ("quantile",)

    def _projection(self) -> Quantile:
        return Quantile(num_atoms=self.config.num_atoms, huber_width=self.config.huber_width)

    def _predict(self, learner: Learner, obs: Array) -> Atoms:
        seen = images.features(learner.shared, obs)
        return single.predict(self._projection(), learner.params, None, seen, 0.0)

    def _epsilon(self, clock: Clock, hyper: Hyper) -> Float[Array, ""]:
        ends = hyper.epsilon, hyper.epsilon_final
        by_share = linear_decay(*ends, hyper.epsilon_decay, clock.progress)
        return falling(*ends, hyper.epsilon_steps, at=clock.env_steps, otherwise=by_share)
