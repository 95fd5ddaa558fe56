"""One network that models the return distribution of every action: what several agents share.

C51, QR-DQN, DLTV and the agents of section 5.1 differ in their projection and in how they act; how
they learn is the same and written here, for any projection.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.agents import base
from winkel.agents.base import Number, Spec
from winkel.distributions import bootstrap, mean
from winkel.networks import MLP
from winkel.projections import Categorical, Projection
from winkel.types import Atoms, Batch, Clock, Estimates, Transition, Update


class Learner(NamedTuple):
    """What is learned, and the fixed prior."""

    params: MLP
    target_params: MLP
    prior: MLP | None
    opt_state: PyTree


def init(
    key: PRNGKeyArray, spec: Spec, *, hidden: tuple[int, ...], num_atoms: int, prior: bool
) -> Learner:
    """A fresh network, with a prior network or without; the target network starts as a copy."""
    key_params, key_prior = (jax.random.fold_in(key, use) for use in range(2))

    def network(key: PRNGKeyArray) -> MLP:
        return MLP.init(
            key,
            inputs=spec.inputs,
            one_hot=spec.one_hot,
            hidden=hidden,
            outputs=(spec.num_actions, num_atoms),
            fan_in=spec.fan_in,
            triangle=spec.triangle,
        )

    params = network(key_params)
    return Learner(
        params=params,
        target_params=params,
        prior=base.tabulated(network(key_prior)) if prior else None,
        opt_state=base.init_adam(params),
    )


def outputs(params: MLP, prior: MLP | None, obs: Array, prior_scale: Number) -> Float[Array, "A K"]:
    """The network's with the scaled prior's added: before the softmax of a categorical model."""
    theta = params(obs)
    return theta if prior is None else theta + prior_scale * prior(obs)


def predict(
    projection: Projection, params: MLP, prior: MLP | None, obs: Array, prior_scale: Number
) -> Atoms:
    """The return distribution of every action, [A, K]."""
    return jax.vmap(projection.decode)(outputs(params, prior, obs, prior_scale))


def action_values(predicted: Atoms) -> Float[Array, " A"]:
    """Means."""
    return jax.vmap(mean)(predicted)


def target(
    projection: Projection,
    learner: Learner,
    transition: Transition,
    *,
    gamma: Number,
    prior_scale: Number,
    double: bool = True,
    available: Int[Array, ""] | None = None,
) -> Atoms:
    """Law of r + γ Z̃(s', a'), a' greedy by the mean of the online network if double, else of Z̃."""
    next_obs, prior = transition.next_obs, learner.prior
    successor = predict(projection, learner.target_params, prior, next_obs, prior_scale)
    judge = (
        predict(projection, learner.params, prior, next_obs, prior_scale) if double else successor
    )
    greedy = jnp.argmax(base.possible(action_values(judge), available))
    chosen = Atoms(locations=successor.locations[greedy], probs=successor.probs[greedy])
    return bootstrap(transition.reward, gamma * transition.discount, chosen)


def update(
    projection: Projection,
    learner: Learner,
    batch: Batch,
    clock: Clock,
    *,
    learning_rate: Number,
    gamma: Number,
    prior_scale: Number,
    target_period: int,
    double: bool = True,
    available: Int[Array, ""] | None = None,
) -> tuple[Learner, Update]:
    """One step of Adam on the projection's loss, averaged over the batch.

    The metric 'clipped' is there for a categorical model, whose support targets may leave.
    """

    def target_of(transition: Transition) -> Atoms:
        return target(
            projection,
            learner,
            transition,
            gamma=gamma,
            prior_scale=prior_scale,
            double=double,
            available=available,
        )

    def loss_of(params: MLP, transition: Transition, goal: Atoms) -> Float[Array, ""]:
        theta = outputs(params, learner.prior, transition.obs, prior_scale)
        return projection.loss(base.taken(theta[None], transition.action)[0], goal)

    goals = jax.vmap(target_of)(batch.transitions)

    def loss(params: MLP) -> tuple[Float[Array, ""], Float[Array, " B"]]:
        losses = jax.vmap(lambda t, goal: loss_of(params, t, goal))(batch.transitions, goals)
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
    metrics = {"loss": total}
    if isinstance(projection, Categorical):
        outside = jax.vmap(lambda goal: base.mass_outside(goal, projection.z_min, projection.z_max))
        metrics["clipped"] = jnp.mean(outside(goals))
    return learner, Update(priorities=losses, metrics=metrics)


def estimates(predicted: Atoms, bonus: Float[Array, " A"] | None = None) -> Estimates:
    """What a single model says: it has no one to disagree with."""
    value = action_values(predicted)
    nothing = jnp.full_like(value, jnp.nan)
    return Estimates(
        value=value,
        members=jax.tree.map(lambda x: x[None], predicted),
        disagreement=nothing,
        bonus=nothing if bonus is None else bonus,
    )
