"""The models of PE-DQN: what a projection ensemble believes, and what it is to learn.

Members model the return distribution, each by its own projection, and share one mixture target
(section 4). How far they are apart in w_1 is what the bonus sums up.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from winkel.agents import base
from winkel.agents.base import Number, Spec
from winkel.agents.images import Shared
from winkel.agents.intrinsic import Moments
from winkel.agents.settings import Settings
from winkel.distributions import bootstrap, disagreement, mean, mixture
from winkel.errors import InputError, require_integer
from winkel.exploration import optimistic
from winkel.networks import Ensemble
from winkel.networks.ensemble import with_prior
from winkel.projections import PROJECTIONS, Categorical, Projection
from winkel.types import Atoms, Transition


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """What shapes the program. Defaults: the paper's settings for bsuite (table in App. B)."""

    projections: tuple[str, ...] = ("quantile", "categorical")
    """The members: names from the table of projections; the ensemble is as long as this."""
    priors: tuple[str, ...] = ("quantile",)
    """Projections whose value models carry a prior function; () for none."""
    backup: Literal["mixture", "independent"] = "mixture"
    """What members learn from: the mixture's target, or each its own."""
    propagate: bool = True
    """Learn the bonus as a sum of future disagreement; else the disagreement is the bonus."""
    intrinsic_reward: Literal["prior", "learned"] = "prior"
    """Disagreement enters the bonus as a known term of it, or is learned as its reward."""
    episodic_bonus: bool = True
    """No bonus is to be had after the end of an episode."""
    normalise_intrinsic: bool = False
    """Disagreement counts in units of its running standard deviation, where it is a reward."""
    average_bonus: bool = False
    """The bonus is a discounted average of such rewards, 1 − γⁿ times their sum."""
    distance: Literal["exact", "grid"] = "exact"
    """w_1 of the members, or of their projections onto the categorical grid."""
    huber_width: float = 0.0
    """Width of the Huber loss of quantile members; 0 for plain quantile regression."""
    hidden: tuple[int, ...] = (512,)
    """Hidden layers of every network."""
    num_atoms: int = 101
    """K, of each member."""
    kernels: bool = True
    """Use the kernels of `agents.fused` on a GPU, where they know the configuration."""

    def __post_init__(self) -> None:
        base.check_learning(self)
        base.check_names("projections", self.projections, PROJECTIONS)
        require_integer("number of projections", len(self.projections), at_least=2)
        if not 0.0 <= self.huber_width < float("inf"):
            raise InputError(f"need a finite huber_width >= 0, got {self.huber_width}")
        for name in self.projections:
            PROJECTIONS[name].spanning(self.num_atoms, 0.0, 1.0)
        base.check_names("priors", self.priors, dict.fromkeys(self.projections))

    @property
    def carriers(self) -> tuple[int, ...]:
        """Members with a prior."""
        return tuple(i for i, name in enumerate(self.projections) if name in self.priors)


class Hyper(NamedTuple):
    """What one tunes."""

    learning_rate: Number = 5e-4
    gamma: Number = 0.99
    prior_scale: Number = 20.0
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
    """Support of the values."""


class Params(NamedTuple):
    """θ and φ."""

    value: Ensemble
    bonus: Ensemble | None


class Learner(NamedTuple):
    """What is learned, the fixed priors, and on images the body that all are heads of.

    Attributes:
        intrinsic: moments of the disagreement, where that is normalised.
    """

    params: Params
    target_params: Params
    prior: Ensemble | None
    opt_state: PyTree
    shared: Shared | None = None
    intrinsic: Moments | None = None


class Beliefs(NamedTuple):
    """What one set of parameters says about one observation."""

    members: list[Atoms]
    value: Float[Array, " A"]
    disagreement: Float[Array, " A"]
    raw_bonus: list[Atoms]
    bonus: Float[Array, " A"]


class Targets(NamedTuple):
    """What the models learn at one transition: an entry for each value model, one for the bonus.

    Beside it, how much of the value's target is outside of its support, and the disagreement at s'
    and the exploring action.
    """

    value: list[Atoms]
    bonus: Atoms | None
    clipped: Float[Array, ""]
    disagreement: Float[Array, ""]


@dataclass(frozen=True)
class Models:
    """Models of values and of the bonus, as functions of their parameters."""

    config: Config
    spec: Spec

    def _value_projections(self, hyper: Hyper) -> list[Projection]:
        return self._spanning(hyper.z_min, hyper.z_max)

    def _bonus_projections(self, hyper: Hyper) -> list[Projection]:
        """A bonus is never negative, and at most a few times the range of the values."""
        return self._spanning(0.0, 2.0 * (hyper.z_max - hyper.z_min))

    def _spanning(self, z_min: Any, z_max: Any) -> list[Projection]:
        made = []
        for name in self.config.projections:
            projection: Any = PROJECTIONS[name].spanning(self.config.num_atoms, z_min, z_max)
            if hasattr(projection, "huber_width"):
                projection = dataclasses.replace(projection, huber_width=self.config.huber_width)
            made.append(projection)
        return made

    def _value_outputs(
        self, params: Params, prior: Ensemble | None, obs: Array, hyper: Hyper
    ) -> Float[Array, "M A K"]:
        outputs = params.value(obs)
        added = None if prior is None else prior(obs)
        return with_prior(outputs, added, hyper.prior_scale, self.config.carriers)

    def beliefs(
        self,
        params: Params,
        prior: Ensemble | None,
        obs: Array,
        hyper: Hyper,
        moments: Moments | None = None,
    ) -> Beliefs:
        """What one set of parameters says about one observation, or its features."""
        theta = self._value_outputs(params, prior, obs, hyper)
        members = _decoded(self._value_projections(hyper), theta)
        apart = self._disagreement(members, hyper)
        if params.bonus is None:
            raw, bonus = [], self._reward(apart, hyper, moments)
        else:
            raw = _decoded(self._bonus_projections(hyper), params.bonus(obs))
            learned = jax.vmap(mean)(mixture(raw))
            known = self.config.intrinsic_reward == "prior"
            bonus = learned + self._reward(apart, hyper, moments) if known else learned
        return Beliefs(
            members=members,
            value=jax.vmap(mean)(mixture(members)),
            disagreement=apart,
            raw_bonus=raw,
            bonus=bonus,
        )

    def _disagreement(self, members: list[Atoms], hyper: Hyper) -> Float[Array, " A"]:
        """w_avg of every action."""
        if self.config.distance == "grid":
            grid = Categorical(
                num_atoms=self.config.num_atoms, z_min=hyper.z_min, z_max=hyper.z_max
            )
            members = [jax.vmap(grid.project)(member) for member in members]
        return jax.vmap(lambda *atoms: disagreement(atoms))(*members)

    def _reward(
        self, apart: Float[Array, "*A"], hyper: Hyper, moments: Moments | None
    ) -> Float[Array, "*A"]:
        """What disagreement is worth as a reward that the bonus sums up, or as the bonus itself."""
        if moments is not None:
            apart = apart / moments.deviation
        if self.config.average_bonus and self.config.propagate:
            apart = (1.0 - hyper.gamma**self.config.n_step) * apart
        return apart

    def targets(
        self,
        learner: Learner,
        transition: Transition,
        beta: Array,
        hyper: Hyper,
        later: Float[Array, " F"] | None = None,
        decay: Float[Array, ""] | float = 1.0,
    ) -> Targets:
        """Actions by the online parameters, distributions by the target ones (eq. 10).

        `later` is s' as the target networks see it, where a target body gives them its features;
        `decay` is what a sample of several steps is discounted by beside γ, however it ends.
        """
        now = transition.next_obs
        online = self.beliefs(learner.params, learner.prior, now, hyper, learner.intrinsic)
        value = base.possible(online.value, self.spec.available)
        exploring = optimistic(value, online.bonus, beta)
        later = now if later is None else later
        theta = self._value_outputs(learner.target_params, learner.prior, later, hyper)
        members = _decoded(self._value_projections(hyper), theta)
        discount = hyper.gamma * transition.discount
        if self.config.backup == "mixture":
            successors = [_at(mixture(members), jnp.argmax(value))] * len(members)
        else:
            means = [jax.vmap(mean)(member) for member in online.members]
            greedy = [jnp.argmax(base.possible(v, self.spec.available)) for v in means]
            successors = [_at(m, action) for m, action in zip(members, greedy, strict=True)]
        value_targets = [bootstrap(transition.reward, discount, z) for z in successors]
        return Targets(
            value=value_targets,
            bonus=self._bonus_target(
                learner, transition._replace(next_obs=later), online, exploring, decay, hyper
            ),
            clipped=base.mass_outside(mixture(value_targets), hyper.z_min, hyper.z_max),
            disagreement=online.disagreement[exploring],
        )

    def _bonus_target(
        self,
        learner: Learner,
        transition: Transition,
        online: Beliefs,
        exploring: Int[Array, ""],
        decay: Float[Array, ""] | float,
        hyper: Hyper,
    ) -> Atoms | None:
        """Law of what the raw bonus should be at (s, a), following the exploring action a'_ε.

        With the disagreement as a prior, the raw bonus is what comes after it:
        γ (b_raw(s', a'_ε) + w_avg(s', a'_ε)). Learned, it is w_avg(s, a) + γ b(s', a'_ε). A sample
        of n steps has s' and the discount after them, and nothing of what is between.
        """
        if learner.target_params.bonus is None:
            return None
        outputs = learner.target_params.bonus(transition.next_obs)
        raw = _at(mixture(_decoded(self._bonus_projections(hyper), outputs)), exploring)
        left = transition.discount if self.config.episodic_bonus else decay
        discount = jnp.asarray(hyper.gamma) * left
        if self.config.intrinsic_reward == "prior":
            reward = self._reward(online.disagreement[exploring], hyper, learner.intrinsic)
            return bootstrap(discount * reward, discount, raw)
        theta = self._value_outputs(learner.params, learner.prior, transition.obs, hyper)
        now = self._disagreement(_decoded(self._value_projections(hyper), theta), hyper)
        reward = self._reward(now[transition.action], hyper, learner.intrinsic)
        return bootstrap(reward, discount, raw)

    def loss(
        self,
        params: Params,
        prior: Ensemble | None,
        transition: Transition,
        targets: Targets,
        hyper: Hyper,
    ) -> Float[Array, ""]:
        """Every model's distance from its target: eq. 11 for quantiles, eq. 12 for categories."""
        outputs = self._value_outputs(params, prior, transition.obs, hyper)
        theta = base.taken(outputs, transition.action)
        total = jnp.zeros(())
        for projection, outputs_i, target in zip(
            self._value_projections(hyper), theta, targets.value, strict=True
        ):
            total = total + projection.loss(outputs_i, target)
        if params.bonus is None or targets.bonus is None:
            return total
        theta = base.taken(params.bonus(transition.obs), transition.action)
        for projection, outputs_i in zip(self._bonus_projections(hyper), theta, strict=True):
            total = total + projection.loss(outputs_i, targets.bonus)
        return total


def _decoded(projections: list[Projection], theta: Float[Array, "M A K"]) -> list[Atoms]:
    """Each member's distributions [A, K]."""
    return [
        jax.vmap(projection.decode)(outputs)
        for projection, outputs in zip(projections, theta, strict=True)
    ]


def _at(atoms: Atoms, action: Int[Array, ""]) -> Atoms:
    return Atoms(locations=atoms.locations[action], probs=atoms.probs[action])
