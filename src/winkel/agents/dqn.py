"""DQN: one value for each action (Mnih et al. 2015), by default double (van Hasselt et al. 2016).

It is bootstrapped DQN's ensemble with a single member and no prior, acted on ε-greedily.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from winkel.agents import base, ensembles, images
from winkel.agents.base import Number, Spec
from winkel.agents.ensembles import Learner
from winkel.agents.settings import Settings
from winkel.errors import InputError
from winkel.exploration import epsilon_greedy, falling, linear_decay
from winkel.types import Batch, Clock, Decision, Estimates, Update


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """What shapes the program. Defaults: as a member of bootstrapped DQN, of bsuite's DQN too."""

    double: bool = True
    """The online network chooses the action that the target network evaluates."""
    huber_width: float = 0.0
    """Width of the Huber loss of the TD errors; 0 for the squared loss."""
    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of every network."""

    def __post_init__(self) -> None:
        base.check_learning(self)
        if not 0.0 <= self.huber_width < float("inf"):
            raise InputError(f"need a finite huber_width >= 0, got {self.huber_width}")


class Hyper(NamedTuple):
    """What one tunes."""

    learning_rate: Number = 1e-3
    gamma: Number = 0.99
    epsilon: Number = 1.0
    epsilon_final: Number = 0.05
    epsilon_decay: Number = 0.1
    """Share of the horizon over which ε falls linearly."""
    epsilon_steps: Number = 0.0
    """Steps over which it does, in place of that share; 0 for the share."""


@dataclass(frozen=True)
class DQN:
    """A value function, acted on ε-greedily."""

    config: Config
    spec: Spec

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """A fresh network without a prior."""
        config = self.config
        return ensembles.init(key, self.spec, config, count=1, hidden=config.hidden, prior=False)

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
        """The greedy action, or with probability ε any."""
        available = self.spec.available
        seen = images.features(learner.shared, obs)
        value = base.possible(ensembles.values(learner.params, None, seen, 0.0)[0], available)
        action = epsilon_greedy(key, value, self._epsilon(clock, hyper), available)
        return Decision(action=action), actor

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on the squared TD error."""
        learner, update = ensembles.update(
            learner,
            batch,
            clock,
            self.config,
            masks=jnp.ones((len(batch.weights), 1), bool),
            learning_rate=hyper.learning_rate,
            gamma=hyper.gamma,
            prior_scale=0.0,
            double=self.config.double,
            huber_width=self.config.huber_width,
            available=self.spec.available,
        )
        metrics = {**update.metrics, "epsilon": self._epsilon(clock, hyper)}
        return learner, update._replace(metrics=metrics)

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """A point mass for each action, which has no one to disagree with."""
        seen = images.features(learner.shared, obs)
        told = ensembles.estimates(ensembles.values(learner.params, None, seen, 0.0))
        return told._replace(disagreement=jnp.full_like(told.value, jnp.nan))

    def member_names(self) -> tuple[str, ...]:
        """The one network."""
        return ("dqn",)

    def _epsilon(self, clock: Clock, hyper: Hyper) -> Float[Array, ""]:
        ends = hyper.epsilon, hyper.epsilon_final
        by_share = linear_decay(*ends, hyper.epsilon_decay, clock.progress)
        return falling(*ends, hyper.epsilon_steps, at=clock.env_steps, otherwise=by_share)
