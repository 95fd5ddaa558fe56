"""PE-DQN with parts that can be exchanged, all of them traced: settings share one program.

With the defaults of `Hyper` it is winkel's `pe_dqn` (and its kernels), but for the replay, which
draws uniformly through the tree of priorities. Every field after `z_max` is one idea of the log.
"""

# isort: skip_file
# The imports are those of commit aeff97a, which these scripts run on.

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import trimmed
from jaxtyping import Array, Float

from winkel.agents import base, fused, pe_dqn, projection_ensemble
from winkel.agents.base import Number
from winkel.exploration import epsilon_greedy
from winkel.kernels import laws, mlp
from winkel.kernels.judge import Judgement
from winkel.types import Decision, Update


@dataclass(frozen=True, kw_only=True)
class Config(projection_ensemble.Config):
    """Priorities are raised to `Hyper.alpha` before replay gets them, weights to `importance`."""

    capacity: int = 60_000
    priority_exponent: float = 1.0
    importance_exponent: float = 0.0
    updates: int = 1
    """Updates for each step of the environment."""


class Hyper(NamedTuple):
    """Those of `pe_dqn`, with a constant β, and one for each idea."""

    learning_rate: Number = 5e-4
    gamma: Number = 0.99
    prior_scale: Number = 20.0
    beta: Number = 1.0
    beta_final: Number = 1.0
    beta_decay: Number = 1.0
    epsilon: Number = 0.0
    epsilon_final: Number = 0.0
    epsilon_steps: Number = 0.0
    z_min: Number = base.BY_ENVIRONMENT
    z_max: Number = base.BY_ENVIRONMENT
    alpha: Number = 0.0
    """Exponent of priorities."""
    importance: Number = 0.45
    """Exponent of the weights that undo priorities, constant."""
    bonus_priority: Number = 1.0
    """What the bonus' loss counts in a priority, beside the values'."""
    memory: Number = 10_000.0
    """Transitions that replay remembers, less than its capacity."""
    newest: Number = 0.0
    """So many of a batch are the newest transitions."""
    target_period: Number = 4.0
    bonus_rate: Number = 1.0
    """The bonus models' learning rate over the values'."""
    bonus_gamma: Number = 0.99
    bonus_width: Number = 2.0
    """Support of the bonus over that of the values."""
    trim: Number = 0.0
    """Share of levels at each end that disagreement leaves out."""
    tail: Number = 0.0
    """Quantile level τ learns (4 τ (1 − τ))^−tail times as strongly."""
    shift: Number = 0.0
    """Share of the prior that all quantiles of an action have in common."""
    power: Number = 1.0
    """Disagreement over that of an unknown cell, to this power."""
    unit: Number = 0.0
    """1: the disagreement of an unknown cell counts as 1."""
    draw: Number = 0.0
    """Share of β that is drawn for each episode, from the exponential distribution."""
    noise: Number = 0.0
    """Standard deviation of the logarithm of the factor that each bonus has at each step."""


@dataclasses.dataclass(frozen=True)
class _Lane(fused._Lane):
    """winkel's, with another support of the bonus, distance and reward."""

    @property
    def bonus_ends(self) -> tuple[Array, Array]:
        low, high = self.ends
        return jnp.zeros_like(low), self.hyper.bonus_width * (high - low)

    def judge(self, said: laws.Said, ends: tuple[Array, Array], apart: bool = True) -> Judgement:
        hyper = self.hyper
        judged = trimmed.judge(
            said, self.shape, ends, hyper.prior_scale, hyper.trim,
            apart=apart, interpret=self.interpret,
        )  # fmt: skip
        inputs = self.spec.inputs if self.spec.fan_in is None else self.spec.fan_in
        unknown = 0.8 * hyper.prior_scale * jnp.sqrt(2.0 / inputs)
        share = jnp.maximum(judged.distance, 0.0) / unknown
        worth = unknown ** (1.0 - hyper.unit) * share**hyper.power
        return judged._replace(distance=worth) if apart else judged


@dataclass(frozen=True)
class Variant(pe_dqn.PEDQN):
    """The agent; what an actor remembers is its episode's factor of β."""

    def init(self, key: Array, hyper: Hyper) -> Any:
        """As PE-DQN, the prior partly common to an action's quantiles."""
        learner = super().init(key, hyper)
        size = self.spec.num_actions, self.config.num_atoms

        def common(weight: Float[Array, "P rows O"]) -> Float[Array, "P rows O"]:
            used = weight[..., : size[0] * size[1]].reshape(*weight.shape[:-1], *size)
            mixed = (1.0 - hyper.shift) * used + hyper.shift * used[..., :1]
            flat = mixed.reshape(*weight.shape[:-1], -1)
            return weight.at[..., : flat.shape[-1]].set(flat)

        prior = eqx.tree_at(lambda p: p.members.layers[0].weight, learner.prior, replace_fn=common)
        return learner._replace(prior=prior)

    def init_actor(self, key: Array) -> Array:
        """1: the whole of β."""
        return jnp.ones(())

    def act(
        self, learner: Any, actor: Any, obs: Any, first: Any, clock: Any, hyper: Any, key: Any
    ) -> tuple[Decision, Array]:
        """Optimistic choice, β drawn for the episode and the bonus for the step if asked for."""
        key_draw, key_noise, key_action = (jax.random.fold_in(key, use) for use in range(3))
        drawn = 1.0 + hyper.draw * (jax.random.exponential(key_draw) - 1.0)
        actor = jnp.where(first, drawn, actor)
        lane = self._lane(hyper)
        at = lane.flat(obs)
        weights = [fused.weights_of(x) for x in (learner.params.value, learner.params.bonus)]
        said, ahead = (
            laws.Said(mlp.row_products(w, at)[:, None], w.last_bias, prior)
            for w, prior in zip(weights, (lane.prior(learner.prior, at), None), strict=True)
        )
        judged = lane.judge(said, lane.ends)
        bonus = lane.judge(ahead, lane.bonus_ends, apart=False).value + judged.distance
        bonus = bonus[0] * jnp.exp(hyper.noise * jax.random.normal(key_noise, bonus[0].shape))
        score = judged.value[0] + self._beta(clock, hyper) * actor * bonus
        action = epsilon_greedy(key_action, score, base.epsilon(clock, hyper))
        return Decision(action=action), actor

    def update(
        self, learner: Any, batch: Any, clock: Any, hyper: Any, key: Any
    ) -> tuple[Any, Update]:
        """`fused.update` with two rates, two discounts and weights of the quantile levels."""
        lane, transitions = self._lane(hyper), batch.transitions
        obs, next_obs = lane.flat(transitions.obs), lane.flat(transitions.next_obs)
        value = fused.weights_of(learner.params.value)
        next_prior = lane.prior(learner.prior, next_obs)
        judged = lane.judge(lane.said(value, next_obs, next_prior), lane.ends)
        greedy = jnp.argmax(judged.value, axis=-1)
        hidden = mlp.hidden(value, obs, active=True, interpret=lane.interpret)
        prior = lane.prior(learner.prior, obs)
        lesson = lane.teach(
            laws.Said(mlp.products(hidden.values, value), value.last_bias, prior),
            lane.said(fused.weights_of(learner.target_params.value), next_obs, next_prior),
            (jnp.asarray(transitions.action), greedy),
            (transitions.reward, fused._discount(batch, hyper, True), fused._shares(batch)),
            lane.ends,
        )
        far = self._lane(hyper._replace(gamma=hyper.bonus_gamma))
        bonus_hidden, bonus_lesson = fused._bonus_lesson(far, learner, batch, clock, judged)
        period = jnp.asarray(hyper.target_period, jnp.int32)
        due = (clock.updates + 1) % period == 0
        slopes = lesson.slopes * self._force(hyper, lesson.slopes.shape[-1])
        count = learner.opt_state.count
        learner = lane.descend(learner, obs, ["value"], [hidden], [slopes], due)
        learner = learner._replace(opt_state=learner.opt_state._replace(count=count))
        slower = self._lane(hyper._replace(learning_rate=hyper.learning_rate * hyper.bonus_rate))
        learner = slower.descend(
            learner, obs, ["bonus"], [bonus_hidden], [bonus_lesson.slopes], due
        )
        losses = lesson.losses + hyper.bonus_priority * bonus_lesson.losses
        metrics = {"loss": jnp.mean(batch.weights * (lesson.losses + bonus_lesson.losses))}
        return learner, Update(priorities=losses, metrics=metrics)

    def _lane(self, hyper: Any) -> _Lane:
        return _Lane(self.config, self.spec, hyper, jax.default_backend() != "gpu")

    def _force(self, hyper: Any, outputs: int) -> Float[Array, "2 1 O"]:
        """Factor of each output's gradient: that of its level for quantiles, 1 for categories."""
        size = self.config.num_atoms
        levels = (jnp.arange(size) + 0.5) / size
        force = jnp.tile((4.0 * levels * (1.0 - levels)) ** -hyper.tail, self.spec.num_actions)
        force = jnp.pad(force, (0, outputs - len(force)), constant_values=1.0)
        rows = [force if name == "quantile" else jnp.ones(outputs) for name in self.member_names()]
        return jnp.stack(rows)[:, None]
