"""BDQN+P: bootstrapped DQN with randomized prior functions.

Osband, Aslanides and Cassirer (2018); masks and one member for a whole episode are from Osband et
al. (2016). Each member learns a value function from its own target network, beneath its own fixed
random prior; a member that is drawn at the start of an episode acts greedily until its end.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from winkel.agents import base, images
from winkel.agents.base import Number, Spec
from winkel.agents.ensembles import Learner, draw_mask, estimates, init, targets, update, values
from winkel.agents.settings import Settings
from winkel.errors import InputError, require_integer
from winkel.exploration import epsilon_greedy
from winkel.types import Batch, Clock, Decision, Estimates, Update

__all__ = ["BDQN", "Config", "Hyper", "Learner", "targets"]


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """What shapes the program. Defaults: the paper's settings for bsuite (table in App. B)."""

    num_members: int = 20
    """M, any number from 1."""
    double: bool = False
    """A member's online network chooses the action that its target network evaluates."""
    huber_width: float = 0.0
    """Width of the Huber loss of the TD errors; 0 for the squared loss."""
    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of every network."""

    def __post_init__(self) -> None:
        base.check_learning(self)
        require_integer("num_members", self.num_members, at_least=1)
        if not 0.0 <= self.huber_width < float("inf"):
            raise InputError(f"need a finite huber_width >= 0, got {self.huber_width}")


class Hyper(NamedTuple):
    """What one tunes."""

    learning_rate: Number = 1e-3
    gamma: Number = 0.99
    prior_scale: Number = 5.0
    mask_probability: Number = 1.0
    """Chance of each member to learn from a transition; all learn from all in bsuite."""
    epsilon: Number = 0.0
    """Chance of an action that no member chose."""
    epsilon_final: Number = 0.0
    epsilon_steps: Number = 0.0
    """Steps over which ε falls to its final value; with 0 it stays what it is."""


@dataclass(frozen=True)
class BDQN:
    """An ensemble of value functions, one of which acts for an episode."""

    config: Config
    spec: Spec

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """Independent networks; the target networks start as copies."""
        config = self.config
        return init(
            key, self.spec, config, count=config.num_members, hidden=config.hidden, prior=True
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
        """Greedy by the active member, and a draw of who will learn from this."""
        key_member, key_explore, key_mask = (jax.random.fold_in(key, use) for use in range(3))
        active = jnp.where(first, self.init_actor(key_member), actor)
        params, prior = jax.tree.map(lambda x: x[active][None], (learner.params, learner.prior))
        available, seen = self.spec.available, images.features(learner.shared, obs)
        value = base.possible(values(params, prior, seen, hyper.prior_scale)[0], available)
        decision = Decision(
            action=epsilon_greedy(key_explore, value, base.epsilon(clock, hyper), available),
            extras=draw_mask(key_mask, self.config.num_members, hyper.mask_probability),
        )
        return decision, active

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step of every member on the transitions that its mask shows it."""
        return update(
            learner,
            batch,
            clock,
            self.config,
            masks=batch.transitions.extras,
            learning_rate=hyper.learning_rate,
            gamma=hyper.gamma,
            prior_scale=hyper.prior_scale,
            double=self.config.double,
            huber_width=self.config.huber_width,
            available=self.spec.available,
        )

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Members are point masses, apart by their standard deviation."""
        seen = images.features(learner.shared, obs)
        return estimates(values(learner.params, learner.prior, seen, hyper.prior_scale))

    def member_names(self) -> tuple[str, ...]:
        """Their numbers."""
        return tuple(f"member_{i}" for i in range(self.config.num_members))
