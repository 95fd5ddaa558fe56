"""HyperAgent: posterior sampling by a hypermodel of the last layer (Li et al. 2024).

Values depend on a random index ξ on the unit sphere of R^M: Q(s, a, ξ) = φ(s)ᵀ (W_a ξ + b_a), plus
`prior_scale` times a fixed random function of the same form. So a network with M + 1 outputs for
each action is the whole hypermodel: the first M are multiplied by ξ, the last is the mean over ξ.
The agent acts greedily by one index, which is drawn anew at the start of an episode, and at each
step with probability 1 − γ.

Defaults are the authors' for deep sea (table in their appendix, and their program). Last layers
have no bias. Hidden layers and W_a start as in Glorot and Bengio (2010); of the prior, the hidden
layers do, and the rows of W_a are drawn from unit spheres. b_a is drawn from a unit sphere in both.
In their program the first `burn_in` steps are random; here the untrained agent acts.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from winkel.agents import base, learning
from winkel.agents.bdqn import point_masses
from winkel.agents.learning import Learner
from winkel.networks import MLP, Ensemble
from winkel.networks.mlp import add_prior, select_action
from winkel.types import Batch, Clock, Decision, Estimates, Image, Planes, Transition, Update


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: the authors' for deep sea."""

    index_size: base.Count = 4
    """M, the numbers of an index."""
    num_indices: base.Count = 20
    """Indices for each transition of a batch."""
    hidden: base.Hidden = (64, 64)
    capacity: base.Count = 1_000_000
    adam_epsilon: base.AdamEpsilon = 1.5e-4 * 128
    clip_norm: base.ClipNorm = 10.0


class Hyper(NamedTuple):
    """Hyperparameters, traced."""

    learning_rate: base.LearningRate = 1e-3
    gamma: base.Discount = 0.99
    prior_scale: base.PriorScale = 10.0
    perturbation: base.NonNegative = 0.0
    """σ: each transition has a random z on the sphere, and σ ξᵀz is added to its target. The
    authors use 0 where rewards are deterministic."""
    epsilon: base.Epsilon = 0.0
    epsilon_final: base.Epsilon = 0.0
    epsilon_steps: base.EpsilonSteps = 0.0


Targets = tuple[Float[Array, "J M"], Float[Array, " J"]]
"""What the hypermodel learns at one transition: indices, and the value at each."""


@dataclass(frozen=True)
class HyperAgent(base.Agent):
    """A hypermodel of the last layer; one index at a time decides the actions."""

    config: Config
    config_type = Config
    hyper_type = Hyper

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """A network and its prior, with the authors' weights; the target starts as a copy."""
        columns = self.config.index_size + 1
        learner = learning.init_learner(key, self, columns)
        key_params, key_prior = (jax.random.fold_in(key, use) for use in (3, 4))
        prior = learning.init_networks(key_prior, self, columns)
        params = self._draw(key_params, learner.params, rows_on_sphere=False)
        prior = self._draw(key_prior, prior, rows_on_sphere=True).tabulate()
        return learner._replace(params=params, target_params=params, prior=prior)

    def init_actor(self, key: PRNGKeyArray) -> Float[Array, " M"]:
        """The index that acts."""
        return draw_sphere(key, (self.config.index_size,))

    def act(
        self,
        learner: Learner,
        actor: Float[Array, " M"],
        obs: Array,
        first: Bool[Array, ""],
        clock: Clock,
        hyper: Hyper,
        key: PRNGKeyArray,
    ) -> tuple[Decision, Float[Array, " M"]]:
        """Act ε-greedily by the active index; draw z, the perturbation's direction, for replay."""
        keys = [jax.random.fold_in(key, use) for use in range(4)]
        renewed = first | (jax.random.uniform(keys[0]) > hyper.gamma)
        index = jnp.where(renewed, self.init_actor(keys[1]), actor)
        obs = learning.features(learner.shared, obs)
        outputs = self._outputs(learner.params, learner.prior, obs, hyper)
        epsilon = base.epsilon_schedule(clock, hyper)
        action = base.epsilon_greedy(keys[2], at_index(outputs, index), epsilon, self.spec)
        z = draw_sphere(keys[3], (self.config.index_size,))
        return Decision(action=action, extras=z), index

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on the squared TD errors of `num_indices` indices for each transition."""
        inputs = learning.encode(learner.shared, batch)
        keys = jax.random.split(key, len(batch.weights))
        target = partial(self._targets, learner, hyper)
        targets = jax.vmap(target)(keys, inputs.transitions, inputs.target_next_obs)

        def loss(params: MLP, transition: Transition, target: Targets) -> Float[Array, ""]:
            indices, values = target
            outputs = self._outputs(params, learner.prior, transition.obs, hyper)
            found = at_index(select_action(outputs, transition.action), indices)
            return jnp.mean((found - values) ** 2)

        gradients = learning.loss_and_gradient(loss, learner.params, inputs, targets)
        gradients = eqx.tree_at(  # last layers have no bias
            lambda found: found.params.layers[-1].bias, gradients, replace_fn=jnp.zeros_like
        )
        learner = learning.optimizer_step(self, learner, inputs, gradients, clock, hyper)
        return learner, Update(priorities=gradients.losses, metrics={"loss": gradients.loss})

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Mean and standard deviation of the values over indices."""
        obs = learning.features(learner.shared, obs)
        outputs = self._outputs(learner.params, learner.prior, obs, hyper)
        # On the unit sphere E[ξ ξᵀ] = I / M, so that Var_ξ Q is the mean of the M outputs' squares.
        value, deviation = outputs[:, -1], jnp.sqrt(jnp.mean(outputs[:, :-1] ** 2, axis=-1))
        return point_masses(value[None], value, deviation)

    def value_networks(self, learner: Learner, hyper: Hyper) -> base.ValueNetworks:
        """The networks of the mean: of the last layer's outputs the last of each action."""

        def mean_only(network: MLP) -> Ensemble:
            columns = self.config.index_size + 1
            kept = jax.tree.map(lambda x: x[..., columns - 1 :: columns], network.layers[-1])
            made = MLP((*network.layers[:-1], kept), rows=network.rows, columns=1)
            return jax.tree.map(lambda x: x[None], made)

        params, prior = mean_only(learner.params), mean_only(learner.prior)
        return base.ValueNetworks(params, (None,), prior, hyper.prior_scale)

    def member_names(self) -> tuple[str, ...]:
        return ("mean",)

    def _outputs(self, params: MLP, prior: MLP, obs: Array, hyper: Hyper) -> Float[Array, "A C"]:
        return add_prior(params(obs), prior, obs, hyper.prior_scale)

    def _targets(
        self,
        learner: Learner,
        hyper: Hyper,
        key: PRNGKeyArray,
        transition: Transition,
        target_next_obs: Array,
    ) -> Targets:
        """Return r + γ Q̃(s', a', ξ') + σ ξᵀz for several ξ, where a' is greedy at one random ξ'."""
        key_indices, key_next = jax.random.split(key)
        size = self.config.index_size
        indices = draw_sphere(key_indices, (self.config.num_indices, size))
        next_index = draw_sphere(key_next, (size,))
        online = self._outputs(learner.params, learner.prior, transition.next_obs, hyper)
        greedy = jnp.argmax(self.spec.mask_unavailable(at_index(online, next_index)))
        target = self._outputs(learner.target_params, learner.prior, target_next_obs, hyper)
        successor = at_index(target, next_index)[greedy]
        value = transition.reward + hyper.gamma * transition.discount * successor
        return indices, value + hyper.perturbation * indices @ transition.extras

    def _draw(self, key: PRNGKeyArray, network: MLP, rows_on_sphere: bool) -> MLP:
        """The network with the authors' weights; `rows_on_sphere` for W_a of a prior."""
        *layers, last = network.layers
        spec = self.spec
        has_body = isinstance(spec.observation, Image | Planes)

        def scaled(layer: Any) -> Array:
            fan_in, fan_out = layer.weight.shape
            if layer is layers[0] and not has_body:  # its table may lack cells, or be padded
                fan_in = spec.inputs if spec.fan_in is None else spec.fan_in
            smaller = jnp.sqrt(fan_in / (fan_in + fan_out))  # from He's deviation to Glorot's
            return smaller * layer.weight

        features, actions, size = last.weight.shape[0], spec.num_actions, self.config.index_size
        shape = features, actions, size
        key_matrix, key_mean = jax.random.split(key)
        if rows_on_sphere:
            matrix = draw_sphere(key_matrix, shape)
        else:
            deviation = (2.0 / (features * actions + size)) ** 0.5
            matrix = deviation * jax.random.normal(key_matrix, shape)
        mean = draw_sphere(key_mean, (features * actions,)).reshape(features, actions, 1)
        weight = jnp.concatenate([matrix, mean], axis=-1).reshape(features, -1)
        weights = [*map(scaled, layers), weight]
        return eqx.tree_at(lambda made: [layer.weight for layer in made.layers], network, weights)


def draw_sphere(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*batch M"]:
    """Draw uniformly from unit spheres: vectors along the last axis have norm 1."""
    drawn = jax.random.normal(key, shape)
    return drawn / jnp.linalg.norm(drawn, axis=-1, keepdims=True)


def at_index(outputs: Float[Array, "*A C"], indices: Float[Array, "*J M"]) -> Float[Array, "..."]:
    """Q at one index for all actions, or at several indices for one action."""
    return outputs[..., :-1] @ indices.T + outputs[..., -1]
