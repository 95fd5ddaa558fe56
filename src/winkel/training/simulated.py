"""Simulators in processes: they step while the accelerator learns.

A run has several environments, and one update for each step of all of them. The host calls two
programs for every step: `learn`, and `observe_and_decide`, since nothing comes between observing
and the next decision. Learning and storing stay apart: in one program XLA copies the whole replay.

With one environment, a run is the same as in a compiled environment, random numbers included.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from winkel.agents.base import Agent
from winkel.errors import InputError
from winkel.simulators import Pool, StepBatch
from winkel.training import programs, steps
from winkel.training.programs import Arrays, ChunkResults, Programs, Row, per_lane
from winkel.training.steps import Job, Plan
from winkel.types import AnyArray, Decision, EnvStep, Image, Observation, RunState

Metrics = dict[str, Float[Array, "*S size"]]
"""Metrics of the last updates; those of an update are at index `updates % size`."""
MOST_EVALUATED = 16
"""Environments in which one run is evaluated."""
DISCOUNTED = "discounted return"
SUPPORT_SLACK = 1e-4
"""Share of the support that a return may be beyond it by rounding."""
Watch = Callable[[StepBatch, int], None]
"""Called after every step with the moves of all environments `[runs × environments]` and the number
of steps that each run has made."""
PackedStep = tuple[AnyArray, AnyArray]
"""A step of all simulators in two arrays, as each is a transfer: what transitions end in and what
to act on next `[runs, 2, E, …]`, single frames of images; rewards, discounts, whether episodes
ended, and 0 where a transition was lost `[runs, 4, E]`."""


class EpisodeTotals:
    """Sums over the current episode of every simulator, and the episodes that have ended.

    The pool's environments are ordered by run: first those of run 0, then those of run 1; every
    run has the same number. Also counts episodes whose discounted return was outside of the
    support, which a categorical model cannot represent.
    """

    def __init__(self, pool: Pool, hypers: Sequence[Any]):
        self._facts, self._num_envs = pool.facts, len(pool) // len(hypers)
        self._sums: Arrays = {name: np.zeros(len(pool)) for name in (*self._facts, DISCOUNTED)}
        self._sums["return"] = np.zeros(len(pool), np.float32)
        self._sums["length"] = np.zeros(len(pool), np.int64)
        self._decay = np.ones(len(pool))
        self._gammas = np.repeat([float(hyper.gamma) for hyper in hypers], self._num_envs)
        self._supports = [
            (getattr(hyper, "z_min", -np.inf), getattr(hyper, "z_max", np.inf)) for hyper in hypers
        ]
        self._extremes = [(0, np.inf, -np.inf)] * len(hypers)
        self._ended: list[Arrays] = []

    def add(self, moves: StepBatch, env_steps: int) -> None:
        """Add one step of every environment, the last of which is step `env_steps` of its run."""
        discounted = self._decay * moves.reward
        added = {"return": moves.reward, "length": 1, DISCOUNTED: discounted, **moves.facts}
        for name, total in self._sums.items():
            with np.errstate(over="ignore", invalid="ignore"):  # reported as a failure of the run
                total += added[name]
        self._decay *= self._gammas
        if moves.boundary.any():
            envs = np.flatnonzero(moves.boundary & ~moves.lost)
            where = {"lane": envs // self._num_envs, "env_steps": np.full(len(envs), env_steps)}
            self._ended.append(where | {name: x[envs] for name, x in self._sums.items()})
            for total in self._sums.values():
                total[moves.boundary] = 0
            self._decay[moves.boundary] = 1.0

    def take(self) -> Arrays:
        """A table of the episodes that have ended since the last call."""
        none = {name: total[:0] for name, total in self._sums.items()}
        none |= dict.fromkeys(("lane", "env_steps"), np.zeros(0, np.int64))
        ended, self._ended = [none, *self._ended], []
        table = {name: np.concatenate([part[name] for part in ended]) for name in none}
        for lane, value in zip(table["lane"], table.pop(DISCOUNTED), strict=True):
            low, high = self._supports[lane]
            count, lowest, highest = self._extremes[lane]
            slack = SUPPORT_SLACK * (high - low)
            outside = value < low - slack or value > high + slack
            self._extremes[lane] = count + outside, min(lowest, value), max(highest, value)
        table["return"] = table["return"].astype(np.float64)
        for name in self._facts:  # whole numbers as integers
            rounded = np.round(table[name])
            if np.array_equal(rounded, table[name]):
                table[name] = rounded.astype(np.int64)
        return table

    def support_notice(self, lane: int) -> str | None:
        """A sentence on episodes whose return was outside of the support, None without any."""
        count, lowest, highest = self._extremes[lane]
        if not count:
            return None
        low, high = self._supports[lane]
        return (
            f"the discounted return of {count:,} episodes was outside of [{low:.4g}, {high:.4g}]: "
            f"they were from {lowest:.4g} to {highest:.4g}; set --z-min and --z-max"
        )


@dataclass
class SimulatorWorld:
    """Simulators outside of the accelerator, `num_envs` for each lane.

    Its methods are those of `CompiledWorld`. All runs begin together, keep their simulators, and
    make equally many steps. A run that has ended stays until the last one has; what its simulators
    do then is not recorded.
    """

    make_pool: Callable[[list[int]], Pool]
    """Makes a pool with an environment for each of some seeds."""
    num_envs: int
    watch: Watch | None = None
    refills = False

    def open(self, programs: Programs) -> None:
        self.programs, self._resources = programs, contextlib.ExitStack()

    def begin(
        self, row: Row, plans: Sequence[Plan], new: Sequence[int]
    ) -> tuple[RunState, Arrays | None]:
        """Start all simulators; runs continue in new episodes with other seeds. No burn-in yet."""
        agent, jobs = row.agent, row.jobs
        before = {0 if plan.saved is None else int(plan.saved.clock.env_steps) for plan in plans}
        if len(before) > 1:
            raise InputError(f"need runs that have made equally many steps, got {sorted(before)}")
        (self._steps,) = before
        use = (2, self._steps) if self._steps else ()
        seeds = [seed for plan in plans for seed in make_seeds(plan.seed, self.num_envs, use)]
        self.pool = self._resources.enter_context(self.make_pool(seeds))
        self._sender = self._resources.enter_context(ThreadPoolExecutor(1, "sending"))
        self._plans, self._metrics = plans, dict[str, Array]()
        self.totals = EpisodeTotals(self.pool, [plan.hyper for plan in plans])
        shown = self.pool.reset()
        shown = shown.reshape(len(plans), self.num_envs, *shown.shape[1:])
        runs = self.programs.call(begin, agent, (), jobs, shown)
        obs, first = runs.obs, runs.first
        saved = {lane: plan.saved for lane, plan in enumerate(plans) if plan.saved is not None}
        for lane, state in saved.items():
            runs = programs.replace_lane(runs, lane, jax.tree.map(jnp.asarray, state))
        if saved:
            runs = cut_episodes(agent, (), jobs, runs._replace(obs=obs, first=first))
        self._updates = int(runs.clock.updates[0]) // row.agent.config.updates_per_step
        self._decided = self.programs.call(decide, agent, (), jobs, runs._replace(replay=()))
        return runs, None

    def advance(self, row: Row, num_steps: int) -> tuple[RunState, ChunkResults]:
        """Make a chunk of steps, which ends with the burn-in if that ends before."""
        agent, runs, before = row.agent, row.states, self._updates
        learning = self._steps >= agent.config.burn_in
        if learning and not self._metrics:
            self._metrics = blank_metrics(agent, *row.inputs, num_steps)
        for _ in range(num_steps):
            runs = self._step(agent, row.jobs, runs, learning)
            if (self._steps >= agent.config.burn_in) != learning:
                break
        clock, metrics = self.programs.fetch((runs.clock, self._metrics))
        numbers = np.arange(before, self._updates)
        metrics = {name: rows[:, numbers % rows.shape[1]] for name, rows in metrics.items()}
        return runs, (clock, self.totals.take(), metrics)

    def evaluate(
        self, agent: Agent, row: Row, lanes: Sequence[int], index: int, num_episodes: int
    ) -> list[np.ndarray]:
        returns = []
        for lane in lanes:
            count = min(num_episodes, self.num_envs, MOST_EVALUATED)
            learner, plan = programs.take_lanes(row.states.learner, lane), self._plans[lane]
            with self.make_pool(make_seeds(plan.seed, count, (1, index))) as pool:
                returns.append(greedy_returns(agent, learner, plan.hyper, pool, num_episodes))
        return returns

    def survey(self, agent: Agent, row: Row, lanes: Sequence[int]) -> list[Arrays]:
        """Nothing: no observations are counted."""
        return [{} for _ in lanes]

    def support_notice(self, lane: int) -> str | None:
        """A sentence on returns outside of the support, None without any."""
        return self.totals.support_notice(lane)

    def shapes(self, agent: Agent, plan: Plan) -> RunState:
        observation = agent.spec.observation
        shown = observation.frame if isinstance(observation, Image) else observation.shape
        obs = jax.ShapeDtypeStruct((self.num_envs, *shown), observation.dtype)
        job = jax.tree.map(lambda x: x[0], steps.make_jobs([plan], agent.spec, masked=False))
        return jax.eval_shape(lambda job, obs: _begin(agent, (), job, obs), job, obs)

    def compile_ahead(self, *_: Any) -> list[Future[Any]]:
        """Nothing: programs are compiled when they are called."""
        return []

    def close(self) -> None:
        """End all simulators."""
        self._resources.close()

    def _step(self, agent: Agent, jobs: Job, runs: RunState, learning: bool) -> RunState:
        """One step of every environment, while the accelerator learns.

        To launch `learn` takes the host as long as simulators take for their part of a step. So
        another thread waits for the actions and sends them.
        """
        learn, observe_and_decide = step_programs()
        actions = self._decided[0].action
        sent = self._sender.submit(
            lambda: self.pool.step_async(jax.device_get(actions).reshape(-1))
        )
        try:
            if learning:
                learned = self.programs.call(learn, agent, (), jobs, runs, self._metrics)
                runs, self._metrics = learned
                self._updates += 1
        finally:
            self.programs.call(sent.result)
        moves = self.pool.step_wait()
        # The learner is left out, as every array that a program returns costs time.
        rest, moved = runs._replace(learner=()), pack_step(moves, len(self._plans))
        rest, self._decided = self.programs.call(
            observe_and_decide, agent, (), jobs, runs.learner, rest, *self._decided, moved
        )
        self._steps += self.num_envs
        self.totals.add(moves, self._steps)
        if self.watch is not None:
            self.watch(moves, self._steps)
        return rest._replace(learner=runs.learner)


def make_seeds(seed: int, count: int, use: tuple[int, ...] = ()) -> list[int]:
    """Seeds of the environments of a run: the first has the run's own, unless for another use."""
    sources = [np.random.SeedSequence((seed, env, *use)) for env in range(count)]
    seeds = [int(source.generate_state(1)[0]) for source in sources]
    return seeds if use else [seed, *seeds[1:]]


def greedy_returns(
    agent: Agent, learner: Any, hyper: Any, pool: Pool, num_episodes: int
) -> np.ndarray:
    """Undiscounted returns of greedy episodes, as many in each environment, or one more.

    Which episodes count is decided beforehand: the first to end would be the short ones.
    """
    shares = [len(part) for part in np.array_split(np.arange(num_episodes), len(pool))]
    done: list[list[float]] = [[] for _ in shares]
    totals: np.ndarray = np.zeros(len(pool))
    observation = agent.spec.observation
    obs = stack_frames(observation, None, pool.reset(), np.ones(len(pool), bool))
    while any(len(returns) < share for returns, share in zip(done, shares, strict=True)):
        moves = pool.step(np.asarray(select_greedy(agent, learner, obs, hyper)))
        totals += moves.reward
        for env in np.flatnonzero(moves.boundary):
            if not moves.lost[env]:
                done[env].append(float(totals[env]))
            totals[env] = 0.0
        obs = stack_frames(observation, obs, moves.obs, moves.boundary)
    return np.concatenate([returns[:share] for returns, share in zip(done, shares, strict=True)])


def blank_metrics(agent: Agent, jobs: Job, runs: RunState, size: int) -> Metrics:
    """Room for the metrics of so many updates."""

    def metrics(job: Job, run: RunState) -> Any:
        return steps.learn(agent, run, job.hyper, steps.step_key(run))[1].metrics

    shapes = jax.eval_shape(jax.vmap(metrics), jobs, runs)
    return {name: jnp.zeros((*x.shape, size), x.dtype) for name, x in shapes.items()}


@functools.partial(jax.jit, static_argnames="agent")
def select_greedy(agent: Agent, learner: Any, obs: Array, hyper: Any) -> Int[Array, "E"]:
    """Actions of highest value for observations `[E, …]`."""
    return jax.vmap(lambda o: jnp.argmax(agent.estimates(learner, o, hyper).value))(obs)


def pack_step(moves: StepBatch, num_runs: int) -> PackedStep:
    """Pack the moves of a pool, whose environments are ordered by run."""

    def stack(*arrays: np.ndarray) -> np.ndarray:
        return np.stack([x.reshape(num_runs, -1, *x.shape[1:]) for x in arrays], axis=1)

    numbers = stack(moves.reward, moves.discount, moves.boundary, ~moves.lost)
    return stack(moves.next_obs, moves.obs), numbers.astype(np.float32)


@functools.partial(jax.jit, static_argnames="observation")
def stack_frames(
    observation: Observation, before: Array | None, frames: Array, begun: Bool[Array, "E"]
) -> Array:
    """Observations `[E, …]` after new frames; episodes that begin repeat their first frame."""
    if not isinstance(observation, Image):
        return frames
    first = jnp.repeat(frames[:, None], observation.stack, axis=1)
    if before is None:
        return first
    moved = jnp.concatenate([before[:, 1:], frames[:, None]], axis=1)
    return jnp.where(begun.reshape(-1, *(1,) * (moved.ndim - 1)), first, moved)


def _begin(agent: Agent, env: Any, job: Job, frames: Array) -> RunState:
    """A run before its first step; `frames` `[E, …]` are what its environments show."""
    begun = jnp.ones(len(frames), bool)
    obs = stack_frames(agent.spec.observation, None, frames, begun)
    return steps.start_run(agent, job, obs, len(frames))


def _decide(agent: Agent, env: Any, job: Job, run: RunState) -> tuple[Decision, Any]:
    """Select actions; the replay may be left out."""
    return steps.decide(agent, run, job.hyper, steps.step_key(run))


def _learn(
    agent: Agent, env: Any, job: Job, run: RunState, metrics: Metrics
) -> tuple[RunState, Metrics]:
    """Make the updates of one step; metrics stay on the accelerator.

    With all arrays at the same place at each call, a GPU repeats the last CUDA graph.
    """
    number, count = run.clock.updates, agent.config.updates_per_step
    number = number if count == 1 else number // count
    run, update = steps.learn(agent, run, job.hyper, steps.step_key(run))
    return run, {
        name: rows.at[number % len(rows)].set(update.metrics[name])
        for name, rows in metrics.items()
    }


def _observe_and_decide(
    agent: Agent,
    env: Any,
    job: Job,
    learner: Any,
    run: RunState,
    decision: Decision,
    actor: Any,
    moved: PackedStep,
) -> tuple[RunState, tuple[Decision, Any]]:
    """Store a step of the simulators, advance the clock, and select the next actions."""
    (next_obs, obs), (reward, discount, boundary, keep) = moved
    observation = agent.spec.observation
    step = EnvStep(
        reward=reward,
        discount=discount,
        next_obs=stack_frames(observation, run.obs, next_obs, jnp.zeros(len(boundary), bool)),
        obs=stack_frames(observation, run.obs, obs, boundary > 0),
        boundary=boundary > 0,
        info={},
    )
    run = steps.observe(agent, run, decision, actor, step, job.horizon, keep > 0)
    return run, _decide(agent, env, job, run._replace(learner=learner))


begin = per_lane(_begin)
decide = per_lane(_decide)
cut_episodes = per_lane(
    lambda agent, env, job, run: steps.cut_episodes(agent, run, job.hyper), donate_argnums=3
)


@functools.cache
def step_programs() -> tuple[Any, Any]:
    """`learn` and `observe_and_decide`, as CUDA graphs if XLA supports them; runs are donated."""
    options = programs.cuda_graphs()
    return (
        per_lane(_learn, donate_argnums=(3, 4), compiler_options=options),
        per_lane(_observe_and_decide, donate_argnums=4, compiler_options=options),
    )
