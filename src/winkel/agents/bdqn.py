"""BDQN+P: bootstrapped DQN with randomized prior functions.

Osband, Aslanides and Cassirer (2018); masks and one member for a whole episode are from Osband et
al. (2016). Each member learns a value function from its own target network, with its own fixed
random prior; a member that is drawn at the start of an episode acts greedily until its end.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from winkel.agents import base, learning, models
from winkel.agents.learning import Learner
from winkel.exploration import epsilon_greedy, epsilon_schedule, mask_unavailable
from winkel.types import Batch, Clock, Decision, Estimates, Update


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: the paper's for bsuite (table in App. B)."""

    num_members: base.Count = 20
    """M."""
    double: bool = False
    """A member's online network chooses the action that its target network evaluates."""
    huber_width: base.HuberWidth = 0.0
    hidden: base.Hidden = (64, 64)


class Hyper(NamedTuple):
    """Hyperparameters, traced."""

    learning_rate: base.LearningRate = 1e-3
    gamma: base.Discount = 0.99
    prior_scale: base.PriorScale = 5.0
    mask_probability: base.Probability = 1.0
    """Probability that a member learns from a transition; 1 in bsuite."""
    epsilon: base.Epsilon = 0.0
    epsilon_final: base.Epsilon = 0.0
    epsilon_steps: base.EpsilonSteps = 0.0


@dataclass(frozen=True)
class BDQN:
    """An ensemble of value functions, one of which acts for an episode."""

    config: Config
    spec: base.Spec

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """Independent networks with a prior each; the target networks start as copies."""
        members, hidden = self.config.num_members, self.config.hidden
        return learning.init_learner(
            key, self.spec, self.config, hidden=hidden, columns=1, members=members, prior=True
        )

    def init_actor(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """The member that acts."""
        return jax.random.randint(key, (), 0, self.config.num_members)

    def act(
        self,
        learner: Learner,
        actor: Int[Array, ""],
        obs: Array,
        first: Bool[Array, ""],
        clock: Clock,
        hyper: Hyper,
        key: PRNGKeyArray,
    ) -> tuple[Decision, Int[Array, ""]]:
        """Greedy by the active member; draw a mask of the members that learn from this step."""
        key_member, key_explore, key_mask = (jax.random.fold_in(key, use) for use in range(3))
        active = jnp.where(first, self.init_actor(key_member), actor)
        params, prior = jax.tree.map(lambda x: x[active][None], (learner.params, learner.prior))
        obs, available = learning.features(learner.shared, obs), self.spec.available
        value = mask_unavailable(models.values(params, prior, obs, hyper.prior_scale)[0], available)
        decision = Decision(
            action=epsilon_greedy(key_explore, value, epsilon_schedule(clock, hyper), available),
            extras=models.draw_mask(key_mask, self.config.num_members, hyper.mask_probability),
        )
        return decision, active

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step of every member on the transitions of its mask."""
        config, masks, rate = self.config, batch.transitions.extras, hyper.learning_rate
        inputs = learning.encode(learner.shared, batch.transitions, online_next=config.double)
        gradients = models.td_gradient(
            learner, inputs, batch.weights, masks, gamma=hyper.gamma,
            prior_scale=hyper.prior_scale, double=config.double, huber_width=config.huber_width,
            available=self.spec.available,
        )  # fmt: skip
        learner = learning.optimizer_step(learner, inputs, gradients, clock, config, rate)
        return learner, Update(priorities=gradients.losses, metrics={"loss": gradients.loss})

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Members are point masses; their disagreement is the standard deviation."""
        obs = learning.features(learner.shared, obs)
        values = models.values(learner.params, learner.prior, obs, hyper.prior_scale)
        return models.estimates_of_values(values)

    def member_names(self) -> tuple[str, ...]:
        """Their numbers."""
        return tuple(f"member_{i}" for i in range(self.config.num_members))
