"""One network that models the return distribution of every action: what several agents share.

C51, QR-DQN, DLTV and the agents of section 5.1 differ in their projection and in how they act; how
they learn is the same and written here, for any projection.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.agents import base, images
from winkel.agents.base import Number, Spec
from winkel.agents.descent import Lesson, Rule, descended, differentiated
from winkel.agents.images import Seen, Shared
from winkel.agents.settings import Settings
from winkel.distributions import bootstrap, mean
from winkel.networks import MLP
from winkel.projections import Categorical, Projection
from winkel.types import Atoms, Batch, Clock, Estimates, Transition, Update


class Learner(NamedTuple):
    """What is learned, the fixed prior, and on images the body that both are heads of."""

    params: MLP
    target_params: MLP
    prior: MLP | None
    opt_state: PyTree
    shared: Shared | None = None


def init(
    key: PRNGKeyArray,
    spec: Spec,
    settings: Settings,
    *,
    hidden: tuple[int, ...],
    num_atoms: int,
    prior: bool,
) -> Learner:
    """A fresh network, with a prior network or without; the target network starts as a copy."""
    key_params, key_prior, key_body = (jax.random.fold_in(key, use) for use in range(3))

    def network(key: PRNGKeyArray) -> MLP:
        return images.network(key, spec, settings, hidden, (spec.num_actions, num_atoms))

    params = network(key_params)
    return Learner(
        params=params,
        target_params=params,
        prior=base.tabulated(network(key_prior)) if prior else None,
        opt_state=base.init_adam(params),
        shared=images.init(key_body, spec, settings),
    )


def outputs(params: MLP, prior: MLP | None, obs: Array, prior_scale: Number) -> Float[Array, "A K"]:
    """The network's with the scaled prior's added: before the softmax of a categorical model."""
    theta = params(obs)
    return theta if prior is None else theta + prior_scale * jax.lax.stop_gradient(prior(obs))


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
    later: Float[Array, " F"] | None = None,
    *,
    gamma: Number,
    prior_scale: Number,
    double: bool = True,
    available: Int[Array, ""] | None = None,
) -> Atoms:
    """Law of r + γ Z̃(s', a'), a' greedy by the mean of the online network if double, else of Z̃.

    `later` is s' as the target network sees it, where a target body gives it its features.
    """
    next_obs, prior = transition.next_obs, learner.prior
    seen = next_obs if later is None else later
    successor = predict(projection, learner.target_params, prior, seen, prior_scale)
    judge = (
        predict(projection, learner.params, prior, next_obs, prior_scale) if double else successor
    )
    greedy = jnp.argmax(base.possible(action_values(judge), available))
    chosen = Atoms(locations=successor.locations[greedy], probs=successor.probs[greedy])
    return bootstrap(transition.reward, gamma * transition.discount, chosen)


def lesson(
    projection: Projection,
    learner: Learner,
    seen: Seen,
    weights: Float[Array, " B"],
    *,
    gamma: Number,
    prior_scale: Number,
    double: bool = True,
    available: Int[Array, ""] | None = None,
) -> tuple[Lesson, dict[str, Float[Array, ""]]]:
    """The projection's loss, averaged over the batch, and metrics.

    The metric 'clipped' is there for a categorical model, whose support targets may leave.
    """

    def target_of(transition: Transition, later: Array | None) -> Atoms:
        return target(
            projection,
            learner,
            transition,
            later,
            gamma=gamma,
            prior_scale=prior_scale,
            double=double,
            available=available,
        )

    def loss_of(params: MLP, transition: Transition, obs: Array, goal: Atoms) -> Float[Array, ""]:
        theta = outputs(params, learner.prior, obs, prior_scale)
        return projection.loss(base.taken(theta[None], transition.action)[0], goal)

    transitions = seen.transitions
    goals = jax.vmap(target_of)(transitions, seen.later)

    def loss(params: MLP, obs: Array) -> tuple[Float[Array, ""], Float[Array, " B"]]:
        each = jax.vmap(lambda t, x, goal: loss_of(params, t, x, goal))
        losses = each(transitions, obs, goals)
        return jnp.mean(weights * losses), losses

    learned = differentiated(loss, learner.params, seen)
    metrics = {"loss": learned.total}
    if isinstance(projection, Categorical):
        outside = jax.vmap(lambda goal: base.mass_outside(goal, projection.z_min, projection.z_max))
        metrics["clipped"] = jnp.mean(outside(goals))
    return learned, metrics


def update(
    projection: Projection,
    learner: Learner,
    batch: Batch,
    clock: Clock,
    settings: Settings,
    *,
    learning_rate: Number,
    gamma: Number,
    prior_scale: Number,
    double: bool = True,
    available: Int[Array, ""] | None = None,
) -> tuple[Learner, Update]:
    """One step of Adam on the projection's loss."""
    seen = images.see(learner.shared, batch.transitions, ahead=double)
    learned, metrics = lesson(
        projection,
        learner,
        seen,
        batch.weights,
        gamma=gamma,
        prior_scale=prior_scale,
        double=double,
        available=available,
    )
    rule = Rule.of(settings, learning_rate, len(batch.weights))
    learner = descended(learner, seen, learned, clock, rule)
    return learner, Update(priorities=learned.losses, metrics=metrics)


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
