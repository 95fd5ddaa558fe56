"""RND: DQN with a bonus by random network distillation (Burda et al. 2019).

A predictor learns the outputs of a fixed random network. Its squared error e is large where there
was little data. Divided by the standard deviation of all e so far, it is the intrinsic reward. As
in the original there are two value functions: of rewards, and of intrinsic rewards.

The original is for PPO on images. What differs here: the networks have outputs for every action, so
that the reward is e(s, a) and not e(s'), since the last action of an episode would have none; and
intrinsic returns end with the episode. The divisor is the deviation of e itself, where theirs is of
discounted sums of e, and observations are not normalised. By default e(s, a) is added to the output
of the network, as PE-DQN adds its disagreement. Then an action has this reward before it is tried
for the first time, and the two agents differ in how they measure novelty, not in how they use it.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from winkel.agents import base, learning
from winkel.agents.base import PerAction
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
    immediate: bool = True
    """Add e(s, a) to the bonus network's output, which learns the later e; else it learns all."""
    hidden: base.Hidden = (64, 64)


class Hyper(NamedTuple):
    """Hyperparameters, traced."""

    learning_rate: base.LearningRate = 1e-3
    gamma: base.Discount = 0.99
    beta: base.NonNegative = 0.1
    """Weight of the intrinsic value."""
    bonus_gamma: base.Discount = 0.99
    """Discount factor of intrinsic rewards."""
    epsilon: base.Epsilon = 0.0
    epsilon_final: base.Epsilon = 0.0
    epsilon_steps: base.EpsilonSteps = 0.0


class Params(NamedTuple):
    """The networks that learn."""

    values: Ensemble
    """Two members: Q, and the intrinsic value Q_i."""
    predictor: MLP


@dataclass(frozen=True)
class RND(base.Agent):
    """Two value functions, of rewards and of the errors of a predictor."""

    config: Config
    config_type = Config
    hyper_type = Hyper

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """Value networks, the predictor and the fixed random network, independent."""
        keys, columns = [jax.random.fold_in(key, use) for use in range(4)], self.config.num_features
        params = Params(
            values=learning.init_networks(keys[0], self, columns=1, members=2),
            predictor=learning.init_networks(keys[1], self, columns),
        )
        return Learner(
            params=params,
            target_params=params,
            prior=learning.init_networks(keys[2], self, columns).tabulate(),
            opt_state=learning.init_optimizer(params),
            shared=learning.init_body(keys[3], self),
            intrinsic=RunningMoments.init(),
        )

    def scores(self, learner: Learner, obs: Array, clock: Clock, hyper: Hyper) -> PerAction:
        predicted = self.estimates(learner, obs, hyper)
        return predicted.value + hyper.beta * predicted.bonus

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on both TD errors and on the predictor's error."""
        inputs = learning.encode(learner.shared, batch)
        errors = jax.vmap(lambda t: _errors(learner.params, learner.prior, t.obs)[t.action])(
            inputs.transitions
        )
        learner = learner._replace(intrinsic=learner.intrinsic.update(errors, memory=1.0))
        target = partial(self._targets, learner, hyper)
        targets = jax.vmap(target)(inputs.transitions, inputs.target_next_obs)

        def loss(params: Params, transition: Transition, target: Array) -> Float[Array, ""]:
            values = select_action(params.values(transition.obs), transition.action)[:, 0]
            error = _errors(params, learner.prior, transition.obs)[transition.action]
            return 0.5 * jnp.sum((values - target) ** 2) + error

        gradients = learning.loss_and_gradient(loss, learner.params, inputs, targets)
        learner = learning.optimizer_step(self, learner, inputs, gradients, clock, hyper)
        metrics = {"loss": gradients.loss, "intrinsic": jnp.mean(errors)}
        return learner, Update(priorities=gradients.losses, metrics=metrics)

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Point masses at Q; the bonus is the intrinsic value, the disagreement the error."""
        value, bonus, errors = self._predict(learner, learning.features(learner.shared, obs))
        return point_masses(value[None], value, errors)._replace(bonus=bonus)

    def value_networks(self, learner: Learner, hyper: Hyper) -> base.ValueNetworks:
        first = jax.tree.map(lambda x: x[:1], learner.params.values)
        return base.ValueNetworks(first, (None,))

    def member_names(self) -> tuple[str, ...]:
        return ("value",)

    def _predict(self, learner: Learner, obs: Array) -> tuple[Array, Array, Array]:
        """Q(s, ·), the intrinsic value and the errors of all actions."""
        value, bonus = learner.params.values(obs)[..., 0]
        errors = _errors(learner.params, learner.prior, obs)
        return value, bonus + self.config.immediate * learner.intrinsic.apply(errors), errors

    def _targets(
        self, learner: Learner, hyper: Hyper, transition: Transition, target_next_obs: Array
    ) -> Float[Array, "2"]:
        """Targets of Q, by its greedy action, and of Q_i, by the action that the agent takes."""
        value, bonus, errors = self._predict(learner, transition.next_obs)
        mask = self.spec.mask_unavailable
        greedy = jnp.argmax(mask(value))
        exploratory = jnp.argmax(mask(value + hyper.beta * bonus))
        successor = learner.target_params.values(target_next_obs)[..., 0]
        intrinsic_discount = jnp.asarray(hyper.bonus_gamma) * transition.discount
        if self.config.immediate:
            reward = intrinsic_discount * learner.intrinsic.apply(errors)[exploratory]
        else:
            here = _errors(learner.params, learner.prior, transition.obs)[transition.action]
            reward = learner.intrinsic.apply(here)
        discount = jnp.asarray(hyper.gamma) * transition.discount
        of_value = transition.reward + discount * successor[0, greedy]
        return jnp.stack([of_value, reward + intrinsic_discount * successor[1, exploratory]])


def _errors(params: Params, random: Any, obs: Array) -> PerAction:
    """Mean squared error e(s, ·) of the predictor for every action."""
    return jnp.mean((params.predictor(obs) - jax.lax.stop_gradient(random(obs))) ** 2, axis=-1)
