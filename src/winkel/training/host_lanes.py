"""Runs whose worlds are simulators: the host's side of the loop, with the face of `Lanes`."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winkel.agents.base import Agent
from winkel.simulators import Moves, Pool
from winkel.training import device, host
from winkel.training.host import HostJob, HostLane, Seen
from winkel.training.programs import Programs
from winkel.training.reports import Arrays, Plan, Report, progress, reached
from winkel.training.steps import Horizon
from winkel.training.tallies import Tallies

PoolMaker = Callable[[list[int]], Pool]
"""A pool with an environment for each of these seeds."""


@dataclass
class HostLanes:
    """Runs of one agent in simulators, all at once, each in `num_envs` environments of its own.

    A run that has ended keeps its environments until the last one has; what they do then is not
    recorded. Chunks end with the burn-in, so that learning begins with one.

    Attributes:
        agent: the algorithm.
        make_pool: makes simulators.
        plans: the runs.
        num_envs: environments of each run.
        chunk_steps: moves of all environments between two reports.
        programs: what was compiled.
        tallies: of the episodes under way, and what was seen of returns.
        watch: gets the moves of all environments `[runs × environments]` and how many steps each
            run has made by then.
    """

    agent: Agent
    make_pool: PoolMaker
    plans: Sequence[Plan]
    num_envs: int
    chunk_steps: int = 100
    programs: Programs = field(default_factory=Programs)
    watch: Callable[[Moves, int], None] | None = None
    tallies: Tallies = field(init=False)
    running: dict[int, int] = field(init=False)
    _lanes: Any = field(init=False, default=None)
    _clock: Any = field(init=False, default=None)
    _decided: Any = field(init=False, default=None)
    _told: Any = field(init=False, default=None)
    _steps: int = field(init=False, default=0)
    _sender: ThreadPoolExecutor = field(
        init=False,
        repr=False,
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="sending"),
    )

    def __post_init__(self) -> None:
        self.running = {plan: plan for plan in range(len(self.plans))}
        seeds = [seed for plan in self.plans for seed in seeds_of(plan.seed, self.num_envs)]
        self.pool = self.make_pool(seeds)
        self.tallies = Tallies.of(self.pool, [plan.hyper for plan in self.plans])
        self._jobs = _jobs(self.plans)

    def close(self) -> None:
        """End all simulators."""
        self._sender.shutdown()
        self.pool.close()

    def prepare(self) -> None:
        """Nothing: simulators wait for no program but the first."""

    def advance(self) -> list[Report]:
        """Move all runs by a chunk; empty when all are done."""
        if not self.running:
            return []
        if self._lanes is None:
            self._begin()
        learning, updates = self._learns(), int(np.asarray(self._clock.updates)[0])
        for _ in range(self.chunk_steps):
            self._step(learning)
            if self._learns() != learning:
                break
        self._clock = self.programs.fetch(self._clock)
        return self._reports(self._metrics(updates, int(self._clock.updates[0])))

    def _metrics(self, first: int, end: int) -> dict[str, np.ndarray]:
        """Of the updates with these numbers, [runs, updates]; all runs make as many."""
        if self._told is None:
            return {}
        rows = self.programs.fetch(self._told)
        return {
            name: row[:, np.arange(first, end) % self.chunk_steps] for name, row in rows.items()
        }

    def release(self, plan: int) -> None:
        """Forget a run that has ended."""
        del self.running[plan]

    def state(self, lane: int) -> HostLane:
        """Everything of one lane, on the host."""
        return jax.device_get(device.picked(self._lanes, lane))

    def left_support(self, plan: int) -> str | None:
        """A sentence on returns beyond the support, None without any."""
        return self.tallies.left_support(plan, self.num_envs)

    def survey(self, lanes: Sequence[int]) -> list[Arrays]:
        """Nothing: observations of simulators are not counted."""
        return [{} for _ in lanes]

    def evaluate(self, lanes: Sequence[int], index: int, num_episodes: int) -> np.ndarray:
        """Returns `[lanes, num_episodes]` of greedy episodes in simulators of their own."""
        found = []
        for lane in lanes:
            plan = self.plans[lane]
            seeds = seeds_of(plan.seed, min(num_episodes, self.num_envs, 16), (1, index))
            learner = device.picked(self._lanes.run.learner, lane)
            with self.make_pool(seeds) as pool:
                found.append(greedy_returns(self.agent, learner, plan.hyper, pool, num_episodes))
        return np.stack(found)

    def _learns(self) -> bool:
        """Whether enough is stored to learn from; all lanes make as many steps."""
        return self._steps >= self.agent.config.burn_in

    def _begin(self) -> None:
        obs = self._split(self.pool.reset())
        lanes = self.programs.call(host.begin, self.agent, self._jobs, obs)
        fresh = lanes.run.obs, lanes.run.first
        resumed = [(i, plan.saved) for i, plan in enumerate(self.plans) if plan.saved is not None]
        for lane, saved in resumed:
            lanes = device.placed(lanes, lane, jax.tree.map(jnp.asarray, saved))
        run = lanes.run._replace(obs=fresh[0], first=fresh[1])
        self._lanes, self._clock = HostLane(run), jax.tree.map(jnp.copy, run.clock)
        self._steps = int(np.asarray(run.clock.env_steps)[0])
        if resumed:
            self._lanes = host.cut(self.agent, self._jobs, self._lanes)
        acting = self._lanes.run._replace(replay=())
        self._decided = self.programs.call(host.decide, self.agent, self._jobs, acting)

    def _step(self, learning: bool) -> None:
        """One move of every environment, while the accelerator learns."""
        moves, (decision, actors) = self._moved(learning), self._decided
        seen = Seen.of(
            next_obs=self._split(moves.obs_next),
            obs=self._split(moves.obs),
            reward=self._split(moves.reward),
            discount=self._split(moves.discount),
            boundary=self._split(moves.boundary),
            keep=self._split(~moves.lost),
        )
        learners, runs = self._lanes.run.learner, self._lanes.run._replace(learner=())
        runs, self._clock, self._decided = self.programs.call(
            host.observe, self.agent, self._jobs, learners, runs, decision, actors, seen
        )
        self._lanes = HostLane(runs._replace(learner=learners))
        self._steps += self.num_envs
        self.tallies.add(moves, self._steps)
        if self.watch is not None:
            self.watch(moves, self._steps)

    def _moved(self, learning: bool) -> Moves:
        """What simulators bring for the actions decided on.

        Learning is asked for as soon as deciding has been, so that the accelerator need not wait
        for the host. To ask takes the host as long as simulators take for their part of a move:
        so another thread waits for the actions and sends them.
        """
        sent = self._sender.submit(self._send, self._decided[0].action)
        try:
            if learning:
                self._learn()
        finally:
            self.programs.wait(sent)
        return self.pool.step_wait()

    def _send(self, actions: jax.Array) -> None:
        """Give simulators their actions when the accelerator has chosen them."""
        self.pool.step_async(jax.device_get(actions).reshape(-1))

    def _learn(self) -> None:
        of = self.agent, self._jobs, self._lanes
        if self._told is None:
            self._told = host.nothing_told(*of, self.num_envs, self.chunk_steps)
        self._lanes, self._told = self.programs.call(host.learn, *of, self._told, self.num_envs)

    def _split(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(len(self.plans), self.num_envs, *array.shape[1:])

    def _reports(self, columns: dict[str, np.ndarray]) -> list[Report]:
        clock, reports = self._clock, []
        ended = self.tallies.take()
        for plan, lane in sorted(self.running.items()):
            end, failure = self.plans[plan].end, None
            losses = columns.get("loss", np.zeros((len(self.plans), 0)))[lane]
            if not np.isfinite(losses).all():
                number = (
                    int(clock.updates[lane]) - len(losses) + int(np.argmin(np.isfinite(losses)))
                )
                failure = f"the loss was not finite at update {number + 1}"
            reports.append(
                Report(
                    plan=plan,
                    episodes=_within(ended(lane, self.num_envs), int(clock.episodes[lane]), end),
                    metrics={
                        name: float(np.mean(column[lane], dtype=np.float64))
                        for name, column in columns.items()
                    },
                    env_steps=min(int(clock.env_steps[lane]), int(end.steps)),
                    num_episodes=min(int(clock.episodes[lane]), int(end.episodes)),
                    updates=int(clock.updates[lane]),
                    progress=progress(end, clock, lane),
                    finished=failure is None and reached(end, clock, lane),
                    failure=failure,
                )
            )
        return reports


def seeds_of(seed: int, count: int, use: tuple[int, ...] = ()) -> list[int]:
    """Seeds of the environments of a run: the first has the run's own, unless for another use."""
    made = [
        int(np.random.SeedSequence((seed, env, *use)).generate_state(1)[0]) for env in range(count)
    ]
    return made if use else [seed, *made[1:]]


def greedy_returns(
    agent: Agent, learner: Any, hyper: Any, pool: Pool, num_episodes: int
) -> np.ndarray:
    """Undiscounted returns of greedy episodes, as many in each environment, or one more.

    Which episodes count is settled beforehand: the first to end would be the short ones.
    """
    shares = [len(part) for part in np.array_split(np.arange(num_episodes), len(pool))]
    done: list[list[float]] = [[] for _ in shares]
    totals: np.ndarray = np.zeros(len(pool))
    observation = agent.spec.observation
    obs = host.stacks(observation, None, pool.reset(), np.ones(len(pool), bool))
    while any(len(made) < share for made, share in zip(done, shares, strict=True)):
        moves = pool.step(np.asarray(host.greedy(agent, learner, obs, hyper)))
        totals += moves.reward
        for env in np.flatnonzero(moves.boundary):
            if not moves.lost[env]:
                done[env].append(float(totals[env]))
            totals[env] = 0.0
        obs = host.stacks(observation, obs, moves.obs, moves.boundary)
    return np.concatenate([made[:share] for made, share in zip(done, shares, strict=True)])


def _jobs(plans: Sequence[Plan]) -> HostJob:
    return HostJob(
        hyper=jax.tree.map(
            lambda *leaves: jnp.asarray(np.stack(leaves)), *(p.hyper for p in plans)
        ),
        horizon=Horizon(
            episodes=jnp.array([plan.horizon.episodes for plan in plans], jnp.int32),
            steps=jnp.array([plan.horizon.steps for plan in plans], jnp.int32),
        ),
        key=jax.vmap(jax.random.key)(np.array([plan.seed for plan in plans], np.uint32)),
    )


def _within(rows: Arrays, num_episodes: int, end: Horizon) -> Arrays:
    """The episodes, the last of which is number `num_episodes`, up to the end of the run."""
    number = num_episodes - np.arange(len(rows["return"]))[::-1]
    kept = (number <= int(end.episodes)) & (rows["env_steps"] <= int(end.steps))
    return {name: column[kept] for name, column in rows.items()}
