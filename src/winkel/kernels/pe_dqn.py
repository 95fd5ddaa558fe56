"""PE-DQN on a GPU: the functions of `winkel.agents.pe_dqn`, by kernels.

For the paper's agent (a quantile and a categorical model, the mixture's target, a propagated bonus)
on networks with one hidden layer, see `PEDQN.supported_by_kernels`. All other configurations run in
plain JAX; `tests/kernels/test_pe_dqn.py` compares the two.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from winkel.kernels import networks as mlp
from winkel.kernels.common import Layout, Outputs
from winkel.kernels.distributions import loss_and_gradient, q_values_and_disagreement
from winkel.kernels.networks import adam_step, step_scales
from winkel.networks import Ensemble
from winkel.networks.mlp import row_of
from winkel.types import Batch, Clock, Update


def value_and_bonus(
    agent: Any, learner: Any, obs: Array, hyper: Any
) -> tuple[Float[Array, " A"], Float[Array, " A"]]:
    """Q(s, ·) and b_φ(s, ·) of one observation (Algorithm 1, lines 8–10); zeros for a frozen bonus.

    `agent`, `learner` and `hyper` are those of `winkel.agents.pe_dqn`, as in `update`.
    """
    layout, (scales, bonus_scales) = _layout(agent), _support_and_prior_scale(agent, hyper)
    obs, frozen = _flatten(agent, obs), agent.bonus_frozen
    theta, phi = weights_of(learner.params.value), weights_of(learner.params.bonus)
    prior = _prior(agent, learner.prior, obs)
    outputs = Outputs(mlp.row_products(theta, obs)[:, None], theta.last_bias, prior)
    value, w_avg = q_values_and_disagreement(outputs, layout, scales, with_disagreement=not frozen)
    if frozen:
        return value[0], jnp.zeros_like(value[0])
    outputs = Outputs(mlp.row_products(phi, obs)[:, None], phi.last_bias)
    raw_bonus, _ = q_values_and_disagreement(outputs, layout, bonus_scales, with_disagreement=False)
    return value[0], (raw_bonus + agent.disagreement_reward(w_avg, learner, hyper))[0]


def update(
    agent: Any, learner: Any, batch: Batch, clock: Clock, beta: Array, hyper: Any
) -> tuple[Any, Update]:
    """One step on the sum of all members' losses (Algorithm 1, lines 14–24).

    With a frozen bonus, φ and its moments stay as they are, and values are learned as before: where
    β is 0, they do not depend on the bonus.
    """
    layout, frozen = _layout(agent), agent.bonus_frozen
    scales, bonus_scales = _support_and_prior_scale(agent, hyper)
    transitions, mask = batch.transitions, agent.spec.mask_unavailable
    obs, next_obs = _flatten(agent, transitions.obs), _flatten(agent, transitions.next_obs)
    action, share = jnp.asarray(transitions.action), batch.weights / len(batch.weights)
    gamma = jnp.full(len(batch.weights), hyper.gamma, jnp.float32)
    discount = gamma * transitions.discount

    # Lines 16–17: Q(s', ·) and w_avg(s', ·) by the online networks; a' by Q.
    theta, target = weights_of(learner.params.value), weights_of(learner.target_params.value)
    prior, next_prior = (_prior(agent, learner.prior, o) for o in (obs, next_obs))
    value, w_avg = q_values_and_disagreement(
        _outputs(theta, next_obs, next_prior), layout, scales, with_disagreement=not frozen
    )
    greedy = jnp.argmax(mask(value), axis=-1)

    # Lines 14–15 and 18–20: losses of the value members against the mixture of target networks.
    hidden = mlp.hidden(theta, obs, active=True)
    gradient, total, clipped = loss_and_gradient(
        Outputs(mlp.products(hidden[0], theta), theta.last_bias, prior),
        _outputs(target, next_obs, next_prior),
        (action, greedy), (transitions.reward, discount, share), layout, scales,
    )  # fmt: skip
    learned = [("value", hidden, gradient)]

    # Lines 21–23: losses of the bonus members against γ (b_raw + w_avg)(s', a'_ε).
    if not frozen:
        phi, target = weights_of(learner.params.bonus), weights_of(learner.target_params.bonus)
        raw, _ = q_values_and_disagreement(
            _outputs(phi, next_obs), layout, bonus_scales, with_disagreement=False
        )
        reward = agent.disagreement_reward(w_avg, learner, hyper)
        exploratory = jnp.argmax(mask(value + beta * (raw + reward)), axis=-1)
        reward = jnp.take_along_axis(reward, exploratory[:, None], axis=1)[:, 0]
        intrinsic_discount = discount if agent.config.episodic_bonus else gamma
        intrinsic_discount = intrinsic_discount * agent.config.bonus_discount**agent.config.n_step
        hidden = mlp.hidden(phi, obs, active=True)
        gradient, losses, _ = loss_and_gradient(
            Outputs(mlp.products(hidden[0], phi), phi.last_bias),
            _outputs(target, next_obs),
            (action, exploratory), (intrinsic_discount * reward, intrinsic_discount, share),
            layout, bonus_scales,
        )  # fmt: skip
        learned.append(("bonus", hidden, gradient))
        total = total + losses
        if learner.intrinsic is not None:
            known = jnp.take_along_axis(w_avg, greedy[:, None], axis=1)[:, 0]
            learner = learner._replace(intrinsic=learner.intrinsic.update(known))

    # Line 24.
    due = jnp.asarray((clock.updates + 1) % agent.config.target_period == 0)
    learner = _adam_step(agent.config, hyper, learner, obs, learned, due)
    metrics = {"loss": jnp.mean(batch.weights * total), "beta": beta, "clipped": jnp.mean(clipped)}
    return learner, Update(priorities=total, metrics=metrics)


def weights_of(ensemble: Ensemble) -> mlp.Weights:
    """The matrices of networks with one hidden layer."""
    return mlp.Weights(*jax.tree.leaves(ensemble))


def _layout(agent: Any) -> Layout:
    config = agent.config
    return Layout(
        quantile=config.projections.index("quantile"),
        categorical=config.projections.index("categorical"),
        actions=agent.spec.num_actions,
        size=config.num_atoms,
        prior_members=config.prior_members,
    )


def _support_and_prior_scale(agent: Any, hyper: Any) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
    """Ends of the supports of values and of bonuses, each with the factor of the priors."""
    low, high = jnp.asarray(hyper.z_min), jnp.asarray(hyper.z_max)
    scale = jnp.asarray(hyper.prior_scale, jnp.float32)
    bonus = jnp.stack([jnp.zeros_like(low), agent.config.bonus_support * (high - low), scale])
    return jnp.stack([low, high, scale]).astype(jnp.float32), bonus.astype(jnp.float32)


def _flatten(agent: Any, obs: Array) -> Array:
    """Rows of the first layer's table, or the numbers of each observation."""
    spec = agent.spec
    if not spec.one_hot:
        return obs.reshape(*obs.shape[: obs.ndim - len(spec.observation.shape)], -1)
    return row_of(obs, math.isqrt(spec.inputs) if spec.triangle else None)


def _outputs(
    weights: mlp.Weights, obs: Array, prior: Float[Array, "P B O"] | None = None
) -> Outputs:
    return Outputs(mlp.products(mlp.hidden(weights, obs)[0], weights), weights.last_bias, prior)


def _prior(agent: Any, prior: Ensemble | None, obs: Array) -> Float[Array, "P B O"] | None:
    """Outputs of the priors for a batch or, as a batch of one, for one observation."""
    if prior is None:
        return None
    if agent.spec.one_hot:
        table = jax.vmap(lambda layer: jax.vmap(layer.of_row)(jnp.atleast_1d(obs)))
        return table(prior.layers[0])
    weights = weights_of(prior)
    if obs.ndim == 1:
        products = mlp.row_products(weights, obs)[:, None]
    else:
        products = mlp.products(mlp.hidden(weights, obs)[0], weights)
    return products + weights.last_bias[:, None]


def _adam_step(
    config: Any,
    hyper: Any,
    learner: Any,
    obs: Array,
    learned: list[tuple[str, mlp.Hidden, Array]],
    due: Array,
) -> Any:
    """Adam's step on ensembles, and the copy into the target networks when it is due."""
    adam, epsilon = learner.opt_state, config.adam_epsilon / config.batch_size
    scales = step_scales(jnp.asarray(hyper.learning_rate), adam.count, due)
    trees = [learner.params, adam.mu, adam.nu, learner.target_params]
    for name, hidden, gradient in learned:
        before = [weights_of(getattr(tree, name)) for tree in trees]
        state = adam_step(before, obs, hidden, gradient, scales, epsilon)
        structure = jax.tree.structure(getattr(learner.params, name))
        trees = [
            tree._replace(**{name: jax.tree.unflatten(structure, list(weights))})
            for tree, weights in zip(trees, state, strict=True)
        ]
    params, mu, nu, target_params = trees
    opt_state = adam._replace(count=optax.safe_increment(adam.count), mu=mu, nu=nu)
    return learner._replace(params=params, target_params=target_params, opt_state=opt_state)
