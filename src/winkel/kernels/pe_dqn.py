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
from winkel.kernels.losses import loss_and_gradient
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
    lane, frozen = _Lane(agent, hyper, interpret), agent.bonus_frozen
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
    lane, frozen = _Lane(agent, hyper, interpret), agent.bonus_frozen
    transitions, mask = batch.transitions, agent.spec.mask_unavailable
    obs, next_obs = lane.flatten(transitions.obs), lane.flatten(transitions.next_obs)
    gamma = jnp.full(len(batch.weights), hyper.gamma, jnp.float32)
    discount = gamma * transitions.discount

    # Lines 15–17: Q(s', ·) and w_avg(s', ·) by the online networks; a' by Q.
    theta, target = weights_of(learner.params.value), weights_of(learner.target_params.value)
    prior, next_prior = lane.prior(learner.prior, obs), lane.prior(learner.prior, next_obs)
    outputs = lane.outputs(theta, next_obs, next_prior)
    value, apart = lane.values(outputs, lane.support, with_disagreement=not frozen)
    greedy = jnp.argmax(mask(value), axis=-1)

    # Lines 14 and 18–20: losses of the value members against the mixture target.
    hidden = mlp.hidden(theta, obs, active=True, interpret=interpret)
    gradient, total, clipped = lane.losses(
        Outputs(mlp.products(hidden[0], theta), theta.last_bias, prior),
        lane.outputs(target, next_obs, next_prior),
        batch, greedy, transitions.reward, discount, lane.support,
    )  # fmt: skip
    learned = [("value", hidden, gradient)]

    # Lines 21–23: losses of the bonus members against γ (b_raw + w_avg)(s', a'_ε).
    if not frozen:
        phi, target = weights_of(learner.params.bonus), weights_of(learner.target_params.bonus)
        outputs = lane.outputs(phi, next_obs)
        raw, _ = lane.values(outputs, lane.bonus_support, with_disagreement=False)
        exploratory = jnp.argmax(mask(value + beta * (raw + apart)), axis=-1)
        apart = jnp.take_along_axis(apart, exploratory[:, None], axis=1)[:, 0]
        bonus_discount = discount if agent.config.episodic_bonus else gamma
        hidden = mlp.hidden(phi, obs, active=True, interpret=interpret)
        gradient, losses, _ = lane.losses(
            Outputs(mlp.products(hidden[0], phi), phi.last_bias),
            lane.outputs(target, next_obs),
            batch, exploratory, bonus_discount * apart, bonus_discount, lane.bonus_support,
        )  # fmt: skip
        learned.append(("bonus", hidden, gradient))
        total = total + losses

    # Line 24.
    due = jnp.asarray((clock.updates + 1) % agent.config.target_period == 0)
    learner = lane.adam_step(learner, obs, learned, due)
    metrics = {
        "loss": jnp.mean(batch.weights * total),
        "beta": beta,
        "clipped": jnp.mean(clipped),
    }
    return learner, Update(priorities=total, metrics=metrics)


def weights_of(ensemble: Ensemble) -> mlp.Weights:
    """The matrices of networks with one hidden layer."""
    return mlp.Weights(*jax.tree.leaves(ensemble))


@dataclass(frozen=True)
class _Lane:
    """The kernels, with the arguments that all calls of one update share."""

    agent: Any
    hyper: Any
    interpret: bool

    @property
    def layout(self) -> Layout:
        config = self.agent.config
        return Layout(
            quantile=config.projections.index("quantile"),
            categorical=config.projections.index("categorical"),
            actions=self.agent.spec.num_actions,
            size=config.num_atoms,
            prior_members=config.prior_members,
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
        spec = self.agent.spec
        if not spec.one_hot:
            return obs.reshape(*obs.shape[: obs.ndim - len(spec.observation.shape)], -1)
        return row_of(obs, math.isqrt(spec.inputs) if spec.triangle else None)

    def products(self, weights: mlp.Weights, obs: Array) -> Float[Array, "M B O"]:
        return mlp.products(mlp.hidden(weights, obs, interpret=self.interpret)[0], weights)

    def outputs(
        self, weights: mlp.Weights, obs: Array, prior: Float[Array, "P B O"] | None = None
    ) -> Outputs:
        return Outputs(self.products(weights, obs), weights.last_bias, prior)

    def prior(self, prior: Ensemble | None, obs: Array) -> Float[Array, "P B O"] | None:
        """Outputs of the priors for a batch or, as a batch of one, for one observation."""
        if prior is None:
            return None
        if self.agent.spec.one_hot:
            table = jax.vmap(lambda layer: jax.vmap(layer.of_row)(jnp.atleast_1d(obs)))
            return table(prior.members.layers[0])
        weights = weights_of(prior)
        one = obs.ndim == 1
        made = mlp.row_products(weights, obs)[:, None] if one else self.products(weights, obs)
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
        batch: Batch,
        next_action: Array,
        reward: Array,
        discount: Array,
        support: tuple[Array, Array],
    ) -> tuple[Array, Array, Array]:
        actions = jnp.asarray(batch.transitions.action), next_action
        affine = reward, discount, batch.weights / len(batch.weights)
        return loss_and_gradient(
            outputs, successor, actions, affine, self.layout, support, self.hyper.prior_scale,
            interpret=self.interpret,
        )  # fmt: skip

    def adam_step(
        self, learner: Any, obs: Array, learned: list[tuple[str, mlp.Hidden, Array]], due: Array
    ) -> Any:
        """Adam's step on ensembles, and the copy into the target networks when it is due."""
        adam, config = learner.opt_state, self.agent.config
        scales = step_scales(jnp.asarray(self.hyper.learning_rate), adam.count, due)
        trees = [learner.params, adam.mu, adam.nu, learner.target_params]
        for name, hidden, gradient in learned:
            state = adam_step(
                [weights_of(getattr(tree, name)) for tree in trees], obs, hidden, gradient, scales,
                config.adam_epsilon / config.batch_size, interpret=self.interpret,
            )  # fmt: skip
            structure = jax.tree.structure(getattr(learner.params, name))
            trees = [
                tree._replace(**{name: jax.tree.unflatten(structure, list(weights))})
                for tree, weights in zip(trees, state, strict=True)
            ]
        params, mu, nu, target_params = trees
        opt_state = adam._replace(count=optax.safe_increment(adam.count), mu=mu, nu=nu)
        return learner._replace(params=params, target_params=target_params, opt_state=opt_state)
