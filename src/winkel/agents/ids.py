"""IDS-C51: information-directed sampling (Nikolov et al. 2019), with the paper's information gain.

An ensemble of bootstrapped DQN says how uncertain values are, a C51 model how noisy returns are.
The action trades what it may cost for what it tells: argmin_a Δ̂(s, a)² / I(s, a).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from winkel.agents import base, descent, ensembles, images, single
from winkel.agents.base import Number, Spec
from winkel.agents.descent import Rule
from winkel.agents.images import Shared
from winkel.agents.information import (
    NOISES,
    information_gain,
    noise_clipped,
    noise_epsilon,
    regret,
    root_ratio,
)
from winkel.agents.settings import Settings
from winkel.distributions import variance
from winkel.errors import InputError, require_integer
from winkel.exploration import epsilon_greedy, linear_decay
from winkel.projections import Categorical
from winkel.types import Atoms, Batch, Clock, Decision, Estimates, Update

__all__ = [
    "IDS",
    "NOISES",
    "Config",
    "Hyper",
    "Learner",
    "information_gain",
    "noise_clipped",
    "noise_epsilon",
    "regret",
    "root_ratio",
]


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """What shapes the program. Defaults: the paper's settings for bsuite (table in App. B)."""

    noise: Literal["epsilon", "clipped"] = "epsilon"
    """ρ² in the information gain: the paper's ρ_ε², or clipped as Nikolov et al. do."""
    num_members: int = 20
    """M of the ensemble of values, any number from 1."""
    double: bool = False
    """A member's online network chooses the action that its target network evaluates."""
    huber_width: float = 0.0
    """Width of the Huber loss of the members' TD errors; 0 for the squared loss."""
    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of every network of the ensemble."""
    c51_hidden: tuple[int, ...] = (512,)
    """Hidden layers of the C51 networks."""
    num_atoms: int = 101
    """K of the C51 model."""

    def __post_init__(self) -> None:
        base.check_learning(self)
        base.check_names("noise", (self.noise,), NOISES)
        require_integer("num_members", self.num_members, at_least=1)
        for width in self.c51_hidden:
            require_integer("width of each hidden layer of C51", width, at_least=1)
        if not 0.0 <= self.huber_width < float("inf"):
            raise InputError(f"need a finite huber_width >= 0, got {self.huber_width}")
        Categorical.spanning(self.num_atoms, 0.0, 1.0)


class Hyper(NamedTuple):
    """What one tunes."""

    learning_rate: Number = 1e-3
    """Of the ensemble."""
    c51_learning_rate: Number = 5e-4
    gamma: Number = 0.99
    prior_scale: Number = 20.0
    """Of the ensemble."""
    c51_prior_scale: Number = 5.0
    mask_probability: Number = 1.0
    """Chance of each member to learn from a transition; all learn from all in bsuite."""
    beta: Number = 5.0
    beta_final: Number = 0.0
    beta_decay: Number = 1 / 3
    """Share of the horizon over which β falls linearly."""
    epsilon: Number = 0.0
    """Chance of an action that is not chosen so."""
    epsilon_final: Number = 0.0
    epsilon_steps: Number = 0.0
    """Steps over which ε falls to its final value; with 0 it stays what it is."""
    z_min: Number = base.BY_ENVIRONMENT
    z_max: Number = base.BY_ENVIRONMENT
    """Support of C51."""


class Learner(NamedTuple):
    """Two models that learn side by side, on images as heads of one body."""

    ensemble: ensembles.Learner
    c51: single.Learner
    shared: Shared | None = None


class Beliefs(NamedTuple):
    """What both models say about one observation.

    Attributes:
        value: μ, the mean of the ensemble.
        spread: σ, its standard deviation.
        returns: C51's distributions, [A, K].
        gain: I.
    """

    value: Float[Array, " A"]
    spread: Float[Array, " A"]
    returns: Atoms
    gain: Float[Array, " A"]


@dataclass(frozen=True)
class IDS:
    """Bootstrapped DQN and C51, whose ratio of squared regret to information chooses."""

    config: Config
    spec: Spec

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """Independent networks, all with priors; the target networks start as copies."""
        key_ensemble, key_c51, key_body = (jax.random.fold_in(key, use) for use in range(3))
        config = self.config
        ensemble = ensembles.init(
            key_ensemble,
            self.spec,
            config,
            count=config.num_members,
            hidden=config.hidden,
            prior=True,
        )
        c51 = single.init(
            key_c51,
            self.spec,
            config,
            hidden=config.c51_hidden,
            num_atoms=config.num_atoms,
            prior=True,
        )
        return Learner(
            ensemble=ensemble._replace(shared=None),
            c51=c51._replace(shared=None),
            shared=images.init(key_body, self.spec, config),
        )

    def init_actor(self, key: PRNGKeyArray) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def act(
        self,
        learner: Learner,
        actor: tuple[()],
        obs: Array,
        first: Bool[Array, ""],
        clock: Clock,
        hyper: Hyper,
        key: PRNGKeyArray,
    ) -> tuple[Decision, tuple[()]]:
        """argmin_a Δ̂² / I or with probability ε any, and a draw of which members will learn."""
        beliefs = self._beliefs(learner, obs, hyper)
        available = self.spec.available
        lost = regret(beliefs.value, beliefs.spread, self._beta(clock, hyper), available)
        ratio = root_ratio(lost, beliefs.gain)
        score = base.possible(-ratio, available)
        key_explore = jax.random.fold_in(key, 0)
        decision = Decision(
            action=epsilon_greedy(key_explore, score, base.epsilon(clock, hyper), available),
            extras=ensembles.draw_mask(key, self.config.num_members, hyper.mask_probability),
        )
        return decision, actor

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step of each model, on its own loss and with its own learning rate.

        A body gets both gradients, and the ensemble's learning rate.
        """
        config, size = self.config, len(batch.weights)
        seen = images.see(learner.shared, batch.transitions)
        told = ensembles.lesson(
            learner.ensemble,
            seen,
            batch.weights,
            masks=batch.transitions.extras,
            gamma=hyper.gamma,
            prior_scale=hyper.prior_scale,
            double=config.double,
            huber_width=config.huber_width,
            available=self.spec.available,
        )
        told_c51, metrics = single.lesson(
            self._projection(hyper),
            learner.c51,
            seen,
            batch.weights,
            gamma=hyper.gamma,
            prior_scale=hyper.c51_prior_scale,
            available=self.spec.available,
        )
        torso = descent.pulled(seen, descent.summed(told.slopes, told_c51.slopes))
        gradients, gradients_c51, torso = descent.clipped(
            (told.gradients, told_c51.gradients, torso),
            (learner.ensemble.params, learner.c51.params, descent.of_torso(seen)),
            config.clip_norm,
        )
        rule = Rule.of(config, hyper.learning_rate, size)
        rule_c51 = Rule.of(config, hyper.c51_learning_rate, size)
        learner = Learner(
            ensemble=descent.stepped(learner.ensemble, gradients, clock, rule),
            c51=descent.stepped(learner.c51, gradients_c51, clock, rule_c51),
            shared=descent.body_stepped(seen.shared, torso, clock, rule),
        )
        update = Update(
            priorities=told.losses + told_c51.losses,
            metrics={
                "loss": told.total + metrics["loss"],
                "clipped": metrics["clipped"],
                "beta": self._beta(clock, hyper),
            },
        )
        return learner, update

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """μ of the ensemble, C51's distributions, σ as disagreement and I as bonus."""
        beliefs = self._beliefs(learner, obs, hyper)
        return Estimates(
            value=beliefs.value,
            members=jax.tree.map(lambda x: x[None], beliefs.returns),
            disagreement=beliefs.spread,
            bonus=beliefs.gain,
        )

    def member_names(self) -> tuple[str, ...]:
        """The model that has distributions."""
        return ("c51",)

    def _projection(self, hyper: Hyper) -> Categorical:
        z_min, z_max = jnp.asarray(hyper.z_min), jnp.asarray(hyper.z_max)
        return Categorical(num_atoms=self.config.num_atoms, z_min=z_min, z_max=z_max)

    def _beta(self, clock: Clock, hyper: Hyper) -> Float[Array, ""]:
        return linear_decay(hyper.beta, hyper.beta_final, hyper.beta_decay, clock.progress)

    def _beliefs(self, learner: Learner, obs: Array, hyper: Hyper) -> Beliefs:
        ensemble, c51 = learner.ensemble, learner.c51
        seen = images.features(learner.shared, obs)
        values = ensembles.values(ensemble.params, ensemble.prior, seen, hyper.prior_scale)
        returns = single.predict(
            self._projection(hyper), c51.params, c51.prior, seen, hyper.c51_prior_scale
        )
        spread = jnp.std(values, axis=0)
        noise = NOISES[self.config.noise](jax.vmap(variance)(returns), self.spec.available)
        return Beliefs(
            value=jnp.mean(values, axis=0),
            spread=spread,
            returns=returns,
            gain=information_gain(spread, noise),
        )
