"""DLTV: decaying left truncated variance (Mavrin et al. 2019), with a randomized prior function.

One quantile model. Actions maximise value + β_t · spread of the upper half of the quantiles, where
β_t decays as sqrt(log t / t). The prior is the PE-DQN paper's, which finds it crucial (App. B).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from winkel.agents import base
from winkel.agents.base import PerAction
from winkel.agents.distributional import SingleModel
from winkel.agents.learning import Learner
from winkel.types import Clock, Estimates

TIME_SCALE = 1000.0
"""α t at the end of the horizon: α is 10³ / N_episodes (bsuite) or 10³ / N_frames (VizDoom)."""


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: the paper's for bsuite (table in App. B)."""

    prior: bool = True
    """Add a fixed random network to the quantiles."""
    bonus_form: Literal["deviation", "variance"] = "deviation"
    """sqrt(σ²_+) as Mavrin et al., or 4 σ²_+ of sorted quantiles as the authors' code."""
    huber_width: base.HuberWidth = 0.0
    hidden: base.Hidden = (512,)
    num_atoms: base.NumAtoms = 101


class Hyper(NamedTuple):
    """Hyperparameters, traced."""

    learning_rate: base.LearningRate = 1e-3
    gamma: base.Discount = 0.99
    prior_scale: base.PriorScale = 20.0
    beta: base.NonNegative = 5.0
    """β₀ of the schedule β₀ sqrt(log(αt) / αt), which starts at 0.61 β₀."""
    epsilon: base.Epsilon = 0.0
    epsilon_final: base.Epsilon = 0.0
    epsilon_steps: base.EpsilonSteps = 0.0


@dataclass(frozen=True)
class DLTV(SingleModel):
    """A quantile model; the spread of its upper half is the bonus."""

    config: Config
    config_type = Config
    hyper_type = Hyper
    model = "quantile"

    def scores(self, learner: Learner, obs: Array, clock: Clock, hyper: Hyper) -> PerAction:
        """Q(s, ·) + β_t b(s, ·), with the bonus b = sqrt(σ²_+) or as `bonus_form` says."""
        estimates = self.estimates(learner, obs, hyper)
        return estimates.value + self.schedules(clock, hyper)["beta"] * estimates.bonus

    def schedules(self, clock: Clock, hyper: Hyper) -> dict[str, Float[Array, ""]]:
        """β_t at the share of the horizon that is done."""
        return {"beta": dltv_schedule(hyper.beta, TIME_SCALE * clock.progress)}

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """The one model, and the bonus: sqrt(σ²_+), or 2/K Σ_{j=m}^K (θ_j − θ_m)² of sorted θ."""
        plain = super().estimates(learner, obs, hyper)
        theta, spread = jnp.asarray(plain.members.locations)[0], jax.vmap(left_truncated_variance)
        if self.config.bonus_form == "variance":
            return plain._replace(bonus=4.0 * spread(jnp.sort(theta, axis=-1)))
        return plain._replace(bonus=jnp.sqrt(spread(theta)))


def left_truncated_variance(theta: Float[Array, " K"]) -> Float[Array, ""]:
    """σ²_+ = 1/(2K) Σ_{j=m}^K (θ_j − θ_m)², with the median θ_m at m = ⌈K/2⌉ (counted from 1).

    For odd K that is the middle quantile, of level 1/2 exactly, and the sum is over it and the
    (K − 1)/2 above. For even K it is the lower of the middle two, θ_{K/2} as Mavrin et al. write,
    and the sum is over it and the K/2 above. Quantiles are in the order of their levels, also where
    a network's outputs are not increasing.
    """
    count = len(theta)
    upper = theta[(count - 1) // 2 :]
    return jnp.sum((upper - upper[0]) ** 2) / (2 * count)


def dltv_schedule(start: base.Number, scaled_time: base.Number) -> Float[Array, ""]:
    """β₀ sqrt(log(αt) / αt).

    The logarithm is negative before αt = 1 and the whole increases up to αt = e; earlier times
    count as e, so that β starts at β₀ e^(−1/2) and never increases.
    """
    t = jnp.maximum(jnp.asarray(scaled_time, float), jnp.e)
    return start * jnp.sqrt(jnp.log(t) / t)
