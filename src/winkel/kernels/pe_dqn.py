"""PE-DQN on a GPU: the functions of `winkel.agents.pe_dqn`, by kernels.

For the paper's agent (a quantile and a categorical model, the mixture's target, a propagated bonus)
on networks with one hidden layer, see `kernels_support` there. All other configurations run in
plain JAX; `tests/kernels/test_pe_dqn.py` compares the two.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from winkel.kernels import mlp
from winkel.kernels.adam import adam_step, step_scales
from winkel.kernels.common import Layout, Outputs
from winkel.kernels.losses import Losses, loss_and_gradient
from winkel.kernels.values import q_values_and_disagreement
from winkel.networks import Ensemble
from winkel.networks.mlp import row_of
from winkel.types import Batch, Clock, Update


def value_and_bonus(
    agent: Any, learner: Any, obs: Array, hyper: Any, *, interpret: bool = False
) -> tuple[Float[Array, " A"], Float[Array, " A"]]:
    """Q(s, ·) and b_φ(s, ·) of one observation (Algorithm 1, lines 8–10); zeros for a frozen bonus.

    Args:
        agent: `pe_dqn.PEDQN`.
        learner: `learning.Learner`.
        obs: one observation.
        hyper: `pe_dqn.Hyper`.
        interpret: run in Pallas' interpreter.
    """
    lane, frozen = _Lane(agent.config, agent.spec, hyper, interpret), agent.bonus_frozen
    obs = lane.flatten(obs)
    theta, phi = weights_of(learner.params.value), weights_of(learner.params.bonus)
    outputs = Outputs(
        mlp.row_products(theta, obs)[:, None], theta.last_bias, lane.prior(learner.prior, obs)
    )
    value, apart = lane.values(outputs, lane.support, with_disagreement=not frozen)
    if frozen:
        return value[0], jnp.zeros_like(value[0])
    outputs = Outputs(mlp.row_products(phi, obs)[:, None], phi.last_bias)
    raw_bonus, _ = lane.values(outputs, lane.bonus_support, with_disagreement=False)
    return value[0], (raw_bonus + apart)[0]


def update(
    agent: Any,
    learner: Any,
    batch: Batch,
    clock: Clock,
    beta: Array,
    hyper: Any,
    *,
    interpret: bool = False,
) -> tuple[Any, Update]:
    """One step on the sum of all members' losses (Algorithm 1, lines 14–24).

    With a frozen bonus, φ and its moments stay as they are, and values are learned as before: where
    β is 0, they do not depend on the bonus.
    """
    lane, frozen = _Lane(agent.config, agent.spec, hyper, interpret), agent.bonus_frozen
    transitions = batch.transitions
    obs, next_obs = lane.flatten(transitions.obs), lane.flatten(transitions.next_obs)
    action, theta = jnp.asarray(transitions.action), weights_of(learner.params.value)

    # Lines 15–17: Q(s', ·) and w_avg(s', ·) by the online networks; a' by Q.
    next_prior = lane.prior(learner.prior, next_obs)
    outputs = lane.outputs(theta, next_obs, next_prior)
    value, apart = lane.values(outputs, lane.support, with_disagreement=not frozen)
    greedy = jnp.argmax(agent.spec.mask_unavailable(value), axis=-1)

    # Lines 14 and 18–20: losses of the value members against the mixture target.
    hidden = mlp.hidden(theta, obs, active=True, interpret=interpret)
    prior = lane.prior(learner.prior, obs)
    value_losses = lane.losses(
        Outputs(mlp.products(hidden.values, theta), theta.last_bias, prior),
        lane.outputs(weights_of(learner.target_params.value), next_obs, next_prior),
        (action, greedy),
        (transitions.reward, _discount(batch, hyper, episodic=True), _shares(batch)),
        lane.support,
    )
    learned = [("value", hidden, value_losses)]
    if not frozen:
        learned.append(("bonus", *_bonus_losses(lane, learner, batch, beta, value, apart)))

    # Line 24.
    due = jnp.asarray((clock.updates + 1) % agent.config.target_period == 0)
    learner = lane.adam_step(learner, obs, learned, due)
    total = sum((losses.losses for *_, losses in learned[1:]), start=value_losses.losses)
    metrics = {
        "loss": jnp.mean(batch.weights * total),
        "beta": beta,
        "clipped": jnp.mean(value_losses.clipped),
    }
    return learner, Update(priorities=total, metrics=metrics)


def _bonus_losses(
    lane: "_Lane",
    learner: Any,
    batch: Batch,
    beta: Array,
    value: Float[Array, "B A"],
    disagreement: Float[Array, "B A"],
) -> tuple[mlp.Hidden, Losses]:
    """Lines 21–23: the bonus against γ (b_raw + w_avg)(s', a'_ε)."""
    transitions, hyper = batch.transitions, lane.hyper
    obs, next_obs = lane.flatten(transitions.obs), lane.flatten(transitions.next_obs)
    phi = weights_of(learner.params.bonus)
    raw, _ = lane.values(lane.outputs(phi, next_obs), lane.bonus_support, with_disagreement=False)
    scores = value + beta * (raw + disagreement)
    exploratory = jnp.argmax(lane.spec.mask_unavailable(scores), axis=-1)
    apart = jnp.take_along_axis(disagreement, exploratory[:, None], axis=1)[:, 0]
    discount = _discount(batch, hyper, episodic=lane.config.episodic_bonus)
    hidden = mlp.hidden(phi, obs, active=True, interpret=lane.interpret)
    losses = lane.losses(
        Outputs(mlp.products(hidden.values, phi), phi.last_bias),
        lane.outputs(weights_of(learner.target_params.bonus), next_obs),
        (jnp.asarray(transitions.action), exploratory),
        (discount * apart, discount, _shares(batch)),
        lane.bonus_support,
    )
    return hidden, losses


def _discount(batch: Batch, hyper: Any, episodic: bool) -> Float[Array, " B"]:
    gamma = jnp.full(len(batch.weights), hyper.gamma, jnp.float32)
    return gamma * batch.transitions.discount if episodic else gamma


def _shares(batch: Batch) -> Float[Array, " B"]:
    return batch.weights / len(batch.weights)


def weights_of(ensemble: Ensemble) -> mlp.Weights:
    """The matrices of networks with one hidden layer."""
    first, last = ensemble.members.layers
    return mlp.Weights(
        first=first.weight, first_bias=first.bias, last=last.weight, last_bias=last.bias
    )


def with_weights(ensemble: Ensemble, weights: mlp.Weights) -> Ensemble:
    """The ensemble with other matrices."""
    return jax.tree.unflatten(jax.tree.structure(ensemble), list(weights))


@dataclass(frozen=True)
class _Lane:
    """The kernels, with the arguments that all calls of one update share."""

    config: Any
    spec: Any
    hyper: Any
    interpret: bool

    @property
    def layout(self) -> Layout:
        names = self.config.projections
        return Layout(
            quantile=names.index("quantile"),
            categorical=names.index("categorical"),
            actions=self.spec.num_actions,
            size=self.config.num_atoms,
            prior_members=self.config.prior_members,
        )

    @property
    def support(self) -> tuple[Array, Array]:
        return jnp.asarray(self.hyper.z_min), jnp.asarray(self.hyper.z_max)

    @property
    def bonus_support(self) -> tuple[Array, Array]:
        low, high = self.support
        return jnp.zeros_like(low), 2.0 * (high - low)

    def flatten(self, obs: Array) -> Array:
        """Rows of the first layer's table, or the numbers of each observation."""
        if not self.spec.one_hot:
            return obs.reshape(*obs.shape[: obs.ndim - len(self.spec.observation.shape)], -1)
        return row_of(obs, math.isqrt(self.spec.inputs) if self.spec.triangle else None)

    def products(self, weights: mlp.Weights, obs: Array) -> Float[Array, "M B O"]:
        return mlp.products(mlp.hidden(weights, obs, interpret=self.interpret).values, weights)

    def outputs(
        self, weights: mlp.Weights, obs: Array, prior: Float[Array, "P B O"] | None = None
    ) -> Outputs:
        return Outputs(self.products(weights, obs), weights.last_bias, prior)

    def prior(self, prior: Ensemble | None, obs: Array) -> Float[Array, "P B O"] | None:
        """Outputs of the priors for a batch or, as a batch of one, for one observation."""
        if prior is None:
            return None
        if self.spec.one_hot:
            table = jax.vmap(lambda layer: jax.vmap(layer.of_row)(jnp.atleast_1d(obs)))
            return table(prior.members.layers[0])
        weights = weights_of(prior)
        made = (
            mlp.row_products(weights, obs)[:, None]
            if obs.ndim == 1
            else self.products(weights, obs)
        )
        return made + weights.last_bias[:, None]

    def values(
        self, outputs: Outputs, support: tuple[Array, Array], with_disagreement: bool
    ) -> tuple[Float[Array, "B A"], Float[Array, "B A"]]:
        return q_values_and_disagreement(
            outputs, self.layout, support, self.hyper.prior_scale,
            with_disagreement=with_disagreement, interpret=self.interpret,
        )  # fmt: skip

    def losses(
        self,
        outputs: Outputs,
        successor: Outputs,
        actions: tuple[Array, Array],
        affine: tuple[Array, Array, Array],
        support: tuple[Array, Array],
    ) -> Losses:
        return loss_and_gradient(
            outputs, successor, actions, affine, self.layout, support, self.hyper.prior_scale,
            interpret=self.interpret,
        )  # fmt: skip

    def adam_step(
        self, learner: Any, obs: Array, learned: list[tuple[str, mlp.Hidden, Losses]], due: Array
    ) -> Any:
        """Adam's step on ensembles, and the copy into the target networks when it is due."""
        adam, epsilon = learner.opt_state, self.config.adam_epsilon / self.config.batch_size
        scales = step_scales(jnp.asarray(self.hyper.learning_rate), adam.count, due)
        trees = [learner.params, adam.mu, adam.nu, learner.target_params]
        for name, hidden, losses in learned:
            ensembles = [getattr(tree, name) for tree in trees]
            weights, mean, square, target = (weights_of(ensemble) for ensemble in ensembles)
            state = adam_step(
                (weights, mean, square, target), obs, hidden, losses.gradient, scales, epsilon,
                interpret=self.interpret,
            )  # fmt: skip
            trees = [
                tree._replace(**{name: with_weights(ensemble, made)})
                for tree, ensemble, made in zip(trees, ensembles, state, strict=True)
            ]
        params, mu, nu, target_params = trees
        opt_state = adam._replace(count=optax.safe_increment(adam.count), mu=mu, nu=nu)
        return learner._replace(params=params, target_params=target_params, opt_state=opt_state)
