"""Several value functions of one shape: what several agents share.

Bootstrapped DQN, DQN as an ensemble of one, and the ensemble of IDS differ in how they act; how
they learn is the same and written here, on whole batches.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from winkel.agents import base, images
from winkel.agents.base import Number, Spec
from winkel.agents.descent import Lesson, Rule, descended
from winkel.agents.images import Seen, Shared
from winkel.agents.settings import Settings
from winkel.networks import Ensemble, batched
from winkel.types import Atoms, Batch, Clock, Estimates, Transition, Update


class Learner(NamedTuple):
    """What is learned, the fixed priors, and on images the body that all are heads of."""

    params: Ensemble
    target_params: Ensemble
    prior: Ensemble | None
    opt_state: PyTree
    shared: Shared | None = None


def init(
    key: PRNGKeyArray,
    spec: Spec,
    settings: Settings,
    *,
    count: int,
    hidden: tuple[int, ...],
    prior: bool,
) -> Learner:
    """Independent networks of one value for each action, with a prior network each or without."""
    key_params, key_prior, key_body = (jax.random.fold_in(key, use) for use in range(3))

    def networks(key: PRNGKeyArray) -> Ensemble:
        return images.networks(key, count, spec, settings, hidden, (spec.num_actions, 1))

    params = networks(key_params)
    return Learner(
        params=params,
        target_params=params,
        prior=Ensemble(members=jax.vmap(base.tabulated)(networks(key_prior).members))
        if prior
        else None,
        opt_state=base.init_adam(params),
        shared=images.init(key_body, spec, settings),
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
    learner: Learner,
    transition: Transition,
    *,
    gamma: Number,
    prior_scale: Number,
    double: bool,
    available: Int[Array, ""] | None = None,
) -> Float[Array, " M"]:
    """R + γ Q̃_m(s', a'_m) with the prior in Q̃_m; a'_m is greedy by Q̃_m, or if double by Q_m."""
    next_obs, prior = transition.next_obs, learner.prior
    successor = values(learner.target_params, prior, next_obs, prior_scale)
    judge = values(learner.params, prior, next_obs, prior_scale) if double else successor
    return _bootstrapped(transition, successor, judge, gamma, available)


def _bootstrapped(
    transition: Transition,
    successor: Float[Array, "M *B A"],
    judge: Float[Array, "M *B A"],
    gamma: Number,
    available: Int[Array, ""] | None,
) -> Float[Array, "M *B"]:
    """R + γ Q̃(s', a') with the successor's values Q̃, and a' greedy by the judge's."""
    greedy = jnp.argmax(base.possible(judge, available), axis=-1)
    best = jnp.take_along_axis(successor, greedy[..., None], axis=-1)[..., 0]
    reward, discount = (jnp.asarray(x)[None] for x in (transition.reward, transition.discount))
    return reward + gamma * discount * best


def lesson(
    learner: Learner,
    seen: Seen,
    weights: Float[Array, " B"],
    *,
    masks: Bool[Array, "B M"],
    gamma: Number,
    prior_scale: Number,
    double: bool,
    huber_width: float,
    available: Int[Array, ""] | None = None,
) -> Lesson:
    """The sum of all members' losses, ½ δ² (or Huber's) averaged over a batch.

    Being a sum, it gives every member the gradient that it would have alone.
    """
    transitions, prior = seen.transitions, learner.prior
    later = transitions.next_obs if seen.later is None else seen.later
    successor = _batch_values(learner.target_params, prior, later, prior_scale)
    judge = successor
    if double:
        judge = _batch_values(learner.params, prior, transitions.next_obs, prior_scale)
    goals = _bootstrapped(transitions, successor, judge, gamma, available)
    done = batched.run(learner.params, transitions.obs)
    value = _with_prior(learner.params, done, prior, transitions.obs, prior_scale)
    chosen = transitions.action[None, :, None] == jnp.arange(value.shape[-1])[None, None]
    errors = jnp.sum(jnp.where(chosen, value, 0.0), axis=-1) - goals
    each, slopes = _loss(errors, huber_width)
    losses = jnp.sum(jnp.where(masks.T, each, 0.0), axis=0)
    slopes = jnp.where(masks.T, slopes, 0.0) * (weights / len(weights))[None]
    slopes = jnp.where(chosen, slopes[..., None], 0.0)
    return Lesson(
        total=jnp.mean(weights * losses),
        losses=losses,
        gradients=batched.gradient(learner.params, done, transitions.obs, slopes),
        slopes=None if seen.shared is None else _in_features(learner.params, seen, slopes),
    )


def _in_features(
    params: Ensemble, seen: Seen, slopes: Float[Array, "M B A"]
) -> Float[Array, "B F"]:
    """The gradient in the features of `obs`, from that in the outputs."""
    obs = seen.transitions.obs
    _, pull = jax.vjp(lambda x: batched.outputs(params, batched.run(params, x)), obs)
    return pull(slopes)[0]


def update(
    learner: Learner,
    batch: Batch,
    clock: Clock,
    settings: Settings,
    *,
    masks: Bool[Array, "B M"],
    learning_rate: Number,
    gamma: Number,
    prior_scale: Number,
    double: bool,
    huber_width: float,
    available: Int[Array, ""] | None = None,
) -> tuple[Learner, Update]:
    """One step of Adam on the sum of all members' losses."""
    seen = images.see(learner.shared, batch.transitions, ahead=double)
    learned = lesson(
        learner,
        seen,
        batch.weights,
        masks=masks,
        gamma=gamma,
        prior_scale=prior_scale,
        double=double,
        huber_width=huber_width,
        available=available,
    )
    rule = Rule.of(settings, learning_rate, len(batch.weights))
    learner = descended(learner, seen, learned, clock, rule)
    return learner, Update(priorities=learned.losses, metrics={"loss": learned.total})


def _batch_values(
    params: Ensemble, prior: Ensemble | None, obs: Array, prior_scale: Number
) -> Float[Array, "M B A"]:
    """Q_m(s_b, ·) as in `values`, of a batch."""
    return _with_prior(params, batched.run(params, obs), prior, obs, prior_scale)


def _with_prior(
    params: Ensemble, done: batched.Pass, prior: Ensemble | None, obs: Array, prior_scale: Number
) -> Float[Array, "M B A"]:
    """f_m(s_b) + scale · p_m(s_b), where the first has been computed."""
    outputs = batched.outputs(params, done)
    if prior is None:
        return outputs
    return outputs + prior_scale * batched.outputs(prior, batched.run(prior, obs))


def _loss(errors: Float[Array, "M B"], huber_width: float) -> tuple[Array, Array]:
    """½ δ², or Huber's loss of the given width, and its derivative in δ."""
    if not huber_width:
        return 0.5 * errors**2, errors
    clipped = jnp.clip(errors, -huber_width, huber_width)
    return optax.losses.huber_loss(errors, delta=huber_width), clipped


def estimates(value: Float[Array, "M A"]) -> Estimates:
    """What an ensemble of values says: point masses, their mean and standard deviation."""
    mean = jnp.mean(value, axis=0)
    return Estimates(
        value=mean,
        members=Atoms(locations=value[..., None], probs=jnp.ones_like(value)[..., None]),
        disagreement=jnp.std(value, axis=0),
        bonus=jnp.full_like(mean, jnp.nan),
    )
