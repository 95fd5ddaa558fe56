"""BDQN+P: bootstrapped DQN with randomized prior functions.

Osband, Aslanides and Cassirer (2018); masks and one member for a whole episode are from Osband et
al. (2016). Each member learns a value function from its own target network, beneath its own fixed
random prior; a member that is drawn at the start of an episode acts greedily until its end.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from winkel.agents import base
from winkel.agents.base import Number, Spec
from winkel.errors import InputError, require_integer
from winkel.exploration import epsilon_greedy
from winkel.networks import Ensemble
from winkel.types import Atoms, Batch, Clock, Decision, Estimates, Transition, Update


@dataclass(frozen=True, kw_only=True)
class Config:
    """What shapes the program. Defaults: the paper's settings for bsuite (table in App. B)."""

    num_members: int = 20
    """M, any number from 1."""
    double: bool = False
    """A member's online network chooses the action that its target network evaluates."""
    huber_width: float = 0.0
    """Width of the Huber loss of the TD errors; 0 for the squared loss."""
    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of every network."""
    batch_size: int = 128
    """Transitions of an update; there is one update for each step."""
    capacity: int = 10_000
    """Transitions that replay holds."""
    burn_in: int = 128
    """Steps before the first update."""
    target_period: int = 4
    """Updates between copies into the target networks."""

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


class Learner(NamedTuple):
    """What is learned, and the fixed priors."""

    params: Ensemble
    target_params: Ensemble
    prior: Ensemble | None
    opt_state: PyTree


@dataclass(frozen=True)
class BDQN:
    """An ensemble of value functions, one of which acts for an episode."""

    config: Config
    spec: Spec

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """Independent networks; the target networks start as copies."""
        return init(
            key, self.spec, count=self.config.num_members, hidden=self.config.hidden, prior=True
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
        value = values(params, prior, obs, hyper.prior_scale)[0]
        decision = Decision(
            action=epsilon_greedy(key_explore, value, hyper.epsilon),
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
            masks=batch.transitions.extras,
            learning_rate=hyper.learning_rate,
            gamma=hyper.gamma,
            prior_scale=hyper.prior_scale,
            double=self.config.double,
            huber_width=self.config.huber_width,
            target_period=self.config.target_period,
        )

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Members are point masses, apart by their standard deviation."""
        return estimates(values(learner.params, learner.prior, obs, hyper.prior_scale))

    def member_names(self) -> tuple[str, ...]:
        """Their numbers."""
        return tuple(f"member_{i}" for i in range(self.config.num_members))


def init(
    key: PRNGKeyArray, spec: Spec, *, count: int, hidden: tuple[int, ...], prior: bool
) -> Learner:
    """Independent networks of one value for each action, with a prior network each or without."""
    key_params, key_prior = (jax.random.fold_in(key, use) for use in range(2))

    def networks(key: PRNGKeyArray) -> Ensemble:
        return Ensemble.init(
            key,
            count,
            inputs=spec.inputs,
            one_hot=spec.one_hot,
            hidden=hidden,
            outputs=(spec.num_actions, 1),
            fan_in=spec.fan_in,
        )

    params = networks(key_params)
    return Learner(
        params=params,
        target_params=params,
        prior=Ensemble(members=jax.vmap(base.tabulated)(networks(key_prior).members))
        if prior
        else None,
        opt_state=base.init_adam(params),
    )


def draw_mask(key: PRNGKeyArray, count: int, probability: Number) -> Bool[Array, " M"]:
    """Which members will learn from a transition, each by its own draw."""
    return jax.random.bernoulli(key, probability, (count,))


def values(
    params: Ensemble, prior: Ensemble | None, obs: Array, prior_scale: Number
) -> Float[Array, "M A"]:
    """Q_m(s, ·) = f_m(s) + scale · p_m(s), p_m the member's prior."""
    outputs = params(obs)[..., 0]
    return outputs if prior is None else outputs + prior_scale * prior(obs)[..., 0]


def targets(
    learner: Learner, transition: Transition, *, gamma: Number, prior_scale: Number, double: bool
) -> Float[Array, " M"]:
    """R + γ Q̃_m(s', a'_m) with the prior in Q̃_m; a'_m is greedy by Q̃_m, or if double by Q_m."""
    next_obs, prior = transition.next_obs, learner.prior
    successor = values(learner.target_params, prior, next_obs, prior_scale)
    if double:
        greedy = jnp.argmax(values(learner.params, prior, next_obs, prior_scale), axis=1)
        best = jnp.take_along_axis(successor, greedy[:, None], axis=1)[:, 0]
    else:
        best = jnp.max(successor, axis=1)
    return transition.reward + gamma * transition.discount * best


def update(
    learner: Learner,
    batch: Batch,
    clock: Clock,
    *,
    masks: Bool[Array, "B M"],
    learning_rate: Number,
    gamma: Number,
    prior_scale: Number,
    double: bool,
    huber_width: float,
    target_period: int,
) -> tuple[Learner, Update]:
    """One step of Adam on the sum of all members' losses, ½ δ² (or Huber's) averaged over a batch.

    Being a sum, it gives every member the gradient that it would have alone.
    """

    def targets_of(transition: Transition) -> Float[Array, " M"]:
        return targets(learner, transition, gamma=gamma, prior_scale=prior_scale, double=double)

    def loss_of(
        params: Ensemble, transition: Transition, target: Array, mask: Array
    ) -> Float[Array, ""]:
        value = values(params, learner.prior, transition.obs, prior_scale)
        errors = base.taken(value[..., None], transition.action)[:, 0] - target
        if huber_width:
            losses = optax.losses.huber_loss(errors, delta=huber_width)
        else:
            losses = 0.5 * errors**2
        return jnp.sum(jnp.where(mask, losses, 0.0))

    goals = jax.vmap(targets_of)(batch.transitions)

    def loss(params: Ensemble) -> tuple[Float[Array, ""], Float[Array, " B"]]:
        losses = jax.vmap(lambda t, y, mask: loss_of(params, t, y, mask))(
            batch.transitions, goals, masks
        )
        return jnp.mean(batch.weights * losses), losses

    (total, losses), gradients = jax.value_and_grad(loss, has_aux=True)(learner.params)
    params, opt_state = base.adam(
        learner.params,
        gradients,
        learner.opt_state,
        learning_rate,
        epsilon=1e-3 / len(batch.weights),
    )
    learner = Learner(
        params=params,
        target_params=base.copied_every(target_period, clock, params, learner.target_params),
        prior=learner.prior,
        opt_state=opt_state,
    )
    return learner, Update(priorities=losses, metrics={"loss": total})


def estimates(value: Float[Array, "M A"]) -> Estimates:
    """What an ensemble of values says: point masses, their mean and standard deviation."""
    mean = jnp.mean(value, axis=0)
    return Estimates(
        value=mean,
        members=Atoms(locations=value[..., None], probs=jnp.ones_like(value)[..., None]),
        disagreement=jnp.std(value, axis=0),
        bonus=jnp.full_like(mean, jnp.nan),
    )
