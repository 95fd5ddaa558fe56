"""IDS-C51: information-directed sampling (Nikolov et al. 2019), as in the PE-DQN paper.

An ensemble of bootstrapped DQN gives the uncertainty σ of values, a C51 model the noise ρ² of
returns. The action minimises squared regret over information gain: argmin_a Δ̂(s, a)² / I(s, a).
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from winkel.agents import base, bdqn, distributional, learning
from winkel.agents.base import PerAction
from winkel.distributions import variance
from winkel.errors import require_integer
from winkel.projections import Projection
from winkel.types import Batch, Clock, Decision, Estimates, Update

ADDED_VARIANCE = 1e-4
"""ε_1, which the paper adds to the return variances."""
LEAST_NOISE = 0.25
"""Lower bound of ρ² in Nikolov et al."""
LEAST_GAIN = 1e-5
"""ε_2, which keeps the information gain from 0."""


def relative_noise(
    form: str, variances: PerAction, where: Bool[Array, " A"] | None = None
) -> PerAction:
    """ρ², variances of returns relative to their mean over actions, in one of two forms.

    "epsilon": ε_1 is added to both (App. B). "clipped": at least 0.25, and 1 if no return varies.
    """
    average = jnp.mean(variances, where=where)
    if form == "epsilon":
        return (variances + ADDED_VARIANCE) / (ADDED_VARIANCE + average)
    relative = jnp.where(average > 0, variances / average, 1.0)
    return jnp.maximum(relative, LEAST_NOISE)


def information_gain(deviation: PerAction, noise: PerAction) -> PerAction:
    """I = log(1 + σ²/ρ²) + ε_2, from σ and ρ²."""
    return jnp.log1p(deviation**2 / noise) + LEAST_GAIN


def regret(
    value: PerAction,
    deviation: PerAction,
    beta: base.Number,
    where: Bool[Array, " A"] | None = None,
) -> PerAction:
    """Δ̂(a) = max_a' (μ(a') + β σ(a')) − (μ(a) − β σ(a)), an upper bound of the regret.

    Never negative; with β = 0 it is exactly 0 for the greedy action.
    """
    best = jnp.max(value + beta * deviation, where=where, initial=-jnp.inf)
    return best - (value - beta * deviation)


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: the paper's for bsuite (table in App. B)."""

    noise: Literal["epsilon", "clipped"] = "epsilon"
    """ρ² in the information gain: the paper's ρ_ε², or clipped as in Nikolov et al."""
    num_members: base.Count = 20
    """M of the ensemble of values."""
    unbiased: bool = False
    """σ² of the members divides by M − 1, as in the code of the paper's authors, not M."""
    double: bool = False
    """A member's online network chooses the action that its target network evaluates."""
    huber_width: base.HuberWidth = 0.0
    hidden: base.Hidden = (64, 64)
    c51_hidden: base.Hidden = (512,)
    """Widths of the hidden layers of the C51 networks."""
    num_atoms: base.NumAtoms = 101
    """Atoms of the C51 model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unbiased:
            require_integer("num_members if unbiased", self.num_members, at_least=2)


class Hyper(NamedTuple):
    """Hyperparameters, traced.

    γ belongs to both models; `z_min`, `z_max` and what is named `c51` to C51; β and ε to the choice
    of actions; all else to the ensemble.
    """

    learning_rate: base.LearningRate = 1e-3
    c51_learning_rate: base.LearningRate = 5e-4
    gamma: base.Discount = 0.99
    prior_scale: base.PriorScale = 20.0
    c51_prior_scale: base.PriorScale = 5.0
    mask_probability: base.Probability = 1.0
    """Probability that a member learns from a transition; 1 in bsuite."""
    beta: base.NonNegative = 5.0
    """Weight β of σ in the regret at the start, λ of Nikolov et al."""
    beta_final: base.NonNegative = 0.0
    """β after its decay."""
    beta_decay: base.HorizonShare = 1 / 3
    epsilon: base.Epsilon = 0.0
    epsilon_final: base.Epsilon = 0.0
    epsilon_steps: base.EpsilonSteps = 0.0
    z_min: base.Support = base.BY_ENVIRONMENT
    z_max: base.Support = base.BY_ENVIRONMENT


class TwoLearners(NamedTuple):
    """Two models that learn side by side, on images as heads of one body."""

    ensemble: learning.Learner
    c51: learning.Learner
    shared: learning.Learner | None = None


@dataclass(frozen=True)
class IDS(base.Agent):
    """Bootstrapped DQN and C51; actions have the least squared regret per information gain."""

    config: Config
    config_type = Config
    hyper_type = Hyper

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> TwoLearners:
        """Independent networks, all with priors; the target networks start as copies."""
        key_ensemble, key_c51, key_body = (jax.random.fold_in(key, use) for use in range(3))
        make, config = partial(learning.init_learner, agent=self, prior=True), self.config
        ensemble = make(key_ensemble, columns=1, members=config.num_members)
        c51 = make(key_c51, columns=config.num_atoms, hidden=config.c51_hidden)
        return TwoLearners(
            ensemble=ensemble._replace(shared=None),
            c51=c51._replace(shared=None),
            shared=learning.init_body(key_body, self),
        )

    def act(
        self,
        learner: TwoLearners,
        actor: tuple[()],
        obs: Array,
        first: Bool[Array, ""],
        clock: Clock,
        hyper: Hyper,
        key: PRNGKeyArray,
    ) -> tuple[Decision, tuple[()]]:
        """argmin_a Δ̂² / I, or with probability ε a random action; draw a mask for the members."""
        estimates = self.estimates(learner, obs, hyper)
        beta, epsilon = self._beta(clock, hyper), base.epsilon_schedule(clock, hyper)
        regrets = regret(estimates.value, estimates.disagreement, beta, self.spec.available_actions)
        # Δ̂ / I^½ orders actions as Δ̂² / I does, but does not round a small regret to 0: for β = 0
        # no other action ties with the greedy one.
        score = -(regrets / jnp.sqrt(estimates.bonus))
        action = base.epsilon_greedy(jax.random.fold_in(key, 0), score, epsilon, self.spec)
        mask = jax.random.bernoulli(key, hyper.mask_probability, (self.config.num_members,))
        return Decision(action=action, extras=mask), actor

    def update(
        self, learner: TwoLearners, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[TwoLearners, Update]:
        """One step of each model, on its own loss and with its own learning rate.

        A body gets both gradients, and the ensemble's learning rate.
        """
        config, masks = self.config, batch.transitions.extras
        inputs = learning.encode(learner.shared, batch)
        of_values = bdqn.td_gradient(self, learner.ensemble, inputs, masks, hyper)
        of_c51, metrics = distributional.projected_gradient(
            self._projection(hyper), learner.c51, inputs, self.spec,
            gamma=hyper.gamma, prior_scale=hyper.c51_prior_scale,
        )  # fmt: skip
        in_ensemble, in_c51, in_body = learning.clip_by_global_norm(
            (of_values.params, of_c51.params, learning.body_gradient(inputs, of_values, of_c51)),
            config.clip_norm,
        )
        rate, c51_rate, shared = hyper.learning_rate, hyper.c51_learning_rate, inputs.shared
        if shared is not None:
            shared = learning.adam_step(shared, in_body, clock, config, rate)
        learner = TwoLearners(
            ensemble=learning.adam_step(learner.ensemble, in_ensemble, clock, config, rate),
            c51=learning.adam_step(learner.c51, in_c51, clock, config, c51_rate),
            shared=shared,
        )
        metrics = {
            "loss": of_values.loss + metrics["loss"],
            "clipped": metrics["clipped"],
            "beta": self._beta(clock, hyper),
        }
        return learner, Update(priorities=of_values.losses + of_c51.losses, metrics=metrics)

    def estimates(self, learner: TwoLearners, obs: Array, hyper: Hyper) -> Estimates:
        """μ of the ensemble, C51's distributions, σ as disagreement and I as bonus."""
        ensemble, obs = learner.ensemble, learning.features(learner.shared, obs)
        values = bdqn.values(ensemble.params, ensemble.prior, obs, hyper.prior_scale)
        returns = distributional.predict(
            self._projection(hyper), learner.c51, obs, hyper.c51_prior_scale
        )
        deviation = jnp.std(values, axis=0, ddof=int(self.config.unbiased))
        variances = jax.vmap(variance)(returns)
        noise = relative_noise(self.config.noise, variances, self.spec.available_actions)
        return Estimates(
            value=jnp.mean(values, axis=0),
            members=jax.tree.map(lambda x: x[None], returns),
            disagreement=deviation,
            bonus=information_gain(deviation, noise),
        )

    def value_networks(self, learner: TwoLearners, hyper: Hyper) -> base.ValueNetworks:
        ensemble, projections = learner.ensemble, (None,) * self.config.num_members
        return base.ValueNetworks(ensemble.params, projections, ensemble.prior, hyper.prior_scale)

    def member_names(self) -> tuple[str, ...]:
        """The model that has distributions."""
        return ("c51",)

    def _projection(self, hyper: Hyper) -> Projection:
        return learning.make_projection("categorical", self.config, hyper.z_min, hyper.z_max)

    def _beta(self, clock: Clock, hyper: Hyper) -> Float[Array, ""]:
        return base.linear_schedule(hyper.beta, hyper.beta_final, hyper.beta_decay, clock.progress)
