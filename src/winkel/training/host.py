"""The parts of a step whose world is outside the accelerator: decide, learn, observe.

The same algorithm as in `device`, with several environments for each lane. The order is decide →
learn → observe; actions are sent when they are there, so that simulators run while the accelerator
learns.
Observing and the next decision are one program, as nothing comes between them.
With one environment a lane does what it does in `device`, random numbers included.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Shaped

from winkel.agents.base import Agent
from winkel.replay.base import Replay
from winkel.training import steps
from winkel.training.launches import Program
from winkel.training.replays import add_kept, replay_of
from winkel.training.steps import Horizon
from winkel.types import AnyArray, Clock, Decision, Image, Observation, RunState, Transition


class HostJob(NamedTuple):
    """What a lane is to do: hyperparameters, when it is done, and its seed."""

    hyper: Any
    horizon: Horizon
    key: Key[Array, "*S"]


class HostLane(NamedTuple):
    """A run under way. The world is not part of it: a run that is resumed begins new episodes."""

    run: RunState


Told = dict[str, Float[Array, "*S room"]]
"""Metrics of the last updates, by their number modulo the room."""


class Seen(NamedTuple):
    """What simulators brought, as the accelerator takes it: single frames where there are images.

    In two arrays, as each one is a transfer.

    Attributes:
        shown: what transitions end in, and what to act on next [*S, 2, E, …].
        numbers: rewards, discounts, whether episodes ended, and 0 where a transition was lost.
    """

    shown: Shaped[AnyArray, "..."]
    numbers: Float[AnyArray, "*S 4 E"]

    @classmethod
    def of(
        cls,
        next_obs: Shaped[np.ndarray, "S E ..."],
        obs: Shaped[np.ndarray, "S E ..."],
        reward: Float[np.ndarray, "S E"],
        discount: Float[np.ndarray, "S E"],
        boundary: Bool[np.ndarray, "S E"],
        keep: Bool[np.ndarray, "S E"],
    ) -> "Seen":
        """Packed."""
        numbers = np.stack([reward, discount, boundary, keep], axis=1)
        return cls(np.stack([next_obs, obs], axis=1), numbers.astype(np.float32))


def _replay(agent: Agent, num_envs: int) -> Replay:
    return replay_of(agent.config, agent.spec.observation, num_envs)


def _keys(key: PRNGKeyArray, num_envs: int) -> Key[Array, "E"]:
    """One for each environment, the first of which has the key itself."""
    others = jax.vmap(lambda env: jax.random.fold_in(key, env))(jnp.arange(num_envs))
    return others.at[0].set(key)


def _begin(agent: Agent, job: HostJob, obs: Array) -> HostLane:
    num_envs = len(obs)
    key_learner, key_actor, _, key_run, key_probe = (
        jax.random.fold_in(job.key, use) for use in range(5)
    )
    run = RunState(
        learner=agent.init(key_learner, job.hyper),
        actor=jax.vmap(agent.init_actor)(_keys(key_actor, num_envs)),
        obs=_stacks(agent.spec.observation, obs),
        first=jnp.ones(num_envs, bool),
        replay=(),
        clock=steps.start_clock(),
        key=key_run,
    )
    decision, _ = _decide(agent, run, job.hyper, key_probe)
    nothing = jnp.zeros(num_envs)
    example = Transition(
        obs=run.obs,
        action=decision.action,
        reward=nothing,
        discount=nothing,
        next_obs=run.obs,
        boundary=run.first,
        extras=decision.extras,
    )
    replay = _replay(agent, num_envs)
    if hasattr(replay, "add_many"):
        example = jax.tree.map(lambda x: x[0], example)
    return HostLane(run=run._replace(replay=replay.init(example)))


def _stacks(observation: Observation, obs: Array) -> Array:
    """Observations at the start of episodes: the first frame, repeated."""
    if not isinstance(observation, Image):
        return obs
    return jnp.repeat(obs[:, None], observation.stack, axis=1)


def _decide(agent: Agent, run: RunState, hyper: Any, key: PRNGKeyArray) -> tuple[Decision, Any]:
    def act(actor: Any, obs: Array, first: Array, key: PRNGKeyArray) -> tuple[Decision, Any]:
        return agent.act(run.learner, actor, obs, first, run.clock, hyper, key)

    keys = _keys(key, len(run.first))
    return jax.vmap(act)(run.actor, run.obs, run.first, keys)


def _use(run: RunState, use: int) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.fold_in(run.key, run.clock.env_steps), use)


def _observe(
    agent: Agent, job: HostJob, run: RunState, decision: Decision, actor: Any, seen: Seen
) -> RunState:
    next_obs, obs = jnp.asarray(seen.shown)
    reward, discount, boundary, keep = jnp.asarray(seen.numbers)
    boundary, keep = boundary > 0, keep > 0
    observation = agent.spec.observation
    obs = _stacks(observation, obs)
    if isinstance(observation, Image):
        next_obs = jnp.concatenate([run.obs[:, 1:], next_obs[:, None]], axis=1)
        again = boundary.reshape(-1, *(1,) * (next_obs.ndim - 1))
        obs = jnp.where(again, obs, next_obs)
    transitions = Transition(
        obs=run.obs,
        action=decision.action,
        reward=reward,
        discount=discount,
        next_obs=next_obs,
        boundary=boundary,
        extras=decision.extras,
    )
    replay = _replay(agent, len(keep))
    clock = run.clock._replace(
        env_steps=run.clock.env_steps + len(keep),
        episodes=run.clock.episodes + jnp.sum(boundary & keep, dtype=jnp.int32),
    )
    return run._replace(
        actor=actor,
        obs=obs,
        first=boundary,
        replay=add_kept(replay, run.replay, transitions, keep),
        clock=clock._replace(progress=job.horizon.progress(clock)),
    )


def _cut(agent: Agent, job: HostJob, run: RunState) -> RunState:
    decision, _ = _decide(agent, run, job.hyper, run.key)
    nothing, never = jnp.zeros(len(run.first)), jnp.zeros(len(run.first), bool)
    transitions = Transition(
        obs=run.obs,
        action=decision.action,
        reward=nothing,
        discount=nothing,
        next_obs=run.obs,
        boundary=never,
        extras=decision.extras,
    )
    replay = _replay(agent, len(run.first))
    return run._replace(replay=add_kept(replay, run.replay, transitions, keep=never))


def host_lane_shapes(agent: Agent, hyper: Any, obs: jax.ShapeDtypeStruct) -> HostLane:
    """Shapes and types of one lane whose environments show `obs` [E, …], without computing it."""
    job = HostJob(hyper=hyper, horizon=Horizon(), key=jax.random.key(0))
    return jax.eval_shape(lambda job, obs: _begin(agent, job, obs), job, obs)


@partial(jax.jit, static_argnames="agent")
def begin(agent: Agent, jobs: HostJob, obs: Array) -> HostLane:
    """Lanes at their start; `obs` [S, E, …] is what the environments show."""
    return jax.vmap(lambda job, obs: _begin(agent, job, obs))(jobs, obs)


@partial(jax.jit, static_argnames="agent")
def decide(agent: Agent, jobs: HostJob, runs: RunState) -> tuple[Decision, Any]:
    """Actions [S, E], and what actors then remember; replays may be left out."""
    return jax.vmap(lambda job, run: _decide(agent, run, job.hyper, _use(run, 0)))(jobs, runs)


@partial(Program, static_argnames=("agent", "num_envs"), donate_argnames=("lanes", "told"))
def learn(
    agent: Agent, jobs: HostJob, lanes: HostLane, told: Told, num_envs: int
) -> tuple[HostLane, Told]:
    """One update of every lane; its metrics go where its number, modulo the room, has them.

    They are kept on the accelerator: with all arrays in their place at each call, a GPU repeats
    the launches of the last one instead of recording them anew.
    """

    def one(job: HostJob, lane: HostLane, told: Told) -> tuple[HostLane, Told]:
        number = lane.run.clock.updates
        run, metrics = _learn(agent, job, lane, num_envs)
        return HostLane(run), {
            name: rows.at[number % len(rows)].set(metrics[name]) for name, rows in told.items()
        }

    return jax.vmap(one)(jobs, lanes, told)


def _learn(
    agent: Agent, job: HostJob, lane: HostLane, num_envs: int
) -> tuple[RunState, dict[str, Float[Array, ""]]]:
    keys = _use(lane.run, 2), _use(lane.run, 3)
    run, update = steps.learn(agent, _replay(agent, num_envs), lane.run, job.hyper, keys)
    return run, dict(update.metrics)


def nothing_told(agent: Agent, jobs: HostJob, lanes: HostLane, num_envs: int, room: int) -> Told:
    """Room for the metrics of so many updates."""
    _, metrics = jax.eval_shape(
        jax.vmap(lambda job, lane: _learn(agent, job, lane, num_envs)), jobs, lanes
    )
    return {name: jnp.zeros((*one.shape, room), one.dtype) for name, one in metrics.items()}


@partial(Program, static_argnames="agent", donate_argnames="runs")
def observe(
    agent: Agent,
    jobs: HostJob,
    learners: Any,
    runs: RunState,
    decision: Decision,
    actors: Any,
    seen: Seen,
) -> tuple[RunState, Clock, tuple[Decision, Any]]:
    """Store what simulators brought, advance the clocks, of which there is a copy, and decide.

    Runs come and go without their learners: every array that a program returns costs time.
    """
    runs = jax.vmap(lambda *of: _observe(agent, *of))(jobs, runs, decision, actors, seen)
    decided = decide(agent, jobs, runs._replace(learner=learners))
    return runs, jax.tree.map(jnp.copy, runs.clock), decided


@partial(jax.jit, static_argnames="agent", donate_argnames="lanes")
def cut(agent: Agent, jobs: HostJob, lanes: HostLane) -> HostLane:
    """Lanes whose episodes begin anew: nothing leads there from what is stored."""
    return jax.vmap(lambda job, lane: HostLane(_cut(agent, job, lane.run)))(jobs, lanes)


@partial(jax.jit, static_argnames="agent")
def greedy(agent: Agent, learner: Any, obs: Array, hyper: Any) -> Int[Array, "E"]:
    """Actions of highest value for observations `[E, …]`."""
    return jax.vmap(lambda o: jnp.argmax(agent.estimates(learner, o, hyper).value))(obs)


@partial(jax.jit, static_argnames="observation")
def stacks(
    observation: Observation, before: Array | None, frames: Array, begun: Bool[Array, "E"]
) -> Array:
    """Observations `[E, …]` after frames, new where episodes have begun; for looking on."""
    fresh = _stacks(observation, frames)
    if before is None or not isinstance(observation, Image):
        return fresh
    moved = jnp.concatenate([before[:, 1:], frames[:, None]], axis=1)
    return jnp.where(begun.reshape(-1, *(1,) * (moved.ndim - 1)), fresh, moved)
