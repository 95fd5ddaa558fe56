"""Compiled environments: environment, replay and learning of all lanes are one program."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from winkel.agents.base import Agent, Spec
from winkel.training import steps
from winkel.training.mesh import (
    choose_lanes,
    gather_lanes,
    per_lane,
    replace_lane,
    replicate,
    resized,
    shard_lanes,
)
from winkel.training.programs import Programs, out_of_memory
from winkel.training.records import Arrays, Chunk, Plan, make_jobs, stack
from winkel.training.steps import Horizon, Job
from winkel.training.world import Row, World
from winkel.types import Clock, OneHot, RunState


class Tally(NamedTuple):
    """Sums over the episode so far."""

    total: Float[Array, "*S"]
    length: Int[Array, "*S"]
    facts: dict[str, Array]


class Trace(NamedTuple):
    """Results of a chunk, one entry for each step.

    Attributes:
        ended: whether an episode ended with this step.
        tally: of that episode.
        visited: pairs of observation and action that the run has visited by then.
        metrics: of the update, empty without learning.
    """

    ended: Bool[Array, "*S T"]
    tally: Tally
    visited: Int[Array, "*S T"]
    metrics: dict[str, Float[Array, "*S T"]]


@dataclass
class CompiledWorld(World):
    """An environment in JAX: a chunk of steps of all lanes is one call of one program.

    Attributes:
        env: the functions of the environment.
    """

    env: Any
    refills = True

    def open(self, programs: Programs, mesh: Mesh | None) -> None:
        """Use these programs, and copy the environment to all devices once."""
        self.programs, self.mesh = programs, mesh
        self.env = replicate(jax.tree.map(jnp.asarray, self.env), mesh)

    def make_jobs(self, plans: Sequence[Plan], spec: Spec, masked: bool) -> Job:
        """One job for each plan, on the device of its lane."""
        available = np.array([plan.available or spec.num_actions for plan in plans], np.int32)
        jobs = make_jobs(plans)._replace(
            params=stack([plan.params for plan in plans]),
            fan_in=jnp.array([plan.fan_in or spec.inputs for plan in plans], float),
            available=jnp.asarray(available) if masked else None,
        )
        return shard_lanes(jobs, self.mesh)

    def begin(
        self, row: Row, plans: Sequence[Plan], fresh: Sequence[int], saved: Mapping[int, RunState]
    ) -> tuple[RunState, Chunk | None]:
        """Start runs in some lanes, and make the burn-in of those that are new."""
        runs, burn_in = self._call(begin, row.agent, row.jobs), None
        if fresh:
            num_steps = row.agent.config.burn_in
            runs, trace = self._call(
                advance, row.agent, row.jobs, runs, num_steps=num_steps, learning=False
            )
            burn_in = self.read(runs, trace)[1].only(fresh)
        if row.lanes is not None:
            runs = choose_lanes(np.isin(np.arange(row.num_lanes), fresh), runs, row.lanes)
        for lane, state in saved.items():
            runs = replace_lane(runs, lane, state)
        return shard_lanes(runs, self.mesh), burn_in

    def advance(self, row: Row, num_steps: int) -> tuple[RunState, Trace]:
        """Make a chunk of steps; nothing is waited for."""
        return self._call(advance, row.agent, *row.state, num_steps=num_steps, learning=True)

    def read(self, runs: RunState, trace: Trace) -> tuple[Clock, Chunk]:
        """Fetch clocks and trace, and collect the episodes that ended."""
        shown, clock = self.programs.fetch((trace, runs.clock))
        lanes, at = np.nonzero(shown.ended)
        last = np.asarray(clock.env_steps, np.int64)
        episodes = {
            "lane": lanes,
            "return": np.asarray(shown.tally.total)[lanes, at].astype(np.float64),
            "length": np.asarray(shown.tally.length)[lanes, at].astype(np.int64),
            "env_steps": last[lanes] - shown.ended.shape[1] + 1 + at,
        }
        if runs.visits.shape[1] > 0:
            episodes["visited"] = np.asarray(shown.visited)[lanes, at].astype(np.int64)
        for name, fact in shown.tally.facts.items():
            episodes[name] = np.asarray(fact)[lanes, at].astype(np.int64)
        return clock, Chunk(episodes, dict(shown.metrics))

    def evaluate(
        self, agent: Agent, row: Row, lanes: Sequence[int], index: int, num_episodes: int
    ) -> list[np.ndarray]:
        """Returns of greedy episodes in a copy of the environment; the lanes stay as they are."""

        def key(of_job: PRNGKeyArray) -> PRNGKeyArray:
            return jax.random.fold_in(jax.random.fold_in(of_job, steps.KEY_EVALUATION), index)

        def returns(jobs: Job, runs: RunState) -> Any:
            keys = jax.vmap(key)(jobs.key)
            return self._call(evaluate, agent, jobs, runs, keys, num_episodes=num_episodes)

        return self._fetch_lanes(returns, row, lanes)

    def survey(self, agent: Agent, row: Row, lanes: Sequence[int]) -> list[Arrays]:
        """Visits, value, disagreement and bonus at every countable observation."""

        def found(jobs: Job, runs: RunState) -> Any:
            return {"visits": runs.visits, **self._call(survey, agent, jobs, runs)}

        return self._fetch_lanes(found, row, lanes)

    def shapes(self, agent: Agent, params: Any, hyper: Any) -> RunState:
        """Shapes and types of the state of one run, without computing it."""
        job = Job(
            params=params,
            hyper=hyper,
            horizon=Horizon(),
            key=jax.random.key(0),
            fan_in=jnp.asarray(agent.spec.inputs, float),
        )
        return jax.eval_shape(lambda job: _begin(agent, self.env, job), job)

    def compile_first(self, agent: Agent, jobs: Job, num_steps: int) -> list[Future[None]]:
        """Compile in the background what the first chunks need."""
        runs = jax.eval_shape(lambda env, jobs: begin(agent, env, jobs), self.env, jobs)
        runs = resized(runs, len(runs.clock.updates), self.mesh)
        burn_in = agent.config.burn_in
        return [
            self._compile(begin, agent, jobs),
            self._compile(advance, agent, jobs, runs, num_steps=burn_in, learning=False),
            self._compile(advance, agent, jobs, runs, num_steps=num_steps, learning=True),
        ]

    def compile_row(
        self, agent: Agent, num_lanes: int, state: tuple[Job, RunState], num_steps: int
    ) -> list[Future[None]]:
        """Compile in the background what a row of this agent and so many lanes needs."""
        shapes = resized(state, num_lanes, self.mesh)
        return [self._compile(advance, agent, *shapes, num_steps=num_steps, learning=True)]

    def _call(self, program: Any, agent: Agent, *arrays: Any, **static: Any) -> Any:
        return self.programs.call(program, agent, self.env, *arrays, mesh=self.mesh, **static)

    def _compile(self, program: Any, agent: Agent, *arrays: Any, **static: Any) -> Future[None]:
        return self.programs.compile_in_background(
            program, agent, self.env, *arrays, mesh=self.mesh, **static
        )

    def _fetch_lanes(
        self, function: Callable[[Job, RunState], Any], row: Row, lanes: Sequence[int]
    ) -> list[Any]:
        """Results of a function of all lanes for some; one after the other if memory is short."""
        try:
            found = self.programs.fetch(function(*row.state))
            return [jax.tree.map(lambda x, lane=lane: x[lane], found) for lane in lanes]
        except jax.errors.JaxRuntimeError as error:
            if not out_of_memory(error):
                raise
        results = []
        for lane in lanes:
            copies = np.array([lane] * (1 if self.mesh is None else self.mesh.size), np.int32)
            one = shard_lanes(gather_lanes([row.state], copies), self.mesh)
            results.append(jax.tree.map(lambda x: x[0], self.programs.fetch(function(*one))))
        return results


def _begin(agent: Agent, env: Any, job: Job) -> RunState:
    agent = steps.fit_agent(agent, job)
    key = jax.random.fold_in(job.key, steps.KEY_RESET)
    env_state, obs = env.reset(key, job.params)
    action = jnp.zeros((), jnp.int32)
    _, example = jax.eval_shape(env.step, key, env_state, action, job.params)
    observation = agent.spec.observation
    cells = observation.size if isinstance(observation, OneHot) else 0
    return steps.start_run(agent, job, obs)._replace(
        env_state=env_state,
        tally=Tally(
            total=jnp.zeros(()),
            length=jnp.zeros((), jnp.int32),
            facts={name: jnp.zeros(x.shape, x.dtype) for name, x in example.info.items()},
        ),
        visits=jnp.zeros((cells, agent.spec.num_actions), jnp.int32),
        visited=jnp.zeros((), jnp.int32),
    )


def _advance(
    agent: Agent, env: Any, job: Job, run: RunState, num_steps: int, learning: bool
) -> tuple[RunState, Trace]:
    """Make some steps. Burn-in is a call without learning."""
    return jax.lax.scan(lambda run, _: _step(agent, env, job, learning, run), run, length=num_steps)


def _step(
    agent: Agent, env: Any, job: Job, learning: bool, run: RunState
) -> tuple[RunState, Trace]:
    agent, key = steps.fit_agent(agent, job), steps.step_key(run)
    decision, actor = steps.decide(agent, run, job.hyper, key)
    key_environment = jax.random.fold_in(key, steps.KEY_ENVIRONMENT)
    env_state, result = env.step(key_environment, run.env_state, decision.action, job.params)
    visits, visited = _count_visit(run, decision.action)
    metrics = {}
    if learning:
        # Learn only once the action is selected. Otherwise XLA may select it later, from a copy of
        # all parameters, which learning has changed by then.
        learner, _ = jax.lax.optimization_barrier((run.learner, decision.action))
        run, update = steps.learn(agent, run._replace(learner=learner), job.hyper, key)
        metrics = dict(update.metrics)
    tally = Tally(
        total=run.tally.total + result.reward,
        length=run.tally.length + 1,
        facts={name: run.tally.facts[name] + fact for name, fact in result.info.items()},
    )
    run = steps.observe(agent, run, decision, actor, result, job.horizon)._replace(
        env_state=env_state,
        tally=jax.tree.map(lambda x: jnp.where(result.boundary, jnp.zeros_like(x), x), tally),
        visits=visits,
        visited=visited,
    )
    return run, Trace(ended=result.boundary, tally=tally, visited=visited, metrics=metrics)


def _count_visit(run: RunState, action: Int[Array, ""]) -> tuple[Array, Array]:
    if run.visits.shape[0] == 0:
        return run.visits, run.visited
    before = run.visits[run.obs, action]
    return run.visits.at[run.obs, action].add(1), run.visited + (before == 0).astype(jnp.int32)


def _evaluate(
    agent: Agent, env: Any, job: Job, run: RunState, key: PRNGKeyArray, num_episodes: int
) -> Float[Array, " N"]:
    """Undiscounted returns of greedy episodes in a copy of the environment."""
    agent = steps.fit_agent(agent, job)
    Loop = tuple[Any, Any, Array, Array, Array]

    def unfinished(loop: Loop) -> Bool[Array, ""]:
        _, _, _, episode, _ = loop
        return episode < num_episodes

    def step(loop: Loop) -> Loop:
        env_state, obs, number, episode, returns = loop
        value = agent.estimates(run.learner, obs, job.hyper).value
        action = jnp.argmax(agent.spec.mask_unavailable(value))
        key_step = jax.random.fold_in(key, number + 1)
        env_state, result = env.step(key_step, env_state, action, job.params)
        at = jnp.minimum(episode, num_episodes - 1)
        reward = jnp.where(unfinished(loop), result.reward, 0.0)
        return (
            env_state,
            result.obs,
            number + 1,
            episode + result.boundary.astype(jnp.int32),
            returns.at[at].add(reward),
        )

    env_state, obs = env.reset(jax.random.fold_in(key, 0), job.params)
    zero = jnp.zeros((), jnp.int32)
    start = env_state, obs, zero, zero, jnp.zeros(num_episodes)
    return jax.lax.while_loop(unfinished, step, start)[-1]


def _survey(agent: Agent, env: Any, job: Job, run: RunState) -> dict[str, Array]:
    """Value, disagreement and bonus `[cells, A]` at every countable observation."""
    agent = steps.fit_agent(agent, job)

    def at(obs: Int[Array, ""]) -> dict[str, Float[Array, " A"]]:
        found = agent.estimates(run.learner, obs, job.hyper)
        return {name: getattr(found, name) for name in ("value", "disagreement", "bonus")}

    return jax.vmap(at)(jnp.arange(run.visits.shape[0], dtype=jnp.int32))


begin = per_lane(_begin)
advance = per_lane(_advance, static=("num_steps", "learning"))
"""Arguments are not donated: a lane whose loss is not finite goes back to them."""
evaluate = per_lane(_evaluate, static=("num_episodes",))
survey = per_lane(_survey)
