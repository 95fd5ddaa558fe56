"""What networks' outputs mean: return distributions of one model, values of an ensemble."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from winkel.agents.base import Number
from winkel.agents.learning import Gradients, Inputs, Learner, loss_and_gradient
from winkel.distributions import bootstrap, mean
from winkel.exploration import mask_unavailable
from winkel.networks import MLP, Ensemble, batched
from winkel.networks.mlp import add_prior
from winkel.projections import Categorical, Projection
from winkel.types import Atoms, Estimates, Transition

# Return distributions of one network


def return_distributions(
    projection: Projection, network: MLP, prior: MLP | None, obs: Array, prior_scale: Number = 0.0
) -> Atoms:
    """The return distribution of every action, [A, K]."""
    return jax.vmap(projection.decode)(outputs(network, prior, obs, prior_scale))


def outputs(
    network: MLP, prior: MLP | None, obs: Array, prior_scale: Number = 0.0
) -> Float[Array, "A K"]:
    """Outputs of a network and its prior: locations, or logits before the softmax."""
    return add_prior(network(obs), None if prior is None else prior(obs), prior_scale)


def expected_values(distributions: Atoms) -> Float[Array, " A"]:
    """The mean of each action's distribution, Q(s, ·)."""
    return jax.vmap(mean)(distributions)


def at_action(distributions: Atoms, action: Int[Array, ""]) -> Atoms:
    """The distribution [K] of one action out of [A, K]."""
    return Atoms(locations=distributions.locations[action], probs=distributions.probs[action])


def select_action(theta: Float[Array, "*M A K"], action: Int[Array, ""]) -> Float[Array, "*M K"]:
    """Outputs of one action, by a masked sum, whose gradient is cheaper than a scatter."""
    chosen = jnp.arange(theta.shape[-2]) == action
    chosen = chosen.reshape(*(1,) * (theta.ndim - 2), -1, 1)
    return jnp.sum(jnp.where(chosen, theta, 0.0), axis=-2)


def mass_outside(target: Atoms, z_min: Number, z_max: Number) -> Float[Array, ""]:
    """Probability of a target beyond the support, which a categorical model cannot represent.

    Rounding at the ends of a support does not count.
    """
    slack = 1e-4 * (z_max - z_min)
    outside = (target.locations < z_min - slack) | (target.locations > z_max + slack)
    return jnp.sum(jnp.where(outside, target.probs, 0.0))


def distributional_gradient(
    projection: Projection,
    learner: Learner,
    inputs: Inputs,
    weights: Float[Array, " B"],
    *,
    gamma: Number,
    prior_scale: Number = 0.0,
    double: bool = True,
    available: Int[Array, ""] | None,
) -> tuple[Gradients, dict[str, Float[Array, ""]]]:
    """Differentiate the projection's loss, as in C51 and QR-DQN, averaged over a batch.

    The target is the distribution of r + γ Z, with Z of the target network at the action whose
    mean is highest in s': by the online network if `double`, else by the target network. Returns
    metrics as well; 'clipped' is the mass of targets outside of a categorical support.
    """
    prior = learner.prior

    def target(transition: Transition, target_next_obs: Array) -> Atoms:
        successor = return_distributions(
            projection, learner.target_params, prior, target_next_obs, prior_scale
        )
        chooser = successor
        if double:
            chooser = return_distributions(
                projection, learner.params, prior, transition.next_obs, prior_scale
            )
        greedy = jnp.argmax(mask_unavailable(expected_values(chooser), available))
        following = at_action(successor, greedy)
        return bootstrap(transition.reward, gamma * transition.discount, following)

    def loss(params: MLP, transition: Transition, target: Atoms) -> Float[Array, ""]:
        theta = outputs(params, prior, transition.obs, prior_scale)
        return projection.loss(select_action(theta, transition.action), target)

    targets = jax.vmap(target)(inputs.transitions, inputs.target_next_obs)
    gradients = loss_and_gradient(loss, learner.params, inputs, targets, weights)
    metrics = {"loss": gradients.loss}
    if isinstance(projection, Categorical):
        z_min, z_max = projection.z_min, projection.z_max
        clipped = jax.vmap(lambda target: mass_outside(target, z_min, z_max))(targets)
        metrics["clipped"] = jnp.mean(clipped)
    return gradients, metrics


def estimates_of_distributions(
    distributions: Atoms, bonus: Float[Array, " A"] | None = None
) -> Estimates:
    """Estimates of a single model, which has no disagreement."""
    value = expected_values(distributions)
    nothing = jnp.full_like(value, jnp.nan)
    return Estimates(
        value=value,
        members=jax.tree.map(lambda x: x[None], distributions),
        disagreement=nothing,
        bonus=nothing if bonus is None else bonus,
    )


# Ensembles of value functions, on whole batches


def values(
    params: Ensemble, prior: Ensemble | None, obs: Array, prior_scale: Number = 0.0
) -> Float[Array, "M A"]:
    """Q_m(s, ·) = f_m(s) + scale · p_m(s), with p_m the prior of member m."""
    found = params(obs)[..., 0]
    return found if prior is None else found + prior_scale * prior(obs)[..., 0]


def batch_values(
    params: Ensemble, prior: Ensemble | None, obs: Array, prior_scale: Number = 0.0
) -> Float[Array, "M B A"]:
    """As `values`, for a batch of observations."""
    return _with_prior(params, batched.forward(params, obs), prior, obs, prior_scale)


def draw_mask(key: PRNGKeyArray, count: int, probability: Number) -> Bool[Array, " M"]:
    """Which members learn from a transition, each by its own draw."""
    return jax.random.bernoulli(key, probability, (count,))


def td_gradient(
    learner: Learner,
    inputs: Inputs,
    weights: Float[Array, " B"],
    masks: Bool[Array, "B M"],
    *,
    gamma: Number,
    prior_scale: Number = 0.0,
    double: bool,
    huber_width: float,
    available: Int[Array, ""] | None,
) -> Gradients:
    """Differentiate the sum of all members' TD losses, ½ δ² or Huber's, averaged over a batch.

    The target of member m is r + γ Q̃_m(s', a'_m), with Q̃_m its target network and a'_m greedy by
    its online network if `double`, else by Q̃_m. A member learns only from the transitions of its
    mask. Being a sum, the loss gives every member the gradient that it would have alone.
    """
    params, prior, transitions = learner.params, learner.prior, inputs.transitions
    successor = batch_values(learner.target_params, prior, inputs.target_next_obs, prior_scale)
    chooser = successor
    if double:
        chooser = batch_values(params, prior, transitions.next_obs, prior_scale)
    greedy = jnp.argmax(mask_unavailable(chooser, available), axis=-1)
    best = jnp.take_along_axis(successor, greedy[..., None], axis=-1)[..., 0]
    reward, discount = (jnp.asarray(x)[None] for x in (transitions.reward, transitions.discount))
    targets = reward + gamma * discount * best

    computed = batched.forward(params, transitions.obs)
    value = _with_prior(params, computed, prior, transitions.obs, prior_scale)
    chosen = transitions.action[None, :, None] == jnp.arange(value.shape[-1])[None, None]
    errors = jnp.sum(jnp.where(chosen, value, 0.0), axis=-1) - targets
    each, gradient = _td_loss(errors, huber_width)
    losses = jnp.sum(jnp.where(masks.T, each, 0.0), axis=0)
    gradient = jnp.where(masks.T, gradient, 0.0) * (weights / len(weights))[None]
    gradient = jnp.where(chosen, gradient[..., None], 0.0)  # in the outputs, [M, B, A]
    in_features = None
    if inputs.shared is not None:
        run = lambda x: batched.outputs(params, batched.forward(params, x))  # noqa: E731
        in_features = jax.vjp(run, transitions.obs)[1](gradient)[0]
    return Gradients(
        loss=jnp.mean(weights * losses),
        losses=losses,
        params=batched.backward(params, computed, transitions.obs, gradient),
        features=in_features,
    )


def _td_loss(errors: Float[Array, "M B"], huber_width: float) -> tuple[Array, Array]:
    """½ δ², or Huber's loss of the given width, and its derivative in δ."""
    if not huber_width:
        return 0.5 * errors**2, errors
    clipped = jnp.clip(errors, -huber_width, huber_width)
    return optax.losses.huber_loss(errors, delta=huber_width), clipped


def _with_prior(
    params: Ensemble,
    computed: batched.Forward,
    prior: Ensemble | None,
    obs: Array,
    prior_scale: Number,
) -> Float[Array, "M B A"]:
    found = batched.outputs(params, computed)
    if prior is None:
        return found
    return found + prior_scale * batched.outputs(prior, batched.forward(prior, obs))


def estimates_of_values(value: Float[Array, "M A"]) -> Estimates:
    """Estimates of an ensemble of values: point masses, their mean and standard deviation."""
    mean = jnp.mean(value, axis=0)
    return Estimates(
        value=mean,
        members=Atoms(locations=value[..., None], probs=jnp.ones_like(value)[..., None]),
        disagreement=jnp.std(value, axis=0),
        bonus=jnp.full_like(mean, jnp.nan),
    )
