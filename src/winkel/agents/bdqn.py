"""BDQN+P: bootstrapped DQN with randomized prior functions.

Osband, Aslanides and Cassirer (2018); masks and one member for a whole episode are from Osband et
al. (2016). Each member m learns a value function Q_m, with its own target network and its own fixed
random prior. At the start of an episode one member is drawn, which acts greedily until its end.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from winkel.agents import base, learning
from winkel.agents.base import Number, PerAction
from winkel.agents.learning import Gradients, Inputs, Learner
from winkel.networks import Ensemble, batched
from winkel.networks.mlp import add_prior
from winkel.types import Atoms, Batch, Clock, Decision, Estimates, Update


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: the paper's for bsuite (table in App. B)."""

    num_members: base.Count = 20
    """Members M of the ensemble."""
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
class BDQN(base.Agent):
    """An ensemble of value functions, one of which acts for an episode."""

    config: Config
    config_type = Config
    hyper_type = Hyper

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """Independent networks with a prior each; the target networks start as copies."""
        members = self.config.num_members
        return learning.init_learner(key, self, columns=1, members=members, prior=True)

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
        """Act ε-greedily by the active member; draw which members learn from this step."""
        key_member, key_explore, key_mask = (jax.random.fold_in(key, use) for use in range(3))
        active = jnp.where(first, self.init_actor(key_member), actor)
        params, prior = jax.tree.map(lambda x: x[active][None], (learner.params, learner.prior))
        obs = learning.features(learner.shared, obs)
        value = values(params, prior, obs, hyper.prior_scale)[0]
        epsilon = base.epsilon_schedule(clock, hyper)
        action = base.epsilon_greedy(key_explore, value, epsilon, self.spec)
        mask = jax.random.bernoulli(key_mask, hyper.mask_probability, (self.config.num_members,))
        return Decision(action=action, extras=mask), active

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step of every member on the transitions of its mask."""
        inputs = learning.encode(learner.shared, batch, online_next=self.config.double)
        gradients = td_gradient(self, learner, inputs, batch.transitions.extras, hyper)
        learner = learning.optimizer_step(self, learner, inputs, gradients, clock, hyper)
        return learner, Update(priorities=gradients.losses, metrics={"loss": gradients.loss})

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Members are point masses; their disagreement is the standard deviation."""
        obs = learning.features(learner.shared, obs)
        value = values(learner.params, learner.prior, obs, hyper.prior_scale)
        return point_masses(value, jnp.mean(value, axis=0), jnp.std(value, axis=0))

    def value_networks(self, learner: Learner, hyper: Hyper) -> base.ValueNetworks:
        projections = (None,) * self.config.num_members
        return base.ValueNetworks(learner.params, projections, learner.prior, hyper.prior_scale)

    def member_names(self) -> tuple[str, ...]:
        return tuple(f"member_{i}" for i in range(self.config.num_members))


# Ensembles of value functions, as DQN and IDS have them too


def values(
    params: Ensemble, prior: Ensemble | None, obs: Array, prior_scale: Number
) -> Float[Array, "M A"]:
    """Q_m(s, ·) = f_m(s) + scale · p_m(s), with p_m the prior of member m."""
    return add_prior(params(obs), prior, obs, prior_scale)[..., 0]


def point_masses(
    members: Float[Array, "M A"], value: PerAction, disagreement: PerAction
) -> Estimates:
    """Estimates of members that predict a number for each action; there is no bonus."""
    atoms = Atoms(locations=members[..., None], probs=jnp.ones_like(members)[..., None])
    return Estimates(value, atoms, disagreement=disagreement, bonus=jnp.full_like(value, jnp.nan))


def td_gradient(
    agent: base.Agent, learner: Learner, inputs: Inputs, masks: Bool[Array, "B M"], hyper: Any
) -> Gradients:
    """Differentiate the sum of all members' TD losses, ½ δ² or Huber's, averaged over a batch.

    The target of member m is r + γ Q̃_m(s', a'_m), with Q̃_m its target network and a'_m greedy by
    its online network if the agent is `double`, else by Q̃_m. A member learns only from the
    transitions of its mask. As a sum, the loss gives every member the gradient it would have alone.
    The gradient is written out, because `networks.batched` is faster for ensembles than JAX's.
    """
    params, prior = learner.params, learner.prior
    transitions, weights = inputs.transitions, inputs.weights
    double, huber_width = agent.config.double, agent.config.huber_width

    def forward(params: Ensemble, obs: Array) -> tuple[Float[Array, "M B A"], batched.Residuals]:
        outputs, residuals = batched.forward(params, obs)
        if prior is not None:
            outputs = outputs + hyper.prior_scale * batched.forward(prior, obs)[0]
        return outputs, residuals

    successor, _ = forward(learner.target_params, inputs.target_next_obs)
    chooser = forward(params, transitions.next_obs)[0] if double else successor
    greedy = jnp.argmax(agent.spec.mask_unavailable(chooser), axis=-1)
    successor_value = jnp.take_along_axis(successor, greedy[..., None], axis=-1)[..., 0]
    reward, discount = (jnp.asarray(x)[None] for x in (transitions.reward, transitions.discount))
    targets = reward + hyper.gamma * discount * successor_value

    value, residuals = forward(params, transitions.obs)
    chosen = transitions.action[None, :, None] == jnp.arange(value.shape[-1])[None, None]
    errors = jnp.sum(jnp.where(chosen, value, 0.0), axis=-1) - targets
    if huber_width:
        member_losses = optax.losses.huber_loss(errors, delta=huber_width)
        loss_slope = jnp.clip(errors, -huber_width, huber_width)
    else:
        member_losses, loss_slope = 0.5 * errors**2, errors
    losses = jnp.sum(jnp.where(masks.T, member_losses, 0.0), axis=0)
    loss_slope = jnp.where(masks.T, loss_slope, 0.0) * (weights / len(weights))[None]
    gradient = jnp.where(chosen, loss_slope[..., None], 0.0)  # in the outputs, [M, B, A]
    in_features = None
    if inputs.shared is not None:  # a second forward pass: `backward` has no gradient in features
        _, pull, _ = jax.vjp(lambda x: batched.forward(params, x), transitions.obs, has_aux=True)
        (in_features,) = pull(gradient)
    return Gradients(
        loss=jnp.mean(weights * losses),
        losses=losses,
        params=batched.backward(params, residuals, transitions.obs, gradient),
        features=in_features,
    )
