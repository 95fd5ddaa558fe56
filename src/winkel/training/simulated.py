"""Simulators in processes: they step while the accelerator learns.

A run has several environments, and one update for each step of all of them. The host calls two
programs for every step: `learn`, and `observe_and_decide`, since nothing comes between observing
and the next decision. Learning and storing stay apart: in one program XLA copies the whole replay.

With one environment, a run is the same as in a compiled environment, random numbers included.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Shaped

from winkel.agents.base import Agent, Spec
from winkel.simulators import Pool, StepBatch
from winkel.training import steps
from winkel.training.mesh import per_lane, replace_lane, select_lane
from winkel.training.programs import Programs, cuda_graphs
from winkel.training.records import Chunk, EpisodeTotals, Plan, make_jobs
from winkel.training.steps import Horizon, Job
from winkel.training.world import Row, World
from winkel.types import AnyArray, Clock, Decision, EnvStep, Image, Observation, RunState

PoolMaker = Callable[[list[int]], Pool]
"""Makes a pool with an environment for each of these seeds."""
Metrics = dict[str, Float[Array, "*S size"]]
"""Metrics of the last updates; those of an update are written at index `updates % size`."""
MOST_EVALUATED = 16
"""Environments in which one run is evaluated."""


class SimulatorStep(NamedTuple):
    """A step of all simulators as programs take it: two arrays, as each of them is a transfer.

    Attributes:
        shown: what transitions end in, and what to act on next `[*S, 2, E, …]`; single frames
            where observations are images.
        numbers: rewards, discounts, whether episodes ended, and 0 where a transition was lost.
    """

    shown: Shaped[AnyArray, "..."]
    numbers: Float[AnyArray, "*S 4 E"]

    @classmethod
    def pack(cls, moves: StepBatch, num_runs: int) -> "SimulatorStep":
        """Pack the moves of a pool, whose environments stand run by run."""

        def stack(*arrays: np.ndarray) -> np.ndarray:
            return np.stack([x.reshape(num_runs, -1, *x.shape[1:]) for x in arrays], axis=1)

        numbers = stack(moves.reward, moves.discount, moves.boundary, ~moves.lost)
        return cls(stack(moves.next_obs, moves.obs), numbers.astype(np.float32))

    def unpack(self, observation: Observation, before: Array) -> tuple[EnvStep, Bool[Array, "E"]]:
        """The step of one run's environments, and which of their transitions were not lost."""
        next_obs, obs = jnp.asarray(self.shown)
        reward, discount, boundary, keep = jnp.asarray(self.numbers)
        never = jnp.zeros(len(boundary), bool)
        step = EnvStep(
            reward=reward,
            discount=discount,
            next_obs=stack_frames(observation, before, next_obs, never),
            obs=stack_frames(observation, before, obs, boundary > 0),
            boundary=boundary > 0,
            info={},
        )
        return step, keep > 0


@dataclass
class SimulatorWorld(World):
    """Simulators outside of the accelerator, `num_envs` for each lane.

    All runs begin together and keep their simulators. A run that has ended stays until the last one
    has ended; what its simulators do then is not recorded. All runs make as many steps and updates.

    Attributes:
        make_pool: makes simulators.
        num_envs: environments of each run.
        watch: called after every step with the moves of all environments `[runs × environments]`
            and the number of steps that each run has made.
    """

    make_pool: PoolMaker
    num_envs: int
    watch: Callable[[StepBatch, int], None] | None = None
    refills = False

    def open(self, programs: Programs, mesh: Mesh | None) -> None:
        """Use these programs, on one device."""
        self.programs, self._resources = programs, contextlib.ExitStack()

    def make_jobs(self, plans: Sequence[Plan], spec: Spec, masked: bool) -> Job:
        """One job for each lane."""
        return make_jobs(plans)

    def begin(
        self, row: Row, plans: Sequence[Plan], fresh: Sequence[int], saved: Mapping[int, RunState]
    ) -> tuple[RunState, Chunk | None]:
        """Start all simulators; runs that continue do so in new episodes. Burn-in comes later."""
        agent, jobs = row.agent, row.jobs
        seeds = [seed for plan in plans for seed in make_seeds(plan.seed, self.num_envs)]
        self.pool = self._resources.enter_context(self.make_pool(seeds))
        self._sender = self._resources.enter_context(ThreadPoolExecutor(1, "sending"))
        self._plans, self._metrics = plans, dict[str, Array]()
        self.totals = EpisodeTotals(self.pool, [plan.hyper for plan in plans])
        shown = self.pool.reset()
        shown = shown.reshape(len(plans), self.num_envs, *shown.shape[1:])
        runs = self.programs.call(begin, agent, (), jobs, shown)
        obs, first = runs.obs, runs.first
        for lane, state in saved.items():
            runs = replace_lane(runs, lane, jax.tree.map(jnp.asarray, state))
        runs = runs._replace(obs=obs, first=first)
        if saved:
            runs = cut_episodes(agent, (), jobs, runs)
        self._steps, self._updates = (int(x[0]) for x in (runs.clock.env_steps, runs.clock.updates))
        self._decided = self.programs.call(decide, agent, (), jobs, runs._replace(replay=()))
        return runs, None

    def advance(self, row: Row, num_steps: int) -> tuple[RunState, range]:
        """Make a chunk of steps, which ends with the burn-in if that ends before."""
        agent, runs, before = row.agent, row.lanes, self._updates
        learning = self._steps >= agent.config.burn_in
        if learning and not self._metrics:
            self._metrics = blank_metrics(agent, *row.state, num_steps)
        for _ in range(num_steps):
            runs = self._step(agent, row.jobs, runs, learning)
            if (self._steps >= agent.config.burn_in) != learning:
                break
        return runs, range(before, self._updates)

    def read(self, runs: RunState, updates: range) -> tuple[Clock, Chunk]:
        """Fetch clocks and the metrics of the updates with these numbers."""
        clock, metrics = self.programs.fetch((runs.clock, self._metrics))
        numbers = np.array(updates, int)
        metrics = {name: rows[:, numbers % rows.shape[1]] for name, rows in metrics.items()}
        return clock, Chunk(self.totals.take(), metrics)

    def evaluate(
        self, agent: Agent, row: Row, lanes: Sequence[int], index: int, num_episodes: int
    ) -> list[np.ndarray]:
        """Returns of greedy episodes in simulators of their own."""
        found = []
        for lane in lanes:
            count = min(num_episodes, self.num_envs, MOST_EVALUATED)
            learner = select_lane(row.lanes.learner, lane)
            plan = self._plans[lane]
            with self.make_pool(make_seeds(plan.seed, count, (1, index))) as pool:
                found.append(greedy_returns(agent, learner, plan.hyper, pool, num_episodes))
        return found

    def left_support(self, lane: int) -> str | None:
        """A sentence on returns outside of the support, None without any."""
        return self.totals.left_support(lane)

    def shapes(self, agent: Agent, params: Any, hyper: Any) -> RunState:
        """Shapes and types of the state of one run, without computing it."""
        observation = agent.spec.observation
        if isinstance(observation, Image):
            obs = jax.ShapeDtypeStruct((self.num_envs, *observation.frame), np.uint8)
        else:
            obs = jax.ShapeDtypeStruct((self.num_envs, *observation.shape), np.float32)
        job = Job(params=params, hyper=hyper, horizon=Horizon(), key=jax.random.key(0))
        return jax.eval_shape(lambda job, obs: _begin(agent, (), job, obs), job, obs)

    def close(self) -> None:
        """End all simulators."""
        self._resources.close()

    def _step(self, agent: Agent, jobs: Job, runs: RunState, learning: bool) -> RunState:
        """One step of every environment, while the accelerator learns."""
        runs, moves = self._move(agent, jobs, runs, learning)
        _, observe_and_decide = step_programs()
        # The learner is not changed: it is left out, as every array that a program returns costs
        # time.
        rest, self._decided = self.programs.call(
            observe_and_decide,
            agent,
            (),
            jobs,
            runs.learner,
            runs._replace(learner=()),
            *self._decided,
            SimulatorStep.pack(moves, len(self._plans)),
        )
        self._steps += self.num_envs
        self.totals.add(moves, self._steps)
        if self.watch is not None:
            self.watch(moves, self._steps)
        return rest._replace(learner=runs.learner)

    def _move(
        self, agent: Agent, jobs: Job, runs: RunState, learning: bool
    ) -> tuple[RunState, StepBatch]:
        """Send the selected actions to the simulators, learn, and wait for the simulators.

        To launch `learn` takes the host as long as simulators take for their part of a step. So
        another thread waits for the actions and sends them.
        """
        sent = self._sender.submit(self._send, self._decided[0].action)
        try:
            if learning:
                runs = self._learn(agent, jobs, runs)
        finally:
            self.programs.wait(sent)
        return runs, self.pool.step_wait()

    def _send(self, actions: jax.Array) -> None:
        self.pool.step_async(jax.device_get(actions).reshape(-1))

    def _learn(self, agent: Agent, jobs: Job, runs: RunState) -> RunState:
        learn, _ = step_programs()
        runs, self._metrics = self.programs.call(learn, agent, (), jobs, runs, self._metrics)
        self._updates += 1
        return runs


def make_seeds(seed: int, count: int, use: tuple[int, ...] = ()) -> list[int]:
    """Seeds of the environments of a run: the first has the run's own, unless for another use."""
    made = [
        int(np.random.SeedSequence((seed, env, *use)).generate_state(1)[0]) for env in range(count)
    ]
    return made if use else [seed, *made[1:]]


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
    while any(len(made) < share for made, share in zip(done, shares, strict=True)):
        moves = pool.step(np.asarray(select_greedy(agent, learner, obs, hyper)))
        totals += moves.reward
        for env in np.flatnonzero(moves.boundary):
            if not moves.lost[env]:
                done[env].append(float(totals[env]))
            totals[env] = 0.0
        obs = stack_frames(observation, obs, moves.obs, moves.boundary)
    return np.concatenate([made[:share] for made, share in zip(done, shares, strict=True)])


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
    """Make one update.

    Metrics stay on the accelerator: with all arrays at the same place at each call, a GPU repeats
    the last CUDA graph instead of recording it anew.
    """
    number = run.clock.updates
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
    moved: SimulatorStep,
) -> tuple[RunState, tuple[Decision, Any]]:
    """Store a step of the simulators, advance the clock, and select the next actions."""
    step, keep = moved.unpack(agent.spec.observation, run.obs)
    run = steps.observe(agent, run, decision, actor, step, job.horizon, keep)
    return run, _decide(agent, env, job, run._replace(learner=learner))


def _cut_episodes(agent: Agent, env: Any, job: Job, run: RunState) -> RunState:
    return steps.cut_episodes(agent, run, job.hyper)


begin = per_lane(_begin)
decide = per_lane(_decide)
cut_episodes = per_lane(_cut_episodes, donate_argnums=3)


@functools.cache
def step_programs() -> tuple[Any, Any]:
    """`learn` and `observe_and_decide`, compiled as CUDA graphs if XLA supports them.

    Runs and metrics are donated.
    """
    options = cuda_graphs()
    return (
        per_lane(_learn, donate_argnums=(3, 4), compiler_options=options),
        per_lane(_observe_and_decide, donate_argnums=4, compiler_options=options),
    )
