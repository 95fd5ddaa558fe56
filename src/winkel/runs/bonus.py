"""`winkel.make_bonus`: PE-DQN's exploration bonus as pure functions, for a loop of your own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from winkel.agents.base import Agent, Spec
from winkel.envs.base import Task
from winkel.errors import InputError, require_integer
from winkel.runs.pure import check_key
from winkel.runs.spec import configure
from winkel.training.steps import start_clock
from winkel.types import Batch, Clock, Dense, Image, Observation, OneHot, Transition

OF_THE_LOOP = (
    "burn_in", "capacity", "n_step", "priority_exponent", "importance_exponent",
    "importance_final", "updates_per_step",
    "beta_final", "beta_decay", "epsilon", "epsilon_final", "epsilon_steps",
)  # fmt: skip
"""Fields of PE-DQN about replay and action selection."""

OBS_TYPES: dict[type, Any] = {OneHot: jnp.int32, Image: jnp.uint8}
"""Of numbers in observations, where these are not float32."""


class BonusState(NamedTuple):
    """What the bonus has learned."""

    learner: Any
    """That of PE-DQN."""
    clock: Clock
    """Counts updates."""


@dataclass(frozen=True, eq=False)
class Bonus:
    """Pure functions of a `BonusState`: `init`, `bonus` and `update`."""

    agent: Agent
    hyper: Any

    def init(self, key: PRNGKeyArray) -> BonusState:
        """Create networks that have learned nothing."""
        check_key(key)
        return BonusState(learner=self.agent.init(key, self.hyper), clock=start_clock())

    def bonus(
        self, state: BonusState, obs: ArrayLike, action: ArrayLike | None = None
    ) -> Float[Array, "*A"]:
        """The bonus b(s, a) of one action, or of all actions `[A]` if none is given.

        It is for one observation; use `jax.vmap` for several.
        """
        obs = self._observations(obs, ())
        bonus = self.agent.estimates(state.learner, obs, self.hyper).bonus
        return bonus if action is None else bonus[jnp.asarray(action)]

    def update(
        self, state: BonusState, batch: Sequence[ArrayLike], key: PRNGKeyArray
    ) -> tuple[BonusState, dict[str, Array]]:
        """Learn from transitions of your replay, drawn uniformly; returns metrics, too.

        `batch` is (obs, action, reward, discount, next_obs), each with `batch_size` entries. The
        discount is 0 where an episode terminated and 1 elsewhere: γ is the field `gamma`. The
        metric `clipped` is the mass of targets outside of [z_min, z_max].
        """
        check_key(key)
        if not isinstance(batch, tuple | list) or len(batch) != 5:
            raise InputError("need obs, action, reward, discount and next_obs as a batch")
        obs, action, reward, discount, next_obs = batch
        size = self.agent.config.batch_size
        for name, x in {"action": action, "reward": reward, "discount": discount}.items():
            if jnp.shape(x) != (size,):
                raise InputError(f"need {name} of shape {(size,)}, got {jnp.shape(x)}")
        transitions = Transition(
            obs=self._observations(obs, (size,)),
            action=jnp.asarray(action, jnp.int32),
            reward=jnp.asarray(reward, float),
            discount=jnp.asarray(discount, float),
            next_obs=self._observations(next_obs, (size,)),
            boundary=jnp.asarray(discount) == 0.0,
            extras=(),
        )
        drawn = Batch(transitions, weights=jnp.ones(size), indices=jnp.arange(size))
        learner, update = self.agent.update(state.learner, drawn, state.clock, self.hyper, key)
        clock = state.clock._replace(updates=state.clock.updates + 1)
        return BonusState(learner=learner, clock=clock), dict(update.metrics)

    def _observations(self, obs: Any, axes: tuple[int, ...]) -> Array:
        """Observations as networks get them; raises if their shape is wrong."""
        form = self.agent.spec.observation
        wanted = axes if isinstance(form, OneHot) else (*axes, *form.shape)
        if jnp.shape(obs) != wanted:
            raise InputError(f"need observations of shape {wanted}, got {jnp.shape(obs)}")
        return jnp.asarray(obs, OBS_TYPES.get(type(form), jnp.float32))


def make_bonus(observation: Observation | Sequence[int], num_actions: int, **fields: Any) -> Bonus:
    """Make PE-DQN's propagated ensemble disagreement as functions for a loop of your own.

    Your loop selects actions by its own values plus β times the bonus, keeps its own replay, and
    updates the bonus with samples of it.

    Args:
        observation: a shape such as (4,), or `Dense`, `OneHot` or `Image` of `winkel.types`.
        num_actions: A; actions are 0 … A − 1.
        **fields: fields of PE-DQN but for those of replay and action selection; `z_min` and `z_max`
            are needed. `beta` should be your own β: future actions are predicted with it.
    """
    require_integer("num_actions", num_actions, at_least=1)
    for name in fields:
        if name in OF_THE_LOOP:
            raise InputError(f"need no {name}, which your own loop decides, got {fields[name]!r}")
    spec = Spec(_as_observation(observation), num_actions)
    task = Task(id="your environment", env=spec, facts=())
    agent, hyper = configure("pe_dqn", fields, task)
    return Bonus(agent, hyper)


def _as_observation(form: Any) -> Observation:
    if isinstance(form, Observation):
        return form
    if not isinstance(form, tuple | list) or not form:
        raise InputError(
            f"need a shape such as (4,), or Dense, OneHot or Image for observation, got {form!r}"
        )
    return Dense(tuple(require_integer("each side of observation", n, at_least=1) for n in form))
