"""The loop on the accelerator: environment, replay and learning as one compiled program.

Every function here is for one lane, batched over lanes at the end of the file. A lane's randomness
is a function of its seed and its own step number, so that its course depends neither on its
neighbours nor on where a chunk of steps ends.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from winkel.agents.base import Agent, possible
from winkel.replay.base import Replay
from winkel.training import steps
from winkel.training.mesh import everywhere
from winkel.training.replays import single
from winkel.training.steps import Horizon
from winkel.types import OneHot, RunState, Transition


class Job(NamedTuple):
    """What a lane is to do.

    Attributes:
        params: the environment's setting.
        hyper: the agent's.
        horizon: when it is done.
        key: the seed of everything random in it.
        fan_in: numbers that an observation of this setting really has.
        available: actions that it really has; None where no lane of the program has fewer.
    """

    params: Any
    hyper: Any
    horizon: Horizon
    key: Key[Array, "*S"]
    fan_in: Float[Array, "*S"]
    available: Int[Array, "*S"] | None = None


class Tally(NamedTuple):
    """What has added up in the episode so far."""

    total: Float[Array, "*S"]
    length: Int[Array, "*S"]
    facts: dict[str, Array]


class Lane(NamedTuple):
    """A run under way: its state, its world, and what is counted.

    Attributes:
        run: agent, replay and clock.
        env_state: the world.
        tally: of the current episode.
        visits: how often each action was chosen at each observation, where those are countable.
        seen: how many of these counts are not 0.
    """

    run: RunState
    env_state: Any
    tally: Tally
    visits: Int[Array, "*S cells A"]
    seen: Int[Array, "*S"]


class Trace(NamedTuple):
    """What a chunk of steps shows, an entry for each.

    Attributes:
        ended: whether an episode ended with this step.
        tally: of that episode.
        seen: state-actions seen by then.
        metrics: of the update, empty without learning.
    """

    ended: Bool[Array, "*S T"]
    tally: Tally
    seen: Int[Array, "*S T"]
    metrics: dict[str, Float[Array, "*S T"]]


def _replay(agent: Agent) -> Replay:
    return single(agent.config, agent.spec.observation)


def _fitted(agent: Agent, job: Job) -> Agent:
    """The agent for what this setting really has: inputs, actions."""
    spec = agent.spec._replace(fan_in=job.fan_in, available=job.available)
    return dataclasses.replace(agent, spec=spec)  # type: ignore[type-var]


def _begin(agent: Agent, env: Any, job: Job) -> Lane:
    agent = _fitted(agent, job)
    key_learner, key_actor, key_reset, key_run, key_probe = (
        jax.random.fold_in(job.key, use) for use in range(5)
    )
    env_state, obs = env.reset(key_reset, job.params)
    learner = agent.init(key_learner, job.hyper)
    actor = agent.init_actor(key_actor)
    first, clock = jnp.ones((), bool), steps.start_clock()
    decision, _ = agent.act(learner, actor, obs, first, clock, job.hyper, key_probe)
    _, step = env.step(key_probe, env_state, decision.action, job.params)
    example = Transition(
        obs=obs,
        action=decision.action,
        reward=step.reward,
        discount=step.discount,
        next_obs=step.next_obs,
        boundary=step.boundary,
        extras=decision.extras,
    )
    observation = agent.spec.observation
    cells = observation.size if isinstance(observation, OneHot) else 0
    return Lane(
        run=RunState(
            learner=learner,
            actor=actor,
            obs=obs,
            first=first,
            replay=_replay(agent).init(example),
            clock=clock,
            key=key_run,
        ),
        env_state=env_state,
        tally=Tally(
            total=jnp.zeros(()),
            length=jnp.zeros((), jnp.int32),
            facts={name: jnp.zeros_like(fact) for name, fact in step.info.items()},
        ),
        visits=jnp.zeros((cells, agent.spec.num_actions), jnp.int32),
        seen=jnp.zeros((), jnp.int32),
    )


def _step(agent: Agent, env: Any, job: Job, learning: bool, lane: Lane) -> tuple[Lane, Trace]:
    agent = _fitted(agent, job)
    key = jax.random.fold_in(lane.run.key, lane.run.clock.env_steps)
    key_decide, key_world, key_sample, key_update = (jax.random.fold_in(key, u) for u in range(4))
    decision, actor = steps.decide(agent, lane.run, job.hyper, key_decide)
    env_state, result = env.step(key_world, lane.env_state, decision.action, job.params)
    visits, seen = _counted(lane, decision.action)
    run, metrics = lane.run, {}
    if learning:
        run = _after(decision.action, run)
        run, update = steps.learn(agent, _replay(agent), run, job.hyper, (key_sample, key_update))
        metrics = dict(update.metrics)
    run = steps.observe(_replay(agent), run, decision, actor, result, job.horizon)
    tally = Tally(
        total=lane.tally.total + result.reward,
        length=lane.tally.length + 1,
        facts={name: lane.tally.facts[name] + fact for name, fact in result.info.items()},
    )
    fresh = jax.tree.map(lambda x: jnp.where(result.boundary, jnp.zeros_like(x), x), tally)
    trace = Trace(ended=result.boundary, tally=tally, seen=seen, metrics=metrics)
    return Lane(run=run, env_state=env_state, tally=fresh, visits=visits, seen=seen), trace


def _after(action: Int[Array, ""], run: RunState) -> RunState:
    """The run as it is once an action is chosen: learning must not begin before.

    Else XLA may choose it later, from a copy of all parameters, which learning has changed by then.
    """
    learner, _ = jax.lax.optimization_barrier((run.learner, action))
    return run._replace(learner=learner)


def _counted(lane: Lane, action: Int[Array, ""]) -> tuple[Array, Array]:
    if lane.visits.shape[0] == 0:
        return jnp.asarray(lane.visits), jnp.asarray(lane.seen)
    before = lane.visits[lane.run.obs, action]
    visits = jnp.asarray(lane.visits).at[lane.run.obs, action].add(1)
    return visits, lane.seen + (before == 0).astype(jnp.int32)


def _advance(
    agent: Agent, env: Any, job: Job, lane: Lane, num_steps: int, learning: bool
) -> tuple[Lane, Trace]:
    return jax.lax.scan(
        lambda lane, _: _step(agent, env, job, learning, lane), lane, length=num_steps
    )


class _Evaluation(NamedTuple):
    env_state: Any
    obs: Any
    step: Int[Array, ""]
    episode: Int[Array, ""]
    returns: Float[Array, " N"]


def _evaluate(
    agent: Agent, env: Any, job: Job, lane: Lane, key: PRNGKeyArray, num_episodes: int
) -> Float[Array, " N"]:
    """Undiscounted returns of greedy episodes in a copy of the world."""
    agent = _fitted(agent, job)

    def unfinished(now: _Evaluation) -> Bool[Array, ""]:
        return now.episode < num_episodes

    def step(now: _Evaluation) -> _Evaluation:
        value = agent.estimates(lane.run.learner, now.obs, job.hyper).value
        action = jnp.argmax(possible(value, job.available))
        key_step = jax.random.fold_in(key, now.step + 1)
        env_state, result = env.step(key_step, now.env_state, action, job.params)
        at = jnp.minimum(now.episode, num_episodes - 1)
        return _Evaluation(
            env_state=env_state,
            obs=result.obs,
            step=now.step + 1,
            episode=now.episode + result.boundary.astype(jnp.int32),
            returns=now.returns.at[at].add(jnp.where(unfinished(now), result.reward, 0.0)),
        )

    env_state, obs = env.reset(jax.random.fold_in(key, 0), job.params)
    zero = jnp.zeros((), jnp.int32)
    start = _Evaluation(
        env_state=env_state, obs=obs, step=zero, episode=zero, returns=jnp.zeros(num_episodes)
    )
    return jax.lax.while_loop(unfinished, step, start).returns


class Survey(NamedTuple):
    """What the agent believes at every countable observation."""

    value: Float[Array, "*S cells A"]
    disagreement: Float[Array, "*S cells A"]
    bonus: Float[Array, "*S cells A"]


def _survey(agent: Agent, job: Job, lane: Lane) -> Survey:
    agent = _fitted(agent, job)

    def look(obs: Int[Array, ""]) -> Survey:
        found = agent.estimates(lane.run.learner, obs, job.hyper)
        return Survey(value=found.value, disagreement=found.disagreement, bonus=found.bonus)

    return jax.vmap(look)(jnp.arange(lane.visits.shape[0], dtype=jnp.int32))


def lane_shapes(agent: Agent, env: Any, params: Any, hyper: Any, horizon: Horizon) -> Lane:
    """Shapes and types of one lane, without computing it."""
    job = Job(
        params=params,
        hyper=hyper,
        horizon=horizon,
        key=jax.random.key(0),
        fan_in=jnp.asarray(agent.spec.inputs, float),
    )
    return jax.eval_shape(lambda job: _begin(agent, env, job), job)


@partial(jax.jit, static_argnames=("agent", "mesh"))
def begin(agent: Agent, env: Any, jobs: Job, mesh: Mesh | None = None) -> Lane:
    """Lanes at their start."""
    return everywhere(lambda env, job: _begin(agent, env, job), mesh)(env, jobs)


@partial(jax.jit, static_argnames=("agent", "num_steps", "learning", "mesh"))
def advance(
    agent: Agent,
    env: Any,
    jobs: Job,
    lanes: Lane,
    num_steps: int,
    learning: bool,
    mesh: Mesh | None = None,
) -> tuple[Lane, Trace]:
    """All lanes by some steps. Burn-in is a call without learning."""
    return everywhere(
        lambda env, job, lane: _advance(agent, env, job, lane, num_steps, learning), mesh
    )(env, jobs, lanes)


@partial(jax.jit, static_argnames=("agent", "num_episodes", "mesh"))
def evaluate(
    agent: Agent,
    env: Any,
    jobs: Job,
    lanes: Lane,
    keys: Key[Array, "S"],
    num_episodes: int,
    mesh: Mesh | None = None,
) -> Float[Array, "S N"]:
    """Returns of greedy episodes; the lanes stay as they are."""
    return everywhere(
        lambda env, job, lane, key: _evaluate(agent, env, job, lane, key, num_episodes), mesh
    )(env, jobs, lanes, keys)


@partial(jax.jit, static_argnames=("agent", "mesh"))
def survey(agent: Agent, jobs: Job, lanes: Lane, mesh: Mesh | None = None) -> Survey:
    """Value, disagreement and bonus at every countable observation."""
    return everywhere(lambda _, job, lane: _survey(agent, job, lane), mesh)((), jobs, lanes)


@jax.jit
def chosen(which: Bool[Array, "S"], yes: Any, no: Any) -> Any:
    """Lane by lane, one of two pytrees."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(which.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, yes, no)


@jax.jit
def picked(lanes: Any, lane: Int[Array, ""] | int) -> Any:
    """One of many lanes."""
    return jax.tree.map(lambda x: x[lane], lanes)


@jax.jit
def gathered_of(rows: list[Any], which: Int[Array, "N"]) -> Any:
    """Some of the lanes of several rows, counted through, in this order."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[which], *rows)


@jax.jit
def placed(lanes: Any, lane: Int[Array, ""] | int, one: Any) -> Any:
    """Many lanes, with another one in its place."""
    return jax.tree.map(lambda stacked, x: stacked.at[lane].set(x), lanes, one)
