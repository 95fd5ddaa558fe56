"""Compiled environments: environment, replay and learning of all lanes are one program."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from winkel.agents.base import Agent
from winkel.training import programs, steps
from winkel.training.programs import Arrays, ChunkResults, Programs, Row, per_lane
from winkel.training.steps import Job, Plan
from winkel.types import OneHot, RunState

Trace = tuple[Array, dict[str, Array], dict[str, Array]]
"""For each step of a chunk: whether an episode ended with it; sums over that episode so far, and
the number of state-actions that the run has visited; the metrics of the update."""


@dataclass
class CompiledWorld:
    """An environment in JAX: a chunk of steps of all lanes is one call of one program."""

    env: Any
    refills = True
    """Whether a free lane can take another run."""

    def open(self, programs: Programs) -> None:
        """Use these programs from now on."""
        self.programs, self.env = programs, jax.tree.map(jnp.asarray, self.env)

    def begin(
        self, row: Row, plans: Sequence[Plan], new: Sequence[int]
    ) -> tuple[RunState, Arrays | None]:
        """Start or continue the runs of the lanes `new`; `plans` are of all lanes.

        New runs make their burn-in, resumed runs have made it. Returns the states of all lanes, and
        the episodes of burn-in.
        """
        runs, burn_in = self._call(begin, row.agent, row.jobs), None
        saved = {lane: plans[lane].saved for lane in new if plans[lane].saved is not None}
        fresh = np.isin(np.arange(row.num_lanes), [lane for lane in new if lane not in saved])
        if fresh.any():
            static = {"num_steps": row.agent.config.burn_in, "learning": False}
            runs, trace = self._call(advance, row.agent, row.jobs, runs, **static)
            _, episodes, _ = self._read(runs, trace)
            counts = fresh[episodes["lane"]]
            burn_in = {name: column[counts] for name, column in episodes.items()}
        if row.states is not None:
            runs = programs.where_lanes(fresh, runs, row.states)
        for lane, state in saved.items():
            runs = programs.replace_lane(runs, lane, state)
        return runs, burn_in

    def advance(self, row: Row, num_steps: int) -> tuple[RunState, ChunkResults]:
        """Make a chunk of steps; returns new states, and what happened."""
        static = {"num_steps": num_steps, "learning": True}
        runs, trace = self._call(advance, row.agent, *row.inputs, **static)
        return runs, self._read(runs, trace)

    def _read(self, runs: RunState, trace: Trace) -> ChunkResults:
        (ended, sums, metrics), clock = self.programs.fetch((trace, runs.clock))
        lanes, at = np.nonzero(ended)
        columns = {
            name: x[lanes, at].astype(np.float64 if name == "return" else np.int64)
            for name, x in sums.items()
            if name != "visited" or runs.visits.shape[1] > 0
        }
        before = clock.env_steps.astype(np.int64) - ended.shape[1]
        return clock, {"lane": lanes, "env_steps": before[lanes] + 1 + at} | columns, metrics

    def evaluate(
        self, agent: Agent, row: Row, lanes: Sequence[int], index: int, num_episodes: int
    ) -> list[np.ndarray]:
        """Undiscounted returns of greedy episodes of some lanes; `index` numbers evaluations."""

        def returns(jobs: Job, runs: RunState) -> Any:
            indices = np.full(len(runs.first), index, np.int32)
            return self._call(evaluate, agent, jobs, runs, indices, num_episodes=num_episodes)

        return self._fetch_lanes(returns, row, lanes)

    def survey(self, agent: Agent, row: Row, lanes: Sequence[int]) -> list[Arrays]:
        """Visits, value, disagreement and bonus of some lanes at every countable observation."""
        return self._fetch_lanes(partial(self._call, survey, agent), row, lanes)

    def support_notice(self, lane: int) -> str | None:
        """No sentence: nothing is known of discounted returns."""

    def shapes(self, agent: Agent, plan: Plan) -> RunState:
        """Shapes and types of the state of one run, without computing it."""
        jobs = steps.make_jobs([plan], agent.spec, masked=False)
        runs = jax.eval_shape(lambda env, jobs: begin(agent, env, jobs), self.env, jobs)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), runs)

    def compile_ahead(
        self, agent: Agent, num_steps: int, jobs: Job, runs: RunState | None = None
    ) -> list[Future[Any]]:
        """Compile in the background what a row's chunks need; without `runs`, its beginning too."""

        def compile_it(program: Any, *arrays: Any, **static: Any) -> Future[Any]:
            return self.programs.compile_in_background(program, agent, self.env, *arrays, **static)

        started = []
        if runs is None:
            runs = jax.eval_shape(lambda env, jobs: begin(agent, env, jobs), self.env, jobs)
            runs = programs.resized(runs, len(jobs.key))
            burn_in = {"num_steps": agent.config.burn_in, "learning": False}
            started = [compile_it(begin, jobs), compile_it(advance, jobs, runs, **burn_in)]
        return [*started, compile_it(advance, jobs, runs, num_steps=num_steps, learning=True)]

    def close(self) -> None:
        """Nothing has to be ended."""

    def _call(self, program: Any, agent: Agent, *arrays: Any, **static: Any) -> Any:
        return self.programs.call(program, agent, self.env, *arrays, **static)

    def _fetch_lanes(
        self, function: Callable[[Job, RunState], Any], row: Row, lanes: Sequence[int]
    ) -> list[Any]:
        """Results of a function of all lanes for some; one after the other if memory is short."""
        try:
            stacked = self.programs.fetch(function(*row.inputs))
            return [jax.tree.map(lambda x, lane=lane: x[lane], stacked) for lane in lanes]
        except jax.errors.JaxRuntimeError as error:
            if not programs.out_of_memory(error):
                raise
        results = []
        for lane in lanes:
            one = programs.take_lanes(row.inputs, np.array([lane], np.int32))
            results.append(jax.tree.map(lambda x: x[0], self.programs.fetch(function(*one))))
        return results


def _begin(agent: Agent, env: Any, job: Job) -> RunState:
    """A run before its first step, in an environment that was reset."""
    agent = steps.fit_agent(agent, job)
    key = jax.random.fold_in(job.key, steps.KEY_RESET)
    env_state, obs = env.reset(key, job.params)
    action = jnp.zeros((), jnp.int32)
    _, example = jax.eval_shape(env.step, key, env_state, action, job.params)
    observation = agent.spec.observation
    cells = observation.size if isinstance(observation, OneHot) else 0
    facts = {name: jnp.zeros(x.shape, x.dtype) for name, x in example.info.items()}
    return steps.start_run(agent, job, obs)._replace(
        env_state=env_state,
        tally={"return": jnp.zeros(()), "length": jnp.zeros((), jnp.int32)} | facts,
        visits=jnp.zeros((cells, agent.spec.num_actions), jnp.int32),
        visited=jnp.zeros((), jnp.int32),
    )


def _advance(
    agent: Agent, env: Any, job: Job, run: RunState, num_steps: int, learning: bool
) -> tuple[RunState, Trace]:
    """Make some steps, with an update in each if `learning`, as not in burn-in."""
    agent = steps.fit_agent(agent, job)

    def step(run: RunState, _: None) -> tuple[RunState, Trace]:
        key = steps.step_key(run)
        decision, actor = steps.decide(agent, run, job.hyper, key)
        key_environment = jax.random.fold_in(key, steps.KEY_ENVIRONMENT)
        env_state, result = env.step(key_environment, run.env_state, decision.action, job.params)
        visits, visited = run.visits, run.visited
        if visits.shape[0] > 0:
            before = visits[run.obs, decision.action]
            visits = visits.at[run.obs, decision.action].add(1)
            visited = visited + (before == 0).astype(jnp.int32)
        metrics = {}
        if learning:
            # Learn after the action is selected. Otherwise XLA may select it later, and must copy
            # all old parameters for that.
            learner, _ = jax.lax.optimization_barrier((run.learner, decision.action))
            run, update = steps.learn(agent, run._replace(learner=learner), job.hyper, key)
            metrics = dict(update.metrics)
        added = {"return": result.reward, "length": 1, **result.info}
        tally = {name: total + added[name] for name, total in run.tally.items()}
        run = steps.observe(agent, run, decision, actor, result, job.horizon)._replace(
            env_state=env_state,
            tally=jax.tree.map(lambda x: jnp.where(result.boundary, jnp.zeros_like(x), x), tally),
            visits=visits,
            visited=visited,
        )
        return run, (result.boundary, tally | {"visited": visited}, metrics)

    return jax.lax.scan(step, run, length=num_steps)


def whole_run(agent: Agent, env: Any, job: Job, num_steps: int) -> tuple[RunState, Trace]:
    """Make a run of one lane from its first step; metrics are those after burn-in.

    Job and environment may be constants here. XLA folds constants, which changes rounding; the
    barrier hides that they are. `jnp.where(nonzero, x, x)` is x, and under `vmap` it gives every
    leaf of the job the axis of the key, as in a program over lanes.
    """
    nonzero = jax.random.bits(job.key) > 0
    job = jax.tree.map(lambda x: jnp.where(nonzero, x, x), job)
    env, job = jax.lax.optimization_barrier((jax.tree.map(jnp.asarray, env), job))
    burn_in = agent.config.burn_in
    run = _begin(agent, env, job)
    run, (*before, _) = _advance(agent, env, job, run, burn_in, learning=False)
    run, (*after, metrics) = _advance(agent, env, job, run, num_steps - burn_in, learning=True)
    ended, sums = jax.tree.map(lambda *parts: jnp.concatenate(parts), before, after)
    return run, (ended, sums, metrics)


def _evaluate(
    agent: Agent, env: Any, job: Job, run: RunState, index: Int[Array, ""], num_episodes: int
) -> Float[Array, " N"]:
    """Undiscounted returns of greedy episodes in a copy of the environment."""
    agent = steps.fit_agent(agent, job)
    key = jax.random.fold_in(jax.random.fold_in(job.key, steps.KEY_EVALUATION), index)

    def unfinished(loop: Any) -> Bool[Array, ""]:
        return loop[3] < num_episodes

    def step(loop: Any) -> Any:
        env_state, obs, number, episode, returns = loop
        value = agent.estimates(run.learner, obs, job.hyper).value
        action = jnp.argmax(agent.spec.mask_unavailable(value))
        key_step = jax.random.fold_in(key, number + 1)
        env_state, result = env.step(key_step, env_state, action, job.params)
        at = jnp.minimum(episode, num_episodes - 1)
        returns = returns.at[at].add(jnp.where(unfinished(loop), result.reward, 0.0))
        episode = episode + result.boundary.astype(jnp.int32)
        return env_state, result.obs, number + 1, episode, returns

    env_state, obs = env.reset(jax.random.fold_in(key, 0), job.params)
    zero = jnp.zeros((), jnp.int32)
    start = env_state, obs, zero, zero, jnp.zeros(num_episodes)
    return jax.lax.while_loop(unfinished, step, start)[-1]


def _survey(agent: Agent, env: Any, job: Job, run: RunState) -> dict[str, Array]:
    """Visits, value, disagreement and bonus `[cells, A]` at every countable observation."""
    agent = steps.fit_agent(agent, job)

    def at(obs: Int[Array, ""]) -> dict[str, Float[Array, " A"]]:
        estimates = agent.estimates(run.learner, obs, job.hyper)
        return {name: getattr(estimates, name) for name in ("value", "disagreement", "bonus")}

    cells = jnp.arange(run.visits.shape[0], dtype=jnp.int32)
    return {"visits": run.visits, **jax.vmap(at)(cells)}


begin = per_lane(_begin)
advance = per_lane(_advance, static=("num_steps", "learning"))
"""States are not donated: a lane whose loss is not finite returns to its old state."""
evaluate = per_lane(_evaluate, static=("num_episodes",))
survey = per_lane(_survey)
