"""One step of a run in three functions: decide, learn, observe.

The order is decide → the environment moves → learn → observe, so that simulators run while the
accelerator learns. Every function is for one lane.

A run in simulators has several environments. Then `run.first` has the shape `[E]`, and actors,
observations, actions and transitions have the same leading axis. A compiled environment is one
environment without that axis. The functions read from the shape of `run.first` which it is.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from winkel.agents.base import Agent, Spec
from winkel.errors import InputError
from winkel.replay import Streams, Uniform
from winkel.types import Clock, Decision, EnvStep, Image, Observation, RunState, Transition, Update

UNLIMITED = 2**31 - 1
"""A horizon that no run reaches."""

KEY_LEARNER, KEY_ACTOR, KEY_RESET, KEY_RUN, _, KEY_EVALUATION = range(6)
"""Numbers folded into the key of a run, by use. 4 is free; renumbering would change all results."""

KEY_DECIDE, KEY_ENVIRONMENT, KEY_SAMPLE, KEY_UPDATE, KEY_MORE_UPDATES = range(5)
"""Numbers that are folded into the key of a step, by use."""

COPY_OFFSET = 1_000_000
"""Added to the number of a copy before it is folded in, so that it equals no `KEY_` number."""


class Horizon(NamedTuple):
    """A number of episodes and one of steps; it is reached with the first of them."""

    episodes: Int[Array, "*batch"] | int = UNLIMITED
    steps: Int[Array, "*batch"] | int = UNLIMITED

    def progress(self, clock: Clock) -> Float[Array, "*batch"]:
        """Share of the horizon that is done, in [0, 1]: of its episodes or steps, the larger share.

        With a horizon of episodes only, it moves when an episode ends. Burn-in counts.
        """
        by_episodes = clock.episodes / jnp.asarray(self.episodes, float)
        by_steps = clock.env_steps / jnp.asarray(self.steps, float)
        return jnp.clip(jnp.maximum(by_episodes, by_steps), 0.0, 1.0)


class Plan(NamedTuple):
    """The inputs of one run."""

    params: Any
    """The setting of a compiled environment; empty for simulators."""
    hyper: Any
    """The agent's hyperparameters, plain numbers."""
    horizon: Horizon
    """The whole run, of which schedules take shares; it may stop before (`stop`)."""
    seed: int
    """Seed of everything random in the run."""
    fan_in: int | None = None
    """Numbers of an observation without padding; None if it is not padded."""
    stop: Horizon | None = None
    """When to stop before the horizon; None to stop at it."""
    saved: RunState | None = None
    """The state to continue from; None to begin."""
    available: int | None = None
    """Actions without padding, the first ones; None for all."""
    facts: tuple[str, ...] | None = None
    """Names of the facts to record; None for all."""
    most_steps: int | None = None
    """Upper bound on environment steps; None if unknown."""
    copy: int = 0
    """0, 1, … for runs with equal setting and seed that should differ."""

    @property
    def end(self) -> Horizon:
        """When the run stops: `stop`, else the horizon."""
        return self.stop or self.horizon

    def share_done(self, episodes: Any, env_steps: Any) -> float:
        """Share of the run up to its end that is done, after so many episodes and steps.

        1 if and only if the end is reached. Unlike `Clock.progress` it is not rounded by a program.
        """
        by_episodes = int(episodes) / int(self.end.episodes)
        by_steps = int(env_steps) / int(self.end.steps)
        return min(max(by_episodes, by_steps), 1.0)


class Job(NamedTuple):
    """A plan as arrays: with an entry for each lane, and for one lane inside of `vmap`.

    `key` is made of seed and copy. `available` is None if no lane of the program lacks an action.
    """

    params: Any
    hyper: Any
    horizon: Horizon
    key: Key[Array, "*S"]
    fan_in: Float[Array, "*S"]
    available: Int[Array, "*S"] | None = None


def make_jobs(plans: Sequence[Plan], spec: Spec, masked: bool) -> Job:
    """One job for each plan; `masked` if some runs of the program lack actions of others."""

    def arrays(plan: Plan) -> Any:
        seed, copy = np.uint32(plan.seed), np.uint32(plan.copy)
        fan_in, available = plan.fan_in or spec.inputs, plan.available or spec.num_actions
        horizon = [*map(np.int32, plan.horizon)]
        return plan.params, plan.hyper, horizon, seed, copy, float(fan_in), np.int32(available)

    # On the host first: one transfer for each leaf.
    stacked = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *map(arrays, plans))
    params, hyper, horizon, seed, copy, fan_in, available = stacked
    key = jax.vmap(lambda seed, copy: copy_key(jax.random.key(seed), copy))(seed, copy)
    return Job(params, hyper, Horizon(*horizon), key, fan_in, available if masked else None)


def copy_key(key: PRNGKeyArray, copy: Any) -> PRNGKeyArray:
    """The key of a run in a copy of a setting, from the key of its seed."""
    return jax.lax.select(copy == 0, key, jax.random.fold_in(key, COPY_OFFSET + copy))


def start_clock() -> Clock:
    """The clock before the first step."""
    zero = jnp.zeros((), jnp.int32)
    return Clock(env_steps=zero, episodes=zero, updates=zero, progress=jnp.zeros(()))


def fit_agent(agent: Agent, job: Job) -> Agent:
    """Return the agent for the inputs and actions that this setting has."""
    spec = agent.spec._replace(fan_in=job.fan_in, available=job.available)
    return dataclasses.replace(agent, spec=spec)


def step_key(run: RunState) -> PRNGKeyArray:
    """The key of the current step: a function of the run's key and its step number.

    So a run depends neither on its neighbours nor on where a chunk of steps ends.
    """
    return jax.random.fold_in(run.key, run.clock.env_steps)


def start_run(agent: Agent, job: Job, obs: Array, num_envs: int | None = None) -> RunState:
    """A run before its first step; `obs` is what its environment or each of `num_envs` shows.

    The agent must be fitted to the setting (`fit_agent`).
    """
    first = jnp.ones(() if num_envs is None else num_envs, bool)
    key_actor = jax.random.fold_in(job.key, KEY_ACTOR)
    run = RunState(
        learner=agent.init(jax.random.fold_in(job.key, KEY_LEARNER), job.hyper),
        actor=in_each_environment(agent.init_actor, key_actor, first),
        obs=obs,
        first=first,
        replay=(),
        clock=start_clock(),
        key=jax.random.fold_in(job.key, KEY_RUN),
    )
    return run._replace(replay=replay_of(agent, run).init(blank_transition(agent, run, job.hyper)))


def decide(agent: Agent, run: RunState, hyper: Any, key: PRNGKeyArray) -> tuple[Decision, Any]:
    """Select an action in every environment; returns it with what the actor then remembers."""

    def act(actor: Any, obs: Array, first: Array, key: PRNGKeyArray) -> tuple[Decision, Any]:
        return agent.act(run.learner, actor, obs, first, run.clock, hyper, key)

    key = jax.random.fold_in(key, KEY_DECIDE)
    return in_each_environment(act, key, run.first, run.actor, run.obs, run.first)


def learn(agent: Agent, run: RunState, hyper: Any, key: PRNGKeyArray) -> tuple[RunState, Update]:
    """Make the updates of one step; returns the last one, with the means of all metrics."""
    metrics = []
    for number in range(agent.config.updates_per_step):
        key_update = jax.random.fold_in(key, KEY_MORE_UPDATES + number) if number else key
        run, update = _update(agent, run, hyper, key_update)
        metrics.append(update.metrics)
    if len(metrics) > 1:
        means = jax.tree.map(lambda *values: jnp.mean(jnp.stack(values)), *metrics)
        update = update._replace(metrics=means)
    return run, update


def _update(agent: Agent, run: RunState, hyper: Any, key: PRNGKeyArray) -> tuple[RunState, Update]:
    """Sample, update, reprioritise."""
    replay = replay_of(agent, run)
    batch = replay.sample(
        run.replay,
        agent.config.batch_size,
        jax.random.fold_in(key, KEY_SAMPLE),
        gamma=hyper.gamma,
        progress=run.clock.progress,
    )
    key_update = jax.random.fold_in(key, KEY_UPDATE)
    learner, update = agent.update(run.learner, batch, run.clock, hyper, key_update)
    stored = replay.reprioritise(run.replay, batch, update.priorities)
    clock = run.clock._replace(updates=run.clock.updates + 1)
    return run._replace(learner=learner, replay=stored, clock=clock), update


def observe(
    agent: Agent,
    run: RunState,
    decision: Decision,
    actor: Any,
    step: EnvStep,
    horizon: Horizon,
    keep: Bool[Array, "E"] | None = None,
) -> RunState:
    """Store the transition of every environment and advance the clock.

    `keep` is False where a simulator died: there is no transition to store and no episode to count.
    """
    transition = Transition(
        obs=run.obs,
        action=decision.action,
        reward=step.reward,
        discount=step.discount,
        next_obs=step.next_obs,
        boundary=step.boundary,
        extras=decision.extras,
    )
    boundary = jnp.asarray(step.boundary)
    ended = boundary if keep is None else boundary & keep
    clock = run.clock._replace(
        env_steps=run.clock.env_steps + boundary.size,
        episodes=run.clock.episodes + jnp.sum(ended, dtype=jnp.int32),
    )
    return run._replace(
        actor=actor,
        obs=step.obs,
        first=boundary,
        replay=replay_of(agent, run).add(run.replay, transition, keep),
        clock=clock._replace(progress=horizon.progress(clock)),
    )


def cut_episodes(agent: Agent, run: RunState, hyper: Any) -> RunState:
    """End all stored episodes: nothing leads from what is stored to `run.obs`."""
    blank, lost = blank_transition(agent, run, hyper), jnp.zeros_like(run.first)
    return run._replace(replay=replay_of(agent, run).add(run.replay, blank, keep=lost))


def blank_transition(agent: Agent, run: RunState, hyper: Any) -> Transition:
    """A transition without reward that stays where it is, in the shapes of all others."""
    decision, _ = decide(agent, run, hyper, step_key(run))
    zero = jnp.zeros(run.first.shape)
    return Transition(
        obs=run.obs,
        action=decision.action,
        reward=zero,
        discount=zero,
        next_obs=run.obs,
        boundary=jnp.zeros_like(run.first),
        extras=decision.extras,
    )


def make_replay(config: Any, observation: Observation, num_envs: int = 1) -> Uniform | Streams:
    """The replay that an agent's settings ask for, for the steps of `num_envs` environments.

    `Uniform` is enough for single transitions that are drawn uniformly: they need no order. Samples
    of several steps, priorities and stacks of frames need `Streams`.
    """
    stack = observation.stack if isinstance(observation, Image) else None
    if config.n_step == 1 and config.priority_exponent == 0.0 and stack is None:
        return Uniform(capacity=config.capacity)
    if config.burn_in < config.n_step * num_envs:
        raise InputError(
            f"need burn_in >= {config.n_step * num_envs}, n_step for each of {num_envs} "
            f"environments, got {config.burn_in}"
        )
    return Streams(
        capacity=config.capacity,
        num_envs=num_envs,
        n_step=config.n_step,
        stack=stack,
        priority_exponent=config.priority_exponent,
        importance_exponent=config.importance_exponent,
        importance_final=config.importance_final,
    )


def replay_of(agent: Agent, run: RunState) -> Uniform | Streams:
    """The replay for the environments of a run."""
    return make_replay(agent.config, agent.spec.observation, run.first.size)


def in_each_environment(
    function: Callable[..., Any], key: PRNGKeyArray, first: Bool[Array, "*E"], *arrays: Any
) -> Any:
    """Apply a function of arrays and a key to every environment of a run.

    The first environment has the key itself, as a compiled environment has.
    """
    if first.ndim == 0:
        return function(*arrays, key)
    keys = jax.vmap(lambda env: jax.random.fold_in(key, env))(jnp.arange(len(first)))
    return jax.vmap(function)(*arrays, keys.at[0].set(key))
