"""C51: a categorical model of the return distribution (Bellemare, Dabney and Munos 2017).

Learned by the KL divergence from the projected target, eq. 12 of the paper; acts ε-greedily.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from winkel.agents import base, images, single
from winkel.agents.base import Number, Spec
from winkel.agents.settings import Settings
from winkel.agents.single import Learner
from winkel.exploration import epsilon_greedy, falling, linear_decay
from winkel.projections import Categorical
from winkel.types import Atoms, Batch, Clock, Decision, Estimates, Update


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """What shapes the program. Defaults: as the categorical model of the paper's PE-DQN."""

    double: bool = True
    """The online network chooses the action that the target network evaluates."""
    hidden: tuple[int, ...] = (512,)
    """Hidden layers of every network."""
    num_atoms: int = 101
    """K."""

    def __post_init__(self) -> None:
        base.check_learning(self)
        Categorical.spanning(self.num_atoms, 0.0, 1.0)


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
    z_min: Number = base.BY_ENVIRONMENT
    z_max: Number = base.BY_ENVIRONMENT
    """Support of the values."""


@dataclass(frozen=True)
class C51:
    """A categorical model, acted on ε-greedily."""

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
        value = base.possible(single.action_values(self._predict(learner, obs, hyper)), available)
        action = epsilon_greedy(key, value, self._epsilon(clock, hyper), available)
        return Decision(action=action), actor

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on the KL divergence of eq. 12."""
        learner, update = single.update(
            self._projection(hyper),
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
        return single.estimates(self._predict(learner, obs, hyper))

    def member_names(self) -> tuple[str, ...]:
        """The projection."""
        return ("categorical",)

    def _projection(self, hyper: Hyper) -> Categorical:
        z_min, z_max = jnp.asarray(hyper.z_min), jnp.asarray(hyper.z_max)
        return Categorical(num_atoms=self.config.num_atoms, z_min=z_min, z_max=z_max)

    def _predict(self, learner: Learner, obs: Array, hyper: Hyper) -> Atoms:
        seen = images.features(learner.shared, obs)
        return single.predict(self._projection(hyper), learner.params, None, seen, 0.0)

    def _epsilon(self, clock: Clock, hyper: Hyper) -> Float[Array, ""]:
        ends = hyper.epsilon, hyper.epsilon_final
        by_share = linear_decay(*ends, hyper.epsilon_decay, clock.progress)
        return falling(*ends, hyper.epsilon_steps, at=clock.env_steps, otherwise=by_share)
