"""RND: DQN with a bonus by random network distillation (Burda et al. 2019).

A predictor learns the outputs of a fixed random network. Its squared error is large where there was
little data, and is the intrinsic reward. As in the original there are two value functions, of
rewards and of intrinsic rewards; the agent acts by Q(s, a) + β Q_i(s, a).

Two differences to the original, which is for PPO on images: the networks have outputs for every
action, so that the reward is for (s, a) and not for s' (the last action of an episode would have
none), and intrinsic returns end with the episode. Intrinsic rewards are divided by the standard
deviation of all so far.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from winkel.agents import base, learning
from winkel.agents.bdqn import point_masses
from winkel.agents.learning import Learner, RunningMoments
from winkel.networks import MLP, Ensemble
from winkel.networks.mlp import select_action
from winkel.types import Batch, Clock, Estimates, Transition, Update


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings."""

    num_features: base.Count = 64
    """Outputs of the random network for each action."""
    hidden: base.Hidden = (64, 64)


class Hyper(NamedTuple):
    """Hyperparameters, traced."""

    learning_rate: base.LearningRate = 1e-3
    gamma: base.Discount = 0.99
    beta: base.NonNegative = 1.0
    """Weight of the intrinsic value."""
    bonus_gamma: base.Discount = 0.99
    """Discount factor of intrinsic rewards."""
    epsilon: base.Epsilon = 0.0
    epsilon_final: base.Epsilon = 0.0
    epsilon_steps: base.EpsilonSteps = 0.0


class Params(NamedTuple):
    """The networks that learn."""

    values: Ensemble
    """Q and Q_i."""
    predictor: MLP


@dataclass(frozen=True)
class RND(base.Agent):
    """Two value functions, of rewards and of the error of a predictor."""

    config: Config
    config_type = Config
    hyper_type = Hyper

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """Value networks, the predictor and the fixed random network, independent."""
        config, spec = self.config, self.spec
        keys = [jax.random.fold_in(key, use) for use in range(4)]

        def network(key: PRNGKeyArray) -> MLP:
            columns = config.num_features
            return learning.init_networks(key, spec, config, config.hidden, columns, members=None)

        params = Params(
            learning.init_networks(keys[0], spec, config, config.hidden, 1, members=2),
            network(keys[1]),
        )
        return Learner(
            params=params,
            target_params=params,
            prior=network(keys[2]).tabulate(),
            opt_state=learning.init_optimizer(params),
            shared=learning.init_body(keys[3], spec, config),
            intrinsic=RunningMoments.init(),
        )

    def scores(
        self, learner: Learner, obs: Array, clock: Clock, hyper: Hyper
    ) -> Float[Array, " A"]:
        predicted = self.estimates(learner, obs, hyper)
        return predicted.value + hyper.beta * predicted.bonus

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on both TD errors and on the predictor's error."""
        inputs = learning.encode(learner.shared, batch.transitions)
        errors = jax.vmap(lambda t: self._error(learner.params.predictor, learner.prior, t))(
            inputs.transitions
        )
        assert learner.intrinsic is not None
        moments = learner.intrinsic.update(errors, memory=1.0)
        targets = jax.vmap(lambda t, n, r: self._targets(learner, hyper, t, n, r))(
            inputs.transitions, inputs.target_next_obs, errors / moments.deviation
        )

        def loss(params: Params, transition: Transition, targets: Array) -> Float[Array, ""]:
            values = select_action(params.values(transition.obs), transition.action)[:, 0]
            td_loss = 0.5 * jnp.sum((values - targets) ** 2)
            return td_loss + self._error(params.predictor, learner.prior, transition)

        params, weights, rate = learner.params, batch.weights, hyper.learning_rate
        gradients = learning.loss_and_gradient(loss, params, inputs, targets, weights)
        learner = learning.optimizer_step(learner, inputs, gradients, clock, self.config, rate)
        metrics = {"loss": gradients.loss, "intrinsic": jnp.mean(errors)}
        update = Update(priorities=gradients.losses, metrics=metrics)
        return learner._replace(intrinsic=moments), update

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Point masses at Q; the bonus is Q_i, the disagreement the predictor's error."""
        obs = learning.features(learner.shared, obs)
        value, bonus = learner.params.values(obs)[..., 0]
        errors = jnp.mean((learner.params.predictor(obs) - learner.prior(obs)) ** 2, axis=-1)
        return point_masses(value[None], value, errors)._replace(bonus=bonus)

    def value_networks(self, learner: Learner, hyper: Hyper) -> base.ValueNetworks:
        first = jax.tree.map(lambda x: x[:1], learner.params.values)
        return base.ValueNetworks(first, (None,))

    def member_names(self) -> tuple[str, ...]:
        return ("value",)

    def _error(self, predictor: MLP, random: Any, transition: Transition) -> Float[Array, ""]:
        """Mean squared error of the predictor at (s, a)."""
        apart = predictor(transition.obs) - jax.lax.stop_gradient(random(transition.obs))
        return jnp.mean(select_action(apart, transition.action) ** 2)

    def _targets(
        self,
        learner: Learner,
        hyper: Hyper,
        transition: Transition,
        target_next_obs: Array,
        intrinsic: Float[Array, ""],
    ) -> Float[Array, "2"]:
        """Targets of Q, by its greedy action, and of Q_i, by the action that the agent takes."""
        value, bonus = learner.params.values(transition.next_obs)[..., 0]
        mask = self.spec.mask_unavailable
        greedy = jnp.argmax(mask(value))
        exploratory = jnp.argmax(mask(value + hyper.beta * bonus))
        successor = learner.target_params.values(target_next_obs)[..., 0]
        rewards = jnp.stack([transition.reward, intrinsic])
        discounts = jnp.stack([jnp.asarray(hyper.gamma), jnp.asarray(hyper.bonus_gamma)])
        best = jnp.stack([successor[0, greedy], successor[1, exploratory]])
        return rewards + discounts * transition.discount * best
