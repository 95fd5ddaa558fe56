"""DLTV: decaying left truncated variance (Mavrin et al. 2019), with a randomized prior function.

A single quantile model; the spread of its upper half is the bonus of optimistic choice, and the
bonus fades as sqrt(log t / t). Mavrin et al. use no prior, which the paper finds crucial (App. B).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from winkel.agents import base, images, single
from winkel.agents.base import Number, Spec
from winkel.agents.settings import Settings
from winkel.agents.single import Learner
from winkel.exploration import dltv_decay, epsilon_greedy
from winkel.projections import Quantile
from winkel.types import Atoms, Batch, Clock, Decision, Estimates, Update

TIME_SCALE = 1000.0
"""α t at the end of the horizon: α is 10³ / N_episodes (bsuite) or 10³ / N_frames (VizDoom)."""


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """What shapes the program. Defaults: the paper's settings for bsuite (table in App. B)."""

    prior: bool = True
    """Add a fixed random network to the quantiles."""
    huber_width: float = 0.0
    """Width of the Huber loss; 0 for plain quantile regression."""
    hidden: tuple[int, ...] = (512,)
    """Hidden layers of every network."""
    num_atoms: int = 101
    """K."""

    def __post_init__(self) -> None:
        base.check_learning(self)
        Quantile(num_atoms=self.num_atoms, huber_width=self.huber_width)


class Hyper(NamedTuple):
    """What one tunes."""

    learning_rate: Number = 1e-3
    gamma: Number = 0.99
    prior_scale: Number = 20.0
    beta: Number = 5.0
    """β₀, of which the schedule is a fraction from the start."""
    epsilon: Number = 0.0
    """Chance of an action that is not chosen so."""
    epsilon_final: Number = 0.0
    epsilon_steps: Number = 0.0
    """Steps over which ε falls to its final value; with 0 it stays what it is."""


@dataclass(frozen=True)
class DLTV:
    """A quantile model whose upper spread is the bonus of optimistic choice."""

    config: Config
    spec: Spec

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """A fresh network."""
        return single.init(
            key,
            self.spec,
            self.config,
            hidden=self.config.hidden,
            num_atoms=self.config.num_atoms,
            prior=self.config.prior,
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
        """argmax_a Q(s, a) + β_t sqrt(σ²_+(s, a)), or with probability ε any."""
        predicted = self._predict(learner, obs, hyper)
        score = single.action_values(predicted) + _beta(clock, hyper) * _bonus(predicted)
        available = self.spec.available
        score = base.possible(score, available)
        action = epsilon_greedy(key, score, base.epsilon(clock, hyper), available)
        return Decision(action=action), actor

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step of quantile regression; the target's action is greedy by the mean."""
        learner, update = single.update(
            self._projection(),
            learner,
            batch,
            clock,
            self.config,
            learning_rate=hyper.learning_rate,
            gamma=hyper.gamma,
            prior_scale=hyper.prior_scale,
            available=self.spec.available,
        )
        metrics = {**update.metrics, "beta": _beta(clock, hyper)}
        return learner, update._replace(metrics=metrics)

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """The one model, and the bonus sqrt(σ²_+)."""
        predicted = self._predict(learner, obs, hyper)
        return single.estimates(predicted, bonus=_bonus(predicted))

    def member_names(self) -> tuple[str, ...]:
        """The projection."""
        return ("quantile",)

    def _projection(self) -> Quantile:
        return Quantile(num_atoms=self.config.num_atoms, huber_width=self.config.huber_width)

    def _predict(self, learner: Learner, obs: Array, hyper: Hyper) -> Atoms:
        seen = images.features(learner.shared, obs)
        return single.predict(
            self._projection(), learner.params, learner.prior, seen, hyper.prior_scale
        )


def left_truncated_variance(theta: Float[Array, " K"]) -> Float[Array, ""]:
    """σ²_+ = 1/(2K) Σ_{j=m}^K (θ_j − θ_m)², with the median θ_m at m = ⌈K/2⌉ (counted from 1).

    For odd K that is the middle quantile, of level 1/2 exactly, and the sum runs over it and the
    (K − 1)/2 above. For even K it is the lower of the middle two, θ_{K/2} as Mavrin et al. write,
    and the sum runs over it and the K/2 above. Quantiles stand in the order of their levels; a
    network that has them cross is taken at its word.
    """
    count = len(theta)
    upper = theta[(count - 1) // 2 :]
    return jnp.sum((upper - upper[0]) ** 2) / (2 * count)


def _bonus(predicted: Atoms) -> Float[Array, " A"]:
    return jnp.sqrt(jax.vmap(left_truncated_variance)(jnp.asarray(predicted.locations)))


def _beta(clock: Clock, hyper: Hyper) -> Float[Array, ""]:
    return dltv_decay(hyper.beta, TIME_SCALE * clock.progress)
