"""One model of return distributions: what C51, QR-DQN, DLTV, IDS and `statistic` share."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from winkel.agents import learning
from winkel.agents.base import Agent, Number, Spec, ValueNetworks
from winkel.agents.learning import Gradients, Inputs, Learner
from winkel.distributions import bootstrap, mean
from winkel.networks import MLP
from winkel.networks.mlp import add_prior, select_action
from winkel.projections import Categorical, Projection
from winkel.types import Atoms, Batch, Clock, Estimates, Transition, Update


@dataclass(frozen=True)
class SingleModel(Agent):
    """An agent that learns one model, with the loss of its projection.

    Its `Config` must have `hidden` and `num_atoms`, and may have `prior` and `double`. Without them
    there is no prior, and the online network chooses the action of the target.
    """

    @property
    @abstractmethod
    def model(self) -> str:
        """Name of the projection."""

    def projection(self, hyper: Any) -> Projection:
        """The model's representation, and its loss; returns of the environment are its support."""
        z_min, z_max = getattr(hyper, "z_min", 0.0), getattr(hyper, "z_max", 1.0)
        return learning.make_projection(self.model, self.config, z_min, z_max)

    def member_names(self) -> tuple[str, ...]:
        return (self.model,)

    def init(self, key: PRNGKeyArray, hyper: Any) -> Learner:
        """One network; the target network starts as a copy."""
        prior = getattr(self.config, "prior", False)
        return learning.init_learner(key, self, self.config.num_atoms, prior=prior)

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Any, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on the projection's loss; the target's action is greedy by the mean."""
        double = getattr(self.config, "double", True)
        inputs = learning.encode(learner.shared, batch, online_next=double)
        gradients, metrics = projected_gradient(
            self.projection(hyper), learner, inputs, self.spec, gamma=hyper.gamma,
            prior_scale=getattr(hyper, "prior_scale", 0.0), double=double,
        )  # fmt: skip
        learner = learning.optimizer_step(self, learner, inputs, gradients, clock, hyper)
        metrics.update(self.schedules(clock, hyper))
        return learner, Update(priorities=gradients.losses, metrics=metrics)

    def estimates(self, learner: Learner, obs: Array, hyper: Any) -> Estimates:
        """The one model, which has neither disagreement nor bonus."""
        scale = getattr(hyper, "prior_scale", 0.0)
        distributions = predict(self.projection(hyper), learner, obs, scale)
        value = jax.vmap(mean)(distributions)
        nothing = jnp.full_like(value, jnp.nan)
        return Estimates(
            value=value,
            members=jax.tree.map(lambda x: x[None], distributions),
            disagreement=nothing,
            bonus=nothing,
        )

    def value_networks(self, learner: Learner, hyper: Any) -> ValueNetworks:
        network, prior = jax.tree.map(lambda x: x[None], (learner.params, learner.prior))
        scale = getattr(hyper, "prior_scale", 0.0)
        return ValueNetworks(network, (self.projection(hyper),), prior, scale)


def predict(
    projection: Projection, learner: Learner, obs: Array, prior_scale: Number = 0.0
) -> Atoms:
    """The return distribution of every action by the online network, [A, K]."""
    obs = learning.features(learner.shared, obs)
    theta = add_prior(learner.params(obs), learner.prior, obs, prior_scale)
    return jax.vmap(projection.decode)(theta)


def projected_gradient(
    projection: Projection,
    learner: Learner,
    inputs: Inputs,
    spec: Spec,
    *,
    gamma: Number,
    prior_scale: Number = 0.0,
    double: bool = True,
) -> tuple[Gradients, dict[str, Float[Array, ""]]]:
    """Differentiate the projection's loss, averaged over a batch; return metrics as well.

    The target is the distribution of r + γ Z, with Z of the target network at the action whose
    mean is highest in s': by the online network if `double`, else by the target network. The
    metric 'clipped' is the mass of targets outside of a categorical support.
    """

    def outputs(network: MLP, obs: Array) -> Float[Array, "A K"]:
        return add_prior(network(obs), learner.prior, obs, prior_scale)

    def target(transition: Transition, target_next_obs: Array) -> Atoms:
        decode = jax.vmap(projection.decode)
        successor = decode(outputs(learner.target_params, target_next_obs))
        chooser = decode(outputs(learner.params, transition.next_obs)) if double else successor
        greedy = jnp.argmax(spec.mask_unavailable(jax.vmap(mean)(chooser)))
        discount = gamma * transition.discount
        return bootstrap(transition.reward, discount, learning.at_action(successor, greedy))

    def loss(params: MLP, transition: Transition, target: Atoms) -> Float[Array, ""]:
        theta = select_action(outputs(params, transition.obs), transition.action)
        return projection.loss(theta, target)

    targets = jax.vmap(target)(inputs.transitions, inputs.target_next_obs)
    gradients = learning.loss_and_gradient(loss, learner.params, inputs, targets)
    metrics = {"loss": gradients.loss}
    if isinstance(projection, Categorical):
        z_min, z_max = projection.z_min, projection.z_max
        clipped = jax.vmap(lambda target: learning.mass_outside(target, z_min, z_max))(targets)
        metrics["clipped"] = jnp.mean(clipped)
    return gradients, metrics
