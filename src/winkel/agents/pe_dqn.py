"""PE-DQN: deep exploration by the disagreement of a diverse projection ensemble.

Zanger, Böhmer and Spaan (2024), section 4 and Algorithm 1. The members' models of the return
distribution share one mixture target; how far they are apart in w_1 is an intrinsic reward, whose
discounted sum along the exploring policy a second ensemble learns: the bonus of eq. 13.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from winkel.agents import base, fused, images
from winkel.agents.base import Number, Spec
from winkel.agents.descent import Rule, descended, differentiated
from winkel.agents.images import Shared
from winkel.agents.intrinsic import Moments
from winkel.agents.settings import Settings
from winkel.distributions import bootstrap, disagreement, mean, mixture
from winkel.errors import InputError, require_integer
from winkel.exploration import epsilon_greedy, linear_decay, optimistic
from winkel.networks import Ensemble
from winkel.networks.ensemble import with_prior
from winkel.projections import PROJECTIONS, Categorical, Projection
from winkel.types import Atoms, Batch, Clock, Decision, Estimates, Image, Transition, Update


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
class PEDQN:
    """A projection ensemble whose propagated disagreement is the bonus of optimistic choice."""

    config: Config
    spec: Spec
    resting: bool = False
    """Whether the bonus is no longer learned, with the kernels only; see `at_rest`."""

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """Independent networks; the target networks start as copies."""
        key_value, key_bonus, key_prior, key_body = (
            jax.random.fold_in(key, use) for use in range(4)
        )
        members, carriers = len(self.config.projections), len(self.config.carriers)
        params = Params(
            value=self._networks(key_value, members),
            bonus=self._networks(key_bonus, members) if self.config.propagate else None,
        )
        return Learner(
            params=params,
            target_params=params,
            prior=self._priors(key_prior, carriers) if carriers else None,
            opt_state=base.init_adam(params),
            shared=images.init(key_body, self.spec, self.config),
            intrinsic=Moments.empty() if self.config.normalise_intrinsic else None,
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
        """Optimistic choice, eq. 13, or with probability ε any."""
        if self._has_kernels():
            value, bonus = fused.judge_one(
                self.config, self.spec, learner, obs, hyper, self.resting
            )
        else:
            beliefs = self._believed(learner, obs, hyper)
            value, bonus = beliefs.value, beliefs.bonus
        available = self.spec.available
        score = base.possible(value, available) + self._beta(clock, hyper) * bonus
        action = epsilon_greedy(key, score, base.epsilon(clock, hyper), available)
        return Decision(action=action), actor

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on the sum of all models' losses (Algorithm 1, lines 13–24)."""
        if self._has_kernels():
            return fused.update(self.config, self.spec, learner, batch, clock, hyper, self.resting)
        beta = self._beta(clock, hyper)
        seen = images.see(learner.shared, batch.transitions)
        decay = jnp.broadcast_to(jnp.asarray(batch.decay), batch.weights.shape)
        targets = jax.vmap(lambda *of: self._targets(learner, of[0], beta, hyper, *of[1:]))(
            seen.transitions, seen.later, decay
        )

        def loss(params: Params, obs: Array) -> tuple[Float[Array, ""], Float[Array, " B"]]:
            losses = jax.vmap(lambda t, y: self._loss(params, learner.prior, t, y, hyper))(
                seen.transitions._replace(obs=obs), targets
            )
            return jnp.mean(batch.weights * losses), losses

        lesson = differentiated(loss, learner.params, seen)
        rule = Rule.of(self.config, hyper.learning_rate, self.config.batch_size)
        learner = descended(learner, seen, lesson, clock, rule)
        if learner.intrinsic is not None:
            moments = learner.intrinsic.with_batch(targets.disagreement)
            learner = learner._replace(intrinsic=moments)
        metrics = {"loss": lesson.total, "beta": beta, "clipped": jnp.mean(targets.clipped)}
        return learner, Update(priorities=lesson.losses, metrics=metrics)

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Members, their disagreement w_avg, and the bonus b_φ."""
        beliefs = self._believed(learner, obs, hyper)
        return Estimates(
            value=beliefs.value,
            members=jax.tree.map(lambda *leaves: jnp.stack(leaves), *beliefs.members),
            disagreement=beliefs.disagreement,
            bonus=beliefs.bonus,
        )

    def member_names(self) -> tuple[str, ...]:
        """The projections."""
        return self.config.projections

    def settled(self, progress: float, hyper: Hyper) -> bool:
        """Whether β is 0 from now on: what is done depends on the values alone."""
        return self._has_kernels() and bool(
            hyper.beta_final == 0.0 and progress >= hyper.beta_decay
        )

    def at_rest(self) -> "PEDQN":
        """The same agent for when it has settled: the bonus stays as it is."""
        return dataclasses.replace(self, resting=True)

    def _networks(self, key: PRNGKeyArray, count: int) -> Ensemble:
        return images.networks(
            key,
            count,
            self.spec,
            self.config,
            self.config.hidden,
            (self.spec.num_actions, self.config.num_atoms),
            aligned=self._knows_kernels(),
        )

    def _priors(self, key: PRNGKeyArray, count: int) -> Ensemble:
        networks = self._networks(key, count)
        return Ensemble(members=jax.vmap(base.tabulated)(networks.members))

    def _knows_kernels(self) -> bool:
        config = self.config
        return (
            config.kernels
            and fused.supports(config, self.spec)
            and not isinstance(self.spec.observation, Image)
            and config.adam_epsilon == Settings.adam_epsilon
            and not config.clip_norm
            and not config.normalise_intrinsic
            and not config.average_bonus
            and (config.n_step == 1 or config.episodic_bonus)
        )

    def _has_kernels(self) -> bool:
        return self._knows_kernels() and jax.default_backend() == "gpu"

    def _beta(self, clock: Clock, hyper: Hyper) -> Float[Array, ""]:
        return linear_decay(hyper.beta, hyper.beta_final, hyper.beta_decay, clock.progress)

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

    def _believed(self, learner: Learner, obs: Array, hyper: Hyper) -> Beliefs:
        """What the online networks say about an observation as it comes."""
        seen = images.features(learner.shared, obs)
        return self._beliefs(learner.params, learner.prior, seen, hyper, learner.intrinsic)

    def _beliefs(
        self,
        params: Params,
        prior: Ensemble | None,
        obs: Array,
        hyper: Hyper,
        moments: Moments | None = None,
    ) -> Beliefs:
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

    def _targets(
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
        online = self._beliefs(learner.params, learner.prior, now, hyper, learner.intrinsic)
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

    def _loss(
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
