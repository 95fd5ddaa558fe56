"""IDS-C51: information-directed sampling (Nikolov et al. 2019), with the paper's information gain.

An ensemble of bootstrapped DQN says how uncertain values are, a C51 model how noisy returns are.
The action trades what it may cost for what it tells: argmin_a Δ̂(s, a)² / I(s, a).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from winkel.agents import base, bdqn, single
from winkel.agents.base import Number, Spec
from winkel.distributions import variance
from winkel.errors import InputError, require_integer
from winkel.exploration import Scalar, linear_decay
from winkel.projections import Categorical
from winkel.types import Atoms, Batch, Clock, Decision, Estimates, Update

ADDED_VARIANCE = 1e-4
"""ε_1, which the paper adds to the return variances."""
LEAST_NOISE = 0.25
"""Where Nikolov et al. clip ρ²."""
LEAST_GAIN = 1e-5
"""ε_2, which keeps the information gain from 0."""


@dataclass(frozen=True, kw_only=True)
class Config:
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
    batch_size: int = 128
    """Transitions of an update; there is one update for each step."""
    capacity: int = 10_000
    """Transitions that replay holds."""
    burn_in: int = 128
    """Steps before the first update."""
    target_period: int = 4
    """Updates between copies into the target networks."""

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
    z_min: Number = base.BY_ENVIRONMENT
    z_max: Number = base.BY_ENVIRONMENT
    """Support of C51."""


class Learner(NamedTuple):
    """Two models that learn side by side."""

    ensemble: bdqn.Learner
    c51: single.Learner


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
        key_ensemble, key_c51 = (jax.random.fold_in(key, use) for use in range(2))
        config = self.config
        return Learner(
            ensemble=bdqn.init(
                key_ensemble, self.spec, count=config.num_members, hidden=config.hidden, prior=True
            ),
            c51=single.init(
                key_c51,
                self.spec,
                hidden=config.c51_hidden,
                num_atoms=config.num_atoms,
                prior=True,
            ),
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
        """argmin_a Δ̂² / I, and a draw of which members will learn from this."""
        beliefs = self._beliefs(learner, obs, hyper)
        available = self.spec.available
        lost = regret(beliefs.value, beliefs.spread, self._beta(clock, hyper), available)
        ratio = root_ratio(lost, beliefs.gain)
        decision = Decision(
            action=jnp.argmax(base.possible(-ratio, available)),
            extras=bdqn.draw_mask(key, self.config.num_members, hyper.mask_probability),
        )
        return decision, actor

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step of each model, on its own loss and with its own learning rate."""
        ensemble, told = bdqn.update(
            learner.ensemble,
            batch,
            clock,
            masks=batch.transitions.extras,
            learning_rate=hyper.learning_rate,
            gamma=hyper.gamma,
            prior_scale=hyper.prior_scale,
            double=self.config.double,
            huber_width=self.config.huber_width,
            target_period=self.config.target_period,
            available=self.spec.available,
        )
        c51, told_c51 = single.update(
            self._projection(hyper),
            learner.c51,
            batch,
            clock,
            learning_rate=hyper.c51_learning_rate,
            gamma=hyper.gamma,
            prior_scale=hyper.c51_prior_scale,
            target_period=self.config.target_period,
            available=self.spec.available,
        )
        update = Update(
            priorities=told.priorities + told_c51.priorities,
            metrics={
                "loss": told.metrics["loss"] + told_c51.metrics["loss"],
                "clipped": told_c51.metrics["clipped"],
                "beta": self._beta(clock, hyper),
            },
        )
        return Learner(ensemble=ensemble, c51=c51), update

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
        ensemble, c51 = learner
        values = bdqn.values(ensemble.params, ensemble.prior, obs, hyper.prior_scale)
        returns = single.predict(
            self._projection(hyper), c51.params, c51.prior, obs, hyper.c51_prior_scale
        )
        spread = jnp.std(values, axis=0)
        noise = NOISES[self.config.noise](jax.vmap(variance)(returns), self.spec.available)
        return Beliefs(
            value=jnp.mean(values, axis=0),
            spread=spread,
            returns=returns,
            gain=information_gain(spread, noise),
        )


def noise_epsilon(
    variances: Float[Array, " A"], available: Int[Array, ""] | None = None
) -> Float[Array, " A"]:
    """ρ_ε²: return variances relative to their mean, ε_1 added to both (App. B)."""
    return (variances + ADDED_VARIANCE) / (ADDED_VARIANCE + _average(variances, available))


def noise_clipped(
    variances: Float[Array, " A"], available: Int[Array, ""] | None = None
) -> Float[Array, " A"]:
    """ρ²: return variances relative to their mean, at least 0.25; 1 where no return varies."""
    average = _average(variances, available)
    relative = jnp.where(average > 0, variances / average, 1.0)
    return jnp.maximum(relative, LEAST_NOISE)


def _average(variances: Float[Array, " A"], available: Int[Array, ""] | None) -> Float[Array, ""]:
    """The mean over the actions that there are."""
    if available is None:
        return jnp.mean(variances)
    there = jnp.arange(len(variances)) < available
    return jnp.sum(jnp.where(there, variances, 0.0)) / available


NOISES: Mapping[str, Callable[[Array, Array | None], Array]] = {
    "epsilon": noise_epsilon,
    "clipped": noise_clipped,
}
"""ρ² of every action, from the return variances of all."""


def information_gain(spread: Float[Array, " A"], noise: Float[Array, " A"]) -> Float[Array, " A"]:
    """I = log(1 + σ²/ρ²) + ε_2, from σ and ρ²."""
    return jnp.log1p(spread**2 / noise) + LEAST_GAIN


def regret(
    value: Float[Array, " A"],
    spread: Float[Array, " A"],
    beta: Scalar,
    available: Int[Array, ""] | None = None,
) -> Float[Array, " A"]:
    """Δ̂(a) = max_a' (μ(a') + β σ(a')) − (μ(a) − β σ(a)), the most that an action may cost.

    Never negative; with β = 0 it is 0 for the greedy action, exactly.
    """
    best = jnp.max(base.possible(value + beta * spread, available))
    return best - (value - beta * spread)


def root_ratio(lost: Float[Array, " A"], gain: Float[Array, " A"]) -> Float[Array, " A"]:
    """Δ̂ / I^½, which orders actions as Δ̂² / I does but cannot round a small regret to 0.

    So when β has come to its end at 0, no other action ties with the greedy one.
    """
    return lost / jnp.sqrt(gain)
