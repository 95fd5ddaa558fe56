"""Pure functions for loops of your own: `winkel.make_train` is a whole run, for `jax.jit` and
`jax.vmap`; `winkel.make_bonus` is PE-DQN's exploration bonus.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from winkel.agents.base import Agent, Spec
from winkel.envs.base import Environment, Task
from winkel.errors import InputError, require_integer, require_type
from winkel.runs.spec import RunSpec, configure, make_spec, make_task, name_agent
from winkel.runs.train import state_shapes
from winkel.training.compiled import whole_run
from winkel.training.programs import check_memory
from winkel.training.steps import copy_key, make_jobs, start_clock
from winkel.types import Batch, Clock, Dense, Observation, OneHot, RunState, Transition

OF_THE_LOOP = (
    "burn_in", "capacity", "n_step", "priority_exponent", "importance_exponent",
    "importance_final", "updates_per_step",
    "beta_final", "beta_decay", "epsilon", "epsilon_final", "epsilon_steps",
)  # fmt: skip
"""Fields of PE-DQN about replay and action selection."""


class WholeRun(NamedTuple):
    """A run from its first step to its last. Under `jax.vmap`, arrays have a first axis of runs."""

    ended: Array
    """For each step, whether an episode ended with it."""
    sums: dict[str, Array]
    """For each step, sums over its episode so far: `return`, `length` and facts; and `visited`, the
    number of state-actions that the run has visited. Where `ended`, those of a whole episode."""
    metrics: dict[str, Array]
    """For each step after burn-in."""
    state: RunState


@dataclass(frozen=True, eq=False)
class PureTrain:
    """A run of an agent in an environment, as a function of a key and of hyperparameters.

    The run of `jax.random.key(seed)` is that of `winkel.train` with this seed.
    """

    spec: RunSpec
    num_steps: int
    """Steps of a run, with burn-in."""

    @property
    def agent(self) -> Agent:
        """Its functions take `state.learner`."""
        return self.spec.agent

    @property
    def hyper(self) -> Any:
        """Hyperparameters as plain numbers; replace some of them by `_replace`."""
        return self.spec.hyper

    def __call__(self, key: PRNGKeyArray, hyper: Any = None) -> WholeRun:
        """Make the run of a key, by default with the hyperparameters of `hyper`."""
        check_key(key)
        hyper = self._check_hyper(self.hyper if hyper is None else hyper)
        plan, agent = self.spec.plan(), self.agent
        jobs = make_jobs([plan], agent.spec, masked=plan.available is not None)
        job = jax.tree.map(lambda x: x[0], jobs)._replace(
            key=copy_key(key, np.uint32(plan.copy)), hyper=hyper
        )
        state, (ended, sums, metrics) = whole_run(agent, self.spec.task.env, job, self.num_steps)
        return WholeRun(ended=ended, sums=sums, metrics=metrics, state=state)

    def _check_hyper(self, hyper: Any) -> Any:
        """Hyperparameters as arrays; raises unless they are the agent's, in range if not traced."""
        require_type("hyper", hyper, type(self.hyper), "a tuple such as train.hyper")
        known = {}
        for name, value in hyper._asdict().items():
            if shape := np.shape(value):
                raise InputError(f"need one {name}, and jax.vmap for several, got shape {shape}")
            if not isinstance(value, jax.core.Tracer):
                known[name] = np.asarray(value).item()
        configure(self.spec.algorithm, known, self.spec.task)
        return jax.tree.map(lambda x: jnp.asarray(x, float), hyper)


def make_train(
    env: Any,
    agent: str | type = "pe_dqn",
    *,
    steps: int | None = None,
    episodes: int | None = None,
    **fields: Any,
) -> PureTrain:
    """Make a pure function of a key that trains an agent in a compiled environment.

    `jax.jit(jax.vmap(make_train(…)))(keys)` trains an agent for each key. Nothing is written, and a
    run whose loss is not finite is not stopped: look at `metrics["loss"]`.

    Args:
        env: an id such as 'deep_sea/0' or 'deep_sea:size=30', what `winkel.envs.make` returns, or
            an environment in JAX of your own, as `winkel.train` takes.
        agent: as `winkel.train` takes.
        steps: the horizon in steps, which schedules use; a run has as many steps.
        episodes: the horizon in episodes. A run has as many steps as the longest episodes take, and
            no more than `steps`. Without both, bsuite's own number of episodes.
        **fields: any field of the agent's `Config` or `Hyper`.
    """
    agent = name_agent(agent, fields)
    task = env
    if isinstance(env, Environment):
        task = Task(id=type(env).__name__, env=env, facts=(), params=None)
    elif not isinstance(env, Task):
        task = make_task(env)
    if not task.compiled:
        raise InputError(
            f"need an environment in JAX such as 'deep_sea/0', got the simulator {task.id!r}, "
            "which winkel.train steps"
        )
    spec = make_spec(task, agent, fields, episodes=episodes, steps=steps)
    num_steps, burn_in = spec.max_steps or steps, spec.agent.config.burn_in
    if num_steps is None:
        raise InputError(f"need steps for {task.id}, whose longest episode is unknown, got none")
    if num_steps <= burn_in:
        raise InputError(f"need more than {burn_in} steps, the burn-in, got {num_steps}")
    check_memory(spec.agent, state_shapes(spec), task.params, 1, num_steps)
    return PureTrain(spec, num_steps)


def check_key(key: Any) -> None:
    """Raise unless this is one key of `jax.random.key`."""
    found = getattr(key, "aval", key)
    typed = hasattr(key, "dtype") and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed or key.shape:
        raise InputError(
            f"need a key such as jax.random.key(0), and jax.vmap for several, got {found!s:.80}"
        )


class BonusState(NamedTuple):
    """What the bonus has learned: the learner of PE-DQN, and a clock that counts updates."""

    learner: Any
    clock: Clock


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
        """The bonus b(s, a) of one observation: of an action, or of all `[A]` if none is given."""
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
        return BonusState(learner, clock), dict(update.metrics)

    def _observations(self, obs: Any, axes: tuple[int, ...]) -> Array:
        form = self.agent.spec.observation
        wanted = axes if isinstance(form, OneHot) else (*axes, *form.shape)
        if jnp.shape(obs) != wanted:
            raise InputError(f"need observations of shape {wanted}, got {jnp.shape(obs)}")
        return jnp.asarray(obs, form.dtype)


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
    if not isinstance(observation, Observation):
        if not isinstance(observation, tuple | list) or not observation:
            raise InputError(
                "need a shape such as (4,), or Dense, OneHot or Image for observation, "
                f"got {observation!r}"
            )
        sides = [require_integer("each side of observation", n, at_least=1) for n in observation]
        observation = Dense(tuple(sides))
    spec = Spec(observation, num_actions)
    return Bonus(*configure("pe_dqn", fields, Task(id="your environment", env=spec, facts=())))
