"""From a loss to a gradient step: learners, features of images, gradients, Adam, targets."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from winkel.agents.base import Agent, Number
from winkel.networks import MLP, Body
from winkel.networks.batched import RowGradient
from winkel.networks.impala import num_features
from winkel.projections import Projection, find_projection
from winkel.types import Atoms, Batch, Clock, Image, Planes, Transition


class Learner(NamedTuple):
    """Networks with their targets and Adam's state: of an agent, or of a body that others share."""

    params: Any
    target_params: Any
    prior: Any
    """Fixed random networks, None without them. Their scaled outputs are added to those of online
    and target networks (Osband et al. 2018); RND's is what its predictor learns. On images their
    inputs change, as features of the body do."""
    opt_state: PyTree
    shared: "Learner | None" = None
    """On images and planes, the body whose features are the input of all networks; None else."""
    intrinsic: Any = None
    """`RunningMoments` or the `Floor` of the intrinsic reward, if it has any; None else."""


# Networks


def init_learner(
    key: PRNGKeyArray,
    agent: Agent,
    columns: int,
    *,
    members: int | None = None,
    prior: bool = False,
    **options: Any,
) -> Learner:
    """Create a network or an ensemble, with prior networks or without, and copies as targets.

    Arguments as those of `init_networks`.
    """
    key_params, key_prior, key_body = (jax.random.fold_in(key, use) for use in range(3))
    make: Any = partial(init_networks, agent=agent, columns=columns, members=members, **options)
    params = make(key_params)
    return Learner(
        params=params,
        target_params=params,
        prior=make(key_prior).tabulate() if prior else None,
        opt_state=init_optimizer(params),
        shared=init_body(key_body, agent),
    )


def init_networks(
    key: PRNGKeyArray, agent: Agent, columns: int, members: int | None = None, **options: Any
) -> Any:
    """Create a network from observations, or from features of a body, to [A, columns].

    With `members`, an ensemble of that many independent ones. `options` are arguments of `MLP.init`
    that differ from those of the agent.
    """
    spec, config = agent.spec, agent.config
    width = num_features(spec.observation, config.channels)
    make = partial(
        MLP.init,
        inputs=width or spec.inputs,
        hidden=config.hidden,
        outputs=(spec.num_actions, columns),
        one_hot=spec.one_hot,
        fan_in=None if width else spec.fan_in,
        triangle=spec.triangle,
        he_slope=config.he_slope if isinstance(spec.observation, Image) else None,
    )
    if members is None:
        return make(key, **options)
    return jax.vmap(lambda k: make(k, **options))(jax.random.split(key, members))


def init_body(key: PRNGKeyArray, agent: Agent) -> Learner | None:
    """Create a body if observations are images or planes, else None."""
    observation, config = agent.spec.observation, agent.config
    if not isinstance(observation, Image | Planes):
        return None
    body = Body.init(
        key,
        observation,
        multiplier=config.channels,
        normalise=config.spectral,
        dtype=config.compute,
        slope=config.he_slope,
    )
    return Learner(body, body, prior=None, opt_state=init_optimizer(body.learned))


def init_optimizer(params: PyTree) -> PyTree:
    """Adam's moments, all zero."""
    return adam(0.0, 1.0).init(params)


# On images and planes, all networks are heads on the features of one body. App. B says so of
# ensembles; that a prior is a head too is our choice. Gradients of learned heads reach the body,
# those of priors do not. On other observations there is no body, and networks get the observations.


class Inputs(NamedTuple):
    """A batch as networks get it: features instead of observations where there is a body."""

    transitions: Transition
    """With `obs` and `next_obs` for the online networks."""
    weights: Float[Array, " B"]
    """Importance of each in the loss."""
    target_next_obs: Array
    """`next_obs` for the target networks."""
    shared: Learner | None
    """The body after a step of power iteration; None without a body."""
    pull: Callable[[Array], tuple[Body]] | None
    """From the gradient in the features of `obs` to that of the body; None without a body."""


def features(shared: Learner | None, obs: Array) -> Array:
    """Features of one image or of planes; any other observation as it is."""
    return obs if shared is None else shared.params(obs[None])[0]


def encode(shared: Learner | None, batch: Batch, *, online_next: bool = True) -> Inputs:
    """Run the body on `obs`, on `next_obs`, and the target body on `next_obs`.

    Only the first has a gradient. Without `online_next` there is no second, for agents that ask
    only target networks about `next_obs`: `next_obs` of the result is `target_next_obs` then.
    """
    transitions, weights = batch.transitions, batch.weights
    if shared is None:
        return Inputs(transitions, weights, transitions.next_obs, shared=None, pull=None)
    body = shared.params.power_iteration()
    obs, pull = jax.vjp(lambda part: eqx.combine(part, body)(transitions.obs), body.learned)
    target_next_obs = shared.target_params(transitions.next_obs)
    next_obs = body(transitions.next_obs) if online_next else target_next_obs
    return Inputs(
        transitions=transitions._replace(obs=obs, next_obs=next_obs),
        weights=weights,
        target_next_obs=target_next_obs,
        shared=shared._replace(params=body),
        pull=pull,
    )


# Distributions


def make_projection(name: str, config: Any, z_min: Any, z_max: Any) -> Projection:
    """A projection by name, with the numbers of its configuration; [z_min, z_max] is a support."""
    made: Any = find_projection(name).spanning(config.num_atoms, z_min, z_max)
    width = getattr(config, "huber_width", 0.0)
    return replace(made, huber_width=width) if hasattr(made, "huber_width") else made


def at_action(distributions: Atoms, action: Int[Array, ""]) -> Atoms:
    """The distribution [K] of one action out of [A, K]."""
    return Atoms(locations=distributions.locations[action], probs=distributions.probs[action])


def mass_outside(target: Atoms, z_min: Number, z_max: Number) -> Float[Array, ""]:
    """Probability of a target beyond the support, which a categorical model cannot represent.

    Rounding at the ends of a support does not count.
    """
    slack = 1e-4 * (z_max - z_min)
    outside = (target.locations < z_min - slack) | (target.locations > z_max + slack)
    return jnp.sum(jnp.where(outside, target.probs, 0.0))


# From a loss to a gradient step


class Gradients(NamedTuple):
    """A loss and its gradients."""

    loss: Float[Array, ""]
    losses: Float[Array, " B"]
    """Of each transition, without importance weights."""
    params: PyTree
    features: Float[Array, "B F"] | None = None
    """Gradient in the features of `obs`; None without a body."""


def loss_and_gradient(
    loss: Callable[[Any, Transition, Any], Float[Array, ""]],
    params: PyTree,
    inputs: Inputs,
    targets: PyTree,
) -> Gradients:
    """Differentiate the weighted mean over a batch of `loss(params, transition, target)`."""

    def batch_loss(params: PyTree, obs: Array) -> tuple[Float[Array, ""], Float[Array, " B"]]:
        transitions = inputs.transitions._replace(obs=obs)
        losses = jax.vmap(lambda t, target: loss(params, t, target))(transitions, targets)
        return jnp.mean(inputs.weights * losses), losses

    arguments = (0,) if inputs.shared is None else (0, 1)
    differentiate = jax.value_and_grad(batch_loss, argnums=arguments, has_aux=True)
    (total, losses), gradients = differentiate(params, inputs.transitions.obs)
    return Gradients(total, losses, *gradients)


def optimizer_step(
    agent: Agent, learner: Learner, inputs: Inputs, gradients: Gradients, clock: Clock, hyper: Any
) -> Learner:
    """Clip, take a step of Adam on networks and body, and update their targets when due."""
    config, rate, shared = agent.config, hyper.learning_rate, inputs.shared
    in_params, in_body = clip_by_global_norm(
        (gradients.params, body_gradient(inputs, gradients)), config.clip_norm
    )
    if shared is not None:
        shared = adam_step(shared, in_body, clock, config, rate)
    return adam_step(learner, in_params, clock, config, rate)._replace(shared=shared)


def body_gradient(inputs: Inputs, *gradients: Gradients) -> Body | None:
    """The body's gradient from one or several losses, None without a body."""
    if inputs.pull is None:
        return None
    in_features: list[Any] = [gradient.features for gradient in gradients]
    return inputs.pull(sum(in_features[1:], in_features[0]))[0]


def adam_step(
    learner: Learner, gradient: PyTree, clock: Clock, config: Any, learning_rate: Number
) -> Learner:
    """Take a step of Adam, and copy the parameters to the target every `target_period` updates.

    Of a body all is copied, but only what has a gradient is changed.
    """
    optimizer = adam(learning_rate, config.adam_epsilon / config.batch_size)
    updates, opt_state = optimizer.update(gradient, learner.opt_state)
    params = eqx.apply_updates(learner.params, updates)
    due = (clock.updates + 1) % config.target_period == 0
    target_params = jax.tree.map(partial(jnp.where, due), params, learner.target_params)
    return learner._replace(params=params, target_params=target_params, opt_state=opt_state)


def clip_by_global_norm(gradients: PyTree, max_norm: float) -> PyTree:
    """Scale gradients together so that their global norm is at most `max_norm`; 0 for no clipping.

    Gradients of tables by rows become dense.
    """
    if not max_norm:
        return gradients

    def is_rows(x: Any) -> bool:
        return isinstance(x, RowGradient)

    gradients = jax.tree.map(lambda x: x.dense() if is_rows(x) else x, gradients, is_leaf=is_rows)
    norm = jax.lax.platform_dependent(
        gradients,
        cpu=optax.tree.norm,
        default=lambda tree: jnp.linalg.norm(ravel_pytree(tree)[0]),  # one kernel, not thirty
    )
    return jax.tree.map(lambda x: jnp.where(norm < max_norm, x, x / norm * max_norm), gradients)


DECAYS = (0.9, 0.999)
"""Of the averages of gradients and of their squares, as in optax."""


def adam(learning_rate: Number, epsilon: float) -> optax.GradientTransformation:
    """Adam (Kingma and Ba 2015) with a learning rate that may be traced.

    Up to rounding it equals `optax.adam`, which tests check. It is written out for two measured
    reasons:

    - The gradient of a table may be given by its rows. A batch touches at most 128 rows of a
      deep-sea table, which may have 5,050. Added into Adam's moments row by row, an update of
      BDQN+P takes 5.8 instead of 8.5 ms on a CPU (2,500 rows, docs/performance.md).
    - Bias corrections are reciprocals that multiply, where optax divides every moment. An update of
      PE-DQN on deep sea takes 27 instead of 38 ms (size 50) and 13.8 instead of 14.8 ms (size 10),
      on two busy CPU cores with jax 0.10.2.
    """

    def update(
        gradients: PyTree, state: optax.ScaleByAdamState, params: PyTree = None
    ) -> tuple[PyTree, optax.ScaleByAdamState]:
        moments = jax.tree.map(_moments, state.mu, state.nu, gradients)
        mu, nu = jax.tree.transpose(jax.tree.structure(state.mu), None, moments)
        count = state.count + 1
        first, second = (1.0 / (1.0 - decay**count) for decay in DECAYS)

        def step(mu: Array, nu: Array) -> Array:
            return -(learning_rate * first * mu / (jnp.sqrt(second * nu) + epsilon))

        return jax.tree.map(step, mu, nu), optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformation(optax.scale_by_adam().init, update)


def _moments(mu: Array, nu: Array, gradient: Array | RowGradient) -> tuple[Array, Array]:
    """Adam's moments after a gradient g: averages of g and g².

    On a CPU, where every pass over a large table counts, the gradient of rows is added to the
    decayed moments; on a GPU it is first made dense, so that the rest is one kernel.
    """

    def averages(gradient: Array | RowGradient) -> tuple[Array, Array]:
        return _average(mu, gradient, 1), _average(nu, gradient, 2)

    if not isinstance(gradient, RowGradient):
        return averages(gradient)
    return jax.lax.platform_dependent(
        gradient, cpu=lambda g: averages(g.merge()), default=lambda g: averages(g.dense())
    )


def _average(moment: Array, gradient: Array | RowGradient, order: int) -> Array:
    decay = DECAYS[order - 1]
    if isinstance(gradient, RowGradient):
        return gradient.map(lambda g: (1.0 - decay) * g**order).add_to(decay * moment)
    return (1.0 - decay) * gradient**order + decay * moment


# Normalisation of rewards

MEMORY = 0.999
"""Decay of the weight of earlier batches at each batch: about the last thousand count."""
FLOOR_MEMORY = 0.98
"""The same for `Floor`, which follows learning within about fifty batches."""


class RunningMoments(NamedTuple):
    """Running mean and variance of an intrinsic reward.

    The paper divides by "a running estimate of its marginal standard deviation" (App. B): of the
    reward itself. Burda et al. (2019) take that of discounted sums of rewards. Disagreement
    decreases by orders of magnitude in a run, so that old batches must be forgotten. Before the
    first batch the deviation is 1.
    """

    weight: Float[Array, ""]
    mean: Float[Array, ""]
    variance: Float[Array, ""]

    @classmethod
    def init(cls) -> "RunningMoments":
        """Moments before the first batch."""
        return cls(weight=jnp.zeros(()), mean=jnp.zeros(()), variance=jnp.ones(()))

    def update(self, values: Float[Array, " B"], memory: float = MEMORY) -> "RunningMoments":
        """Moments of a batch and of all before it, at `memory` times their weight."""
        old, new = memory * self.weight, len(values)
        share = new / (old + new)
        shift = jnp.mean(values) - self.mean
        within = (1.0 - share) * self.variance + share * jnp.var(values)
        return RunningMoments(
            weight=old + new,
            mean=self.mean + share * shift,
            variance=within + share * (1.0 - share) * shift**2,
        )

    @property
    def deviation(self) -> Float[Array, ""]:
        """The standard deviation, never 0."""
        return jnp.sqrt(self.variance) + 1e-8

    def apply(self, reward: Float[Array, "*A"]) -> Float[Array, "*A"]:
        """Normalise a reward."""
        return reward / self.deviation


class Floor(NamedTuple):
    """The level of disagreement where all is known: a running mean of the medians of batches.

    Members that learn never agree exactly, and these small differences, summed over an episode, can
    exceed the values. A batch's greedy actions are mostly known (docs/research/deep-sea.md, 14).
    """

    medians: RunningMoments

    @classmethod
    def init(cls) -> "Floor":
        """No floor before the first batch."""
        return cls(RunningMoments.init())

    def update(self, disagreement: Float[Array, " B"]) -> "Floor":
        """Add a batch."""
        return Floor(self.medians.update(jnp.median(disagreement)[None], FLOOR_MEMORY))

    def apply(self, reward: Float[Array, "*A"]) -> Float[Array, "*A"]:
        """What is above the floor, never negative."""
        return jnp.maximum(reward - self.medians.mean, 0.0)
