"""PE-DQN: deep exploration by the disagreement of a diverse projection ensemble.

Zanger, Böhmer and Spaan (2024), section 5, Algorithm 1 and App. B. Comments name the lines of
Algorithm 1: 1–4 are `init`, `Config` and `Hyper`, 8–11 `predict` and `scores` (its argmax is in
`base`), 14–24 `update`, `targets` and `loss`; 5–7, 12–13 and 25–27 are the loop, `winkel.training`.

The listing is simplified; this is the agent of the paper's experiments, as App. B describes it:

- Line 4: β decays linearly over a third of the horizon ("Bonus decay"), see `PEDQN._beta`.
- Lines 8 and 14–16: fixed prior networks are added to the outputs of the quantile model.
- Line 19 is the listing's loss, Σ_k of eq. 6; eq. 11 is K M times as large (decision 006).
- Lines 21–22 learn w_avg as a reward. Here it is added to the network's output b_raw, b_φ =
  b_raw + w_avg ("Intrinsic reward priors"); `intrinsic_reward="learned"` is the listing's version.
- Line 22 follows the greedy a'. Here it is a'_ε (eq. 17, which prints s where s' is meant).
- Line 23 says MSE for the bonus. Here the bonus is a projection ensemble of its own, learned with
  the losses of eqs. 11–12 ("Distributional estimation of bonuses").

What the paper leaves open is in decision 014.
"""

from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from winkel.agents import base, learning
from winkel.agents.base import PerAction
from winkel.agents.learning import Floor, Learner, RunningMoments, at_action, mass_outside
from winkel.distributions import bootstrap, disagreement, mean, mixture
from winkel.errors import InputError, require_integer
from winkel.networks import Ensemble
from winkel.networks.mlp import add_prior, select_action
from winkel.projections import Categorical, Projection, find_projection
from winkel.types import Atoms, Batch, Clock, Dense, Estimates, Transition, Update


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: the paper's for bsuite (table in App. B)."""

    projections: tuple[str, ...] = ("quantile", "categorical")
    """The members: names from the table of projections, two or more."""
    priors: tuple[str, ...] = ("quantile",)
    """Projections whose value models have a prior function; () for none."""
    backup: Literal["mixture", "independent"] = "mixture"
    """Target of each member: that of the mixture (eq. 10), or its own."""
    propagate: bool = True
    """Learn the bonus as a sum of future disagreement; else the disagreement is the bonus."""
    intrinsic_reward: Literal["prior", "learned"] = "prior"
    """`prior` adds the disagreement to the bonus network's output (the paper's "intrinsic reward
    prior"; no prior network is involved); `learned`: the network learns it as a reward."""
    episodic_bonus: bool = True
    """The bonus after the end of an episode is 0."""
    normalise_intrinsic: bool = False
    """Divide the disagreement, as a reward, by the running deviation of w_avg(s', a'_ε)."""
    bonus_floor: bool = False
    """Subtract from w_avg the level that remains where all is known (`learning.Floor`)."""
    average_bonus: bool = False
    """Multiply the disagreement by 1 − γⁿ: the bonus is an average if `bonus_discount` is 1."""
    distance: Literal["exact", "grid"] = "exact"
    """w_1 of the members, or of their projections onto the categorical grid."""
    huber_width: base.HuberWidth = 0.0
    hidden: base.Hidden = (512,)
    num_atoms: base.NumAtoms = 101
    """Number of atoms of each member; odd for expectiles."""
    bonus_discount: Annotated[float, base.Range(0.0, 1.0)] = 1.0
    """Factor of the bonus' discount beside γ: thisⁿ over `n_step` steps, ended early or not."""
    bonus_support: Annotated[float, base.Range(0.0, open=True)] = 2.0
    """The support of categorical bonus models is [0, this · (z_max − z_min)]."""
    unit_prior: bool = False
    """On one-hot observations, draw first layers of priors with a fan-in of 1: in grids of any
    size, outputs have the deviation √2 `prior_scale` instead of √(2 / cells) times it."""
    kernels: bool = True
    """Use GPU kernels on a GPU, for configurations that they support."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("number of projections", len(self.projections), at_least=2)
        for name in self.projections:
            find_projection(name).spanning(self.num_atoms, 0.0, 1.0)
        base.check_names("priors", self.priors, self.projections)
        if self.bonus_floor and self.normalise_intrinsic:
            raise InputError("need bonus_floor or normalise_intrinsic, got both")

    @property
    def prior_members(self) -> tuple[int, ...]:
        """Indices of the members with a prior."""
        return tuple(i for i, name in enumerate(self.projections) if name in self.priors)


ONLY_DEFAULTS = (
    "kernels", "backup", "propagate", "intrinsic_reward", "normalise_intrinsic", "average_bonus",
    "distance", "huber_width", "adam_epsilon", "clip_norm",
)  # fmt: skip
"""Fields of `Config` for which GPU kernels exist only with the default."""


class Hyper(NamedTuple):
    """Hyperparameters, traced."""

    learning_rate: base.LearningRate = 5e-4
    gamma: base.Discount = 0.99
    prior_scale: base.PriorScale = 20.0
    beta: base.NonNegative = 5.0
    """Weight β of the bonus (eq. 13) at the start."""
    beta_final: base.NonNegative = 0.0
    """β after its decay, which takes the share `beta_decay` of the horizon."""
    beta_decay: base.HorizonShare = 1 / 3
    epsilon: base.Epsilon = 0.0
    epsilon_final: base.Epsilon = 0.0
    epsilon_steps: base.EpsilonSteps = 0.0
    z_min: base.Support = base.BY_ENVIRONMENT
    z_max: base.Support = base.BY_ENVIRONMENT


class Params(NamedTuple):
    """θ and φ."""

    value: Ensemble
    bonus: Ensemble | None


class Targets(NamedTuple):
    """What the networks learn at one transition."""

    value: list[Atoms]
    """Target distribution of each value member."""
    bonus: Atoms | None
    """Target distribution of all bonus members; None without propagation."""
    clipped: Float[Array, ""]
    """Mass of the value targets outside of the support, a metric."""
    disagreement: Float[Array, ""]
    """w_avg(s', a'_ε), or w_avg(s', a') for a floor, from which running moments are updated."""


@dataclass(frozen=True)
class PEDQN(base.Agent):
    """A projection ensemble whose propagated disagreement is added to values to choose actions."""

    config: Config
    config_type = Config
    hyper_type = Hyper
    bonus_frozen: bool = False
    """Whether the bonus is no longer learned; only with kernels, see `with_frozen_bonus`."""

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """Lines 1–3: independent networks; the target networks start as copies."""
        key_value, key_bonus, key_prior, key_body = (
            jax.random.fold_in(key, use) for use in range(4)
        )
        config, spec = self.config, self.spec
        members, priors = len(config.projections), len(config.prior_members)
        scale = RunningMoments.init() if config.normalise_intrinsic else None
        unit: dict[str, Any] = {"fan_in": 1} if config.unit_prior and spec.one_hot else {}
        aligned = self.supported_by_kernels()  # on every platform: a CPU reads a GPU's checkpoints
        networks = partial(
            learning.init_networks, agent=self, columns=config.num_atoms, aligned=aligned
        )
        params = Params(
            value=networks(key_value, members=members),
            bonus=networks(key_bonus, members=members) if config.propagate else None,
        )
        return Learner(
            params=params,
            target_params=params,
            prior=networks(key_prior, members=priors, **unit).tabulate() if priors else None,
            opt_state=learning.init_optimizer(params),
            shared=learning.init_body(key_body, self),
            intrinsic=Floor.init() if config.bonus_floor else scale,
        )

    def scores(self, learner: Learner, obs: Array, clock: Clock, hyper: Hyper) -> PerAction:
        """Lines 8–11: what `act` maximises, unless with probability ε the action is random."""
        # Lines 8–10: Q(s, ·) and b_φ(s, ·).
        if fused := self._kernels():
            value, bonus = fused.value_and_bonus(self, learner, obs, hyper)
        else:
            predicted = self.estimates(learner, obs, hyper)
            value, bonus = predicted.value, predicted.bonus
        # Line 11 and eq. 13: the action is argmax_a Q(s, a) + β b_φ(s, a).
        return value + self._beta(clock, hyper) * bonus

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """Lines 14–24, for a batch."""
        beta = self._beta(clock, hyper)
        if fused := self._kernels():
            return fused.update(self, learner, batch, clock, beta, hyper)

        # Lines 15–18 and 21–22: targets.
        inputs = learning.encode(learner.shared, batch)
        gamma_power = jnp.broadcast_to(jnp.asarray(batch.gamma_power), batch.weights.shape)
        target = partial(self.targets, learner, beta, hyper)
        targets = jax.vmap(target)(inputs.transitions, inputs.target_next_obs, gamma_power)

        # Lines 14, 19–20 and 23: l_1 + l_2 + l_3, averaged over the batch, and its gradient.
        loss = partial(self.loss, learner.prior, hyper)
        gradients = learning.loss_and_gradient(loss, learner.params, inputs, targets)

        # Line 24: a step of Adam on θ and φ; θ̃ and φ̃ become copies every `target_period` updates.
        learner = learning.optimizer_step(self, learner, inputs, gradients, clock, hyper)
        if learner.intrinsic is not None:
            learner = learner._replace(intrinsic=learner.intrinsic.update(targets.disagreement))
        metrics = {"loss": gradients.loss, "beta": beta, "clipped": jnp.mean(targets.clipped)}
        return learner, Update(priorities=gradients.losses, metrics=metrics)

    def predict(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Predict by the online networks for one observation, or for the features of an image."""
        # Lines 8–9 and 16: η_θi(s, ·), and Q(s, ·) as the mean of their mixture.
        members = self._value_distributions(learner.params, learner.prior, obs, hyper)
        value = jax.vmap(mean)(mixture(members))
        # w_avg(s, ·): w_1 averaged over pairs of members (section 5.1); w_1 of line 21 if M = 2.
        w_avg = self._disagreement(members, hyper)
        # Line 10: b_φ(s, ·), by default b_raw(s, ·) + w_avg(s, ·); w_avg alone without propagation.
        intrinsic = self.disagreement_reward(w_avg, learner, hyper)
        if learner.params.bonus is None:
            bonus = intrinsic
        else:
            raw = jax.vmap(mean)(mixture(self._bonus_distributions(learner.params, obs, hyper)))
            bonus = raw + intrinsic if self.config.intrinsic_reward == "prior" else raw
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
        return Estimates(value=value, members=stacked, disagreement=w_avg, bonus=bonus)

    def targets(
        self,
        learner: Learner,
        beta: Array,
        hyper: Hyper,
        transition: Transition,
        target_next_obs: Array,
        gamma_power: Float[Array, ""] | float = 1.0,
    ) -> Targets:
        """Targets of one transition: actions by online networks, distributions by target networks.

        `target_next_obs` is s' for the target networks, which on images have their own features.
        `gamma_power` is γⁿ⁻¹ for a sample of n steps, also after termination. Such a sample leads
        from s_0 to s_n; the disagreements on its way are no part of the bonus' target, which has
        only w_avg(s_n, a'_ε), or with `intrinsic_reward="learned"` only w_avg(s_0, a_0).
        """
        config, mask, target_params = self.config, self.spec.mask_unavailable, learner.target_params
        # Line 15: η_θ̃i(s', ·).
        successors = self._value_distributions(target_params, learner.prior, target_next_obs, hyper)
        # Line 16: Q(s', ·) by the online networks.
        online = self.predict(learner, transition.next_obs, hyper)
        # Line 17: a' = argmax_a Q(s', a), and a'_ε for the bonus, by eq. 17 at s'.
        value = mask(online.value)
        greedy, exploratory = jnp.argmax(value), jnp.argmax(value + beta * online.bonus)
        # Line 18, eq. 10: r + γ Z, Z from the mixture at (s', a'), for all members; r at an end.
        if config.backup == "mixture":
            chosen = [at_action(mixture(successors), greedy)] * len(successors)
        else:  # "independent": each member's own distribution at its own greedy action
            means = [jax.vmap(mean)(Atoms(*member)) for member in zip(*online.members, strict=True)]
            own = [jnp.argmax(mask(m)) for m in means]
            chosen = [at_action(z, action) for z, action in zip(successors, own, strict=True)]
        discount = hyper.gamma * transition.discount
        value_targets = [bootstrap(transition.reward, discount, z) for z in chosen]

        # Lines 21–22: b_φ(s, a) shall be w_avg(s, a) + γ b_φ(s', a'_ε). By default b_φ = b_raw +
        # w_avg, so b_raw learns the rest, γ (b̃_raw + w_avg)(s', a'_ε): b̃_raw by φ̃, w_avg by the
        # online θ. With "learned", b_φ is b_raw, which learns w_avg(s, a) + γ b̃_raw(s', a'_ε).
        bonus_target = None
        if config.propagate:
            bonuses = mixture(self._bonus_distributions(target_params, target_next_obs, hyper))
            successor_bonus = at_action(bonuses, exploratory)
            sample_discount = transition.discount if config.episodic_bonus else gamma_power
            factor = config.bonus_discount**config.n_step
            intrinsic_discount = jnp.asarray(hyper.gamma) * factor * sample_discount
            if config.intrinsic_reward == "prior":
                w_avg = online.disagreement[exploratory]
                r_intr = intrinsic_discount * self.disagreement_reward(w_avg, learner, hyper)
            else:
                here = self.predict(learner, transition.obs, hyper)
                w_avg = here.disagreement[transition.action]
                r_intr = self.disagreement_reward(w_avg, learner, hyper)
            bonus_target = bootstrap(r_intr, intrinsic_discount, successor_bonus)
        return Targets(
            value=value_targets,
            bonus=bonus_target,
            clipped=mass_outside(mixture(value_targets), hyper.z_min, hyper.z_max),
            disagreement=online.disagreement[greedy if config.bonus_floor else exploratory],
        )

    def loss(
        self,
        prior: Ensemble | None,
        hyper: Hyper,
        params: Params,
        transition: Transition,
        targets: Targets,
    ) -> Float[Array, ""]:
        """The sum of all members' losses at one transition."""
        # Line 14: θ_i(s, a).
        outputs = self._value_outputs(params, prior, transition.obs, hyper)
        theta = select_action(outputs, transition.action)
        # Lines 19–20: eq. 11 for quantile members, eq. 12 for categorical ones.
        total = jnp.zeros(())
        projections = self._projections(hyper.z_min, hyper.z_max)
        for projection, theta_i, target in zip(projections, theta, targets.value, strict=True):
            total = total + projection.loss(theta_i, target)
        # Line 23, by eqs. 11–12 instead of MSE.
        if params.bonus is not None and targets.bonus is not None:
            phi = select_action(params.bonus(transition.obs), transition.action)
            for projection, phi_i in zip(self._bonus_projections(hyper), phi, strict=True):
                total = total + projection.loss(phi_i, targets.bonus)
        return total

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Members, their disagreement w_avg, and the bonus b_φ."""
        return self.predict(learner, learning.features(learner.shared, obs), hyper)

    def value_networks(self, learner: Learner, hyper: Hyper) -> base.ValueNetworks:
        projections = tuple(self._projections(hyper.z_min, hyper.z_max))
        networks, members = learner.params.value, self.config.prior_members
        return base.ValueNetworks(networks, projections, learner.prior, hyper.prior_scale, members)

    def member_names(self) -> tuple[str, ...]:
        return self.config.projections

    def can_freeze_bonus(self, progress: float, hyper: Hyper) -> bool:
        """Whether β stays 0, no priorities contain the bonus' loss, and kernels compute updates."""
        unused = bool(hyper.beta_final == 0.0 and progress >= hyper.beta_decay)
        return unused and self.config.priority_exponent == 0.0 and self._kernels() is not None

    def with_frozen_bonus(self) -> "PEDQN":
        return replace(self, bonus_frozen=True)

    def supported_by_kernels(self) -> bool:
        """Whether there are GPU kernels for this configuration and environment (decision 015)."""
        config, spec = self.config, self.spec
        return (
            all(getattr(config, name) == getattr(Config, name) for name in ONLY_DEFAULTS)
            and sorted(config.projections) == ["categorical", "quantile"]
            and (config.n_step == 1 or config.episodic_bonus)
            and len(config.hidden) == 1
            and config.batch_size in (16, 32, 64, 128, 256)
            and (spec.one_hot or (isinstance(spec.observation, Dense) and spec.inputs <= 128))
        )

    def _kernels(self) -> ModuleType | None:
        """Lines 8–10 and 14–24 as GPU kernels, on a GPU, if they support this agent."""
        if jax.default_backend() != "gpu" or not self.supported_by_kernels():
            return None
        from winkel.kernels import pe_dqn as fused  # imports Triton

        return fused

    def _beta(self, clock: Clock, hyper: Hyper) -> Float[Array, ""]:
        """β: linear from `beta` to `beta_final` over the share `beta_decay` of the horizon."""
        return base.linear_schedule(hyper.beta, hyper.beta_final, hyper.beta_decay, clock.progress)

    def _bonus_projections(self, hyper: Hyper) -> list[Projection]:
        return self._projections(0.0, self.config.bonus_support * (hyper.z_max - hyper.z_min))

    def _projections(self, z_min: Any, z_max: Any) -> list[Projection]:
        """One for each member; the categorical ones have the support [z_min, z_max]."""
        config = self.config
        return [learning.make_projection(n, config, z_min, z_max) for n in config.projections]

    def _value_outputs(
        self, params: Params, prior: Ensemble | None, obs: Array, hyper: Hyper
    ) -> Float[Array, "M A K"]:
        theta, members = params.value(obs), self.config.prior_members
        return add_prior(theta, prior, obs, hyper.prior_scale, members)

    def _value_distributions(
        self, params: Params, prior: Ensemble | None, obs: Array, hyper: Hyper
    ) -> list[Atoms]:
        theta = self._value_outputs(params, prior, obs, hyper)
        return _decode(self._projections(hyper.z_min, hyper.z_max), theta)

    def _bonus_distributions(self, params: Any, obs: Array, hyper: Hyper) -> list[Atoms]:
        return _decode(self._bonus_projections(hyper), params.bonus(obs))

    def _disagreement(self, members: list[Atoms], hyper: Hyper) -> PerAction:
        """w_avg = 1/(M (M − 1)) Σ_ij w_1(η_i, η_j) of every action."""
        if self.config.distance == "grid":
            grid = Categorical.spanning(self.config.num_atoms, hyper.z_min, hyper.z_max)
            members = [jax.vmap(grid.project)(member) for member in members]
        return jax.vmap(disagreement)(members)

    def disagreement_reward(
        self, w_avg: Float[Array, "*A"], learner: Learner, hyper: Hyper
    ) -> Float[Array, "*A"]:
        """Disagreement as a reward: above a floor, normalised or scaled if the settings say so."""
        if learner.intrinsic is not None:
            w_avg = learner.intrinsic.apply(w_avg)
        if self.config.average_bonus and self.config.propagate:
            w_avg = (1.0 - hyper.gamma**self.config.n_step) * w_avg
        return w_avg


def _decode(projections: list[Projection], theta: Float[Array, "M A K"]) -> list[Atoms]:
    """The distributions [A, K] of each member."""
    pairs = zip(projections, theta, strict=True)
    return [jax.vmap(projection.decode)(outputs) for projection, outputs in pairs]
