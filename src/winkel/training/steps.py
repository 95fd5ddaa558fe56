"""One step of a run in three functions: decide, learn, observe.

The order is decide → the environment moves → learn → observe, so that simulators run while the
accelerator learns. Every function is for one lane.

A run in simulators has several environments. Then `run.first` has the shape `[E]`, and actors,
observations, actions and transitions have the same leading axis. A compiled environment is one
environment without that axis. The functions read from the shape of `run.first` which it is.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from winkel.agents.base import Agent
from winkel.replay.base import Replay
from winkel.training.replays import add_transition, init_replay, make_replay
from winkel.types import Clock, Decision, EnvStep, RunState, Transition, Update

UNLIMITED = 2**31 - 1
"""A horizon that no run reaches."""

KEY_LEARNER, KEY_ACTOR, KEY_RESET, KEY_RUN, _, KEY_EVALUATION = range(6)
"""What is folded into the key of a run, by use."""

KEY_DECIDE, KEY_ENVIRONMENT, KEY_SAMPLE, KEY_UPDATE = range(4)
"""What is folded into the key of a step, by use."""


class Horizon(NamedTuple):
    """When a run ends: after so many episodes or so many steps, whichever is first."""

    episodes: Int[Array, "*batch"] | int = UNLIMITED
    steps: Int[Array, "*batch"] | int = UNLIMITED

    def progress(self, clock: Clock) -> Float[Array, "*batch"]:
        """Share of the horizon that is done, in [0, 1]."""
        by_episodes = clock.episodes / jnp.asarray(self.episodes, float)
        by_steps = clock.env_steps / jnp.asarray(self.steps, float)
        return jnp.clip(jnp.maximum(by_episodes, by_steps), 0.0, 1.0)


class Job(NamedTuple):
    """The inputs of a lane's run, as programs take them.

    Attributes:
        params: the setting of a compiled environment; empty for simulators.
        hyper: the agent's hyperparameters.
        horizon: when the run ends.
        key: the source of everything random in it.
        fan_in: numbers that an observation of this setting really has; None if not padded.
        available: actions that this setting really has; None if no lane of the program has fewer.
    """

    params: Any
    hyper: Any
    horizon: Horizon
    key: Key[Array, "*S"]
    fan_in: Float[Array, "*S"] | None = None
    available: Int[Array, "*S"] | None = None


def start_clock() -> Clock:
    """Nothing has happened."""
    zero = jnp.zeros((), jnp.int32)
    return Clock(env_steps=zero, episodes=zero, updates=zero, progress=jnp.zeros(()))


def fit_agent(agent: Agent, job: Job) -> Agent:
    """Tell the agent which inputs and actions this setting really has."""
    spec = agent.spec._replace(fan_in=job.fan_in, available=job.available)
    return dataclasses.replace(agent, spec=spec)


def step_key(run: RunState) -> PRNGKeyArray:
    """The key of the current step: a function of the run's key and its step number.

    So a run depends neither on its neighbours nor on where a chunk of steps ends.
    """
    return jax.random.fold_in(run.key, run.clock.env_steps)


def start_run(agent: Agent, job: Job, obs: Array, num_envs: int | None = None) -> RunState:
    """A run before its first step.

    Args:
        agent: the algorithm, fitted to the setting.
        job: what the run is to do.
        obs: what the environment shows, or what each of several shows.
        num_envs: environments of a run in simulators; None for a compiled environment.
    """
    first = jnp.ones(() if num_envs is None else num_envs, bool)
    keys = environment_keys(jax.random.fold_in(job.key, KEY_ACTOR), first)
    run = RunState(
        learner=agent.init(jax.random.fold_in(job.key, KEY_LEARNER), job.hyper),
        actor=over_environments(agent.init_actor, first)(keys),
        obs=obs,
        first=first,
        replay=(),
        clock=start_clock(),
        key=jax.random.fold_in(job.key, KEY_RUN),
    )
    example = blank_transition(agent, run, job.hyper)
    return run._replace(replay=init_replay(replay_of(agent, run), example))


def decide(agent: Agent, run: RunState, hyper: Any, key: PRNGKeyArray) -> tuple[Decision, Any]:
    """Select an action in every environment; returns it with what the actor then remembers."""

    def act(actor: Any, obs: Array, first: Array, key: PRNGKeyArray) -> tuple[Decision, Any]:
        return agent.act(run.learner, actor, obs, first, run.clock, hyper, key)

    keys = environment_keys(jax.random.fold_in(key, KEY_DECIDE), run.first)
    return over_environments(act, run.first)(run.actor, run.obs, run.first, keys)


def learn(agent: Agent, run: RunState, hyper: Any, key: PRNGKeyArray) -> tuple[RunState, Update]:
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
        replay=add_transition(replay_of(agent, run), run.replay, transition, keep),
        clock=clock._replace(progress=horizon.progress(clock)),
    )


def cut_episodes(agent: Agent, run: RunState, hyper: Any) -> RunState:
    """End all stored episodes: nothing leads from what is stored to `run.obs`."""
    blank, lost = blank_transition(agent, run, hyper), jnp.zeros_like(run.first)
    stored = add_transition(replay_of(agent, run), run.replay, blank, keep=lost)
    return run._replace(replay=stored)


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


def replay_of(agent: Agent, run: RunState) -> Replay:
    """The replay that the agent's settings ask for, for the environments of a run."""
    return make_replay(agent.config, agent.spec.observation, run.first.size)


def over_environments(function: Callable[..., Any], first: Bool[Array, "*E"]) -> Callable[..., Any]:
    """A function of one environment for all of a run."""
    return jax.vmap(function) if first.ndim else function


def environment_keys(key: PRNGKeyArray, first: Bool[Array, "*E"]) -> Key[Array, "*E"]:
    """A key for each environment; the first has the key itself, as a compiled environment has."""
    if first.ndim == 0:
        return key
    others = jax.vmap(lambda env: jax.random.fold_in(key, env))(jnp.arange(len(first)))
    return others.at[0].set(key)
