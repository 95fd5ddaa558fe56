"""The three parts of a step, the same in every loop: decide, learn, observe.

The order is decide → the world moves → learn → observe: a simulator outside the accelerator runs
while the accelerator learns, and every loop sees the same data.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from winkel.agents.base import Agent
from winkel.replay.base import Replay
from winkel.types import Clock, Decision, EnvStep, RunState, Transition, Update

UNLIMITED = 2**31 - 1
"""A horizon that no run reaches."""


class Horizon(NamedTuple):
    """When a run ends: after so many episodes or so many steps, whichever is first."""

    episodes: Int[Array, "*batch"] | int = UNLIMITED
    steps: Int[Array, "*batch"] | int = UNLIMITED

    def progress(self, clock: Clock) -> Float[Array, "*batch"]:
        """Share of the horizon that is done, in [0, 1]."""
        by_episodes = clock.episodes / jnp.asarray(self.episodes, float)
        by_steps = clock.env_steps / jnp.asarray(self.steps, float)
        return jnp.clip(jnp.maximum(by_episodes, by_steps), 0.0, 1.0)


def start_clock() -> Clock:
    """Nothing has happened."""
    zero = jnp.zeros((), jnp.int32)
    return Clock(env_steps=zero, episodes=zero, updates=zero, progress=jnp.zeros(()))


def decide(agent: Agent, run: RunState, hyper: Any, key: PRNGKeyArray) -> tuple[Decision, Any]:
    """What to do now, and what the actor then remembers."""
    return agent.act(run.learner, run.actor, run.obs, run.first, run.clock, hyper, key)


def learn(
    agent: Agent, replay: Replay, run: RunState, hyper: Any, keys: tuple[PRNGKeyArray, PRNGKeyArray]
) -> tuple[RunState, Update]:
    """Sample, update, reprioritise. One key draws the batch, the other is the agent's."""
    key_sample, key_update = keys
    batch = replay.sample(
        run.replay,
        agent.config.batch_size,
        key_sample,
        gamma=hyper.gamma,
        progress=run.clock.progress,
    )
    learner, update = agent.update(run.learner, batch, run.clock, hyper, key_update)
    stored = replay.reprioritise(run.replay, batch, update.priorities)
    clock = run.clock._replace(updates=run.clock.updates + 1)
    return run._replace(learner=learner, replay=stored, clock=clock), update


def observe(
    replay: Replay, run: RunState, decision: Decision, actor: Any, step: EnvStep, horizon: Horizon
) -> RunState:
    """Store the transition and advance the clock."""
    transition = Transition(
        obs=run.obs,
        action=decision.action,
        reward=step.reward,
        discount=step.discount,
        next_obs=step.next_obs,
        boundary=step.boundary,
        extras=decision.extras,
    )
    clock = run.clock._replace(
        env_steps=run.clock.env_steps + 1,
        episodes=run.clock.episodes + jnp.asarray(step.boundary, jnp.int32),
    )
    return run._replace(
        actor=actor,
        obs=step.obs,
        first=jnp.asarray(step.boundary),
        replay=replay.add(run.replay, transition),
        clock=clock._replace(progress=horizon.progress(clock)),
    )
