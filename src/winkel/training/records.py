"""The inputs of a run (`Plan`) and the results of each chunk of its steps (`Report`).

There may be hundreds of lanes and a few milliseconds between two chunks, so the arrays of all lanes
are handled together.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winkel.simulators import Pool, StepBatch
from winkel.training.steps import Horizon, Job
from winkel.types import Clock, RunState

Arrays = dict[str, np.ndarray]

COUNTED = ("return", "length", "env_steps", "visited")
"""Columns of the table of episodes besides facts; `visited` only with countable observations."""
SUPPORT_SLACK = 1e-4
"""Share of the support that a return may be beyond it by rounding."""
COPY_OFFSET = 1_000_000
"""Added to the number of a copy before it is folded into the key: runs fold in small numbers."""


class Plan(NamedTuple):
    """The inputs of one run.

    Attributes:
        params: the setting of a compiled environment; empty for simulators.
        hyper: the agent's hyperparameters, plain numbers.
        horizon: when the run ends; schedules use it.
        seed: of everything random in the run.
        fan_in: numbers that an observation really has, where it is padded.
        stop: when to stop before the horizon; None to stop at it.
        saved: the state to continue from; None to begin.
        available: actions that there really are, the first ones; None for all.
        facts: names of the facts to record; None for all.
        most_steps: upper bound on environment steps; None if unknown.
        copy: number among runs with the same setting and seed that are to differ.
    """

    params: Any
    hyper: Any
    horizon: Horizon
    seed: int
    fan_in: int | None = None
    stop: Horizon | None = None
    saved: RunState | None = None
    available: int | None = None
    facts: tuple[str, ...] | None = None
    most_steps: int | None = None
    copy: int = 0

    @property
    def end(self) -> Horizon:
        """Where records end."""
        return self.stop or self.horizon


class Report(NamedTuple):
    """Results of a chunk of steps for one run.

    Attributes:
        plan: index of the run among the plans.
        episodes: the episodes that ended, up to the end of the run: return, length, facts, and the
            step at which they ended.
        metrics: means over the chunk, empty without learning.
        env_steps: steps made so far, at most those of the plan.
        num_episodes: episodes ended so far, at most those of the plan.
        updates: updates made so far.
        progress: share of the run that is done.
        finished: whether its end is reached.
        failure: why the run had to stop, None if it did not.
    """

    plan: int
    episodes: Arrays
    metrics: dict[str, float]
    env_steps: int
    num_episodes: int
    updates: int
    progress: float
    finished: bool
    failure: str | None


class Chunk(NamedTuple):
    """Results of a chunk of steps for all lanes of a row, on the host.

    Attributes:
        episodes: a table of the episodes that ended, sorted by their `lane`.
        metrics: of the updates `[lanes, updates]`, empty without learning.
    """

    episodes: Arrays
    metrics: Arrays

    def only(self, lanes: Sequence[int]) -> "Chunk":
        """Drop the episodes of all other lanes."""
        kept = np.isin(self.episodes["lane"], lanes)
        return self._replace(episodes={name: x[kept] for name, x in self.episodes.items()})

    def by_lane(self, num_lanes: int) -> Callable[[int], Arrays]:
        """The table of one lane after the other, without the column `lane`."""
        columns = {name: x for name, x in self.episodes.items() if name != "lane"}
        bounds = np.searchsorted(self.episodes["lane"], np.arange(num_lanes + 1))

        def of(lane: int) -> Arrays:
            rows = slice(bounds[lane], bounds[lane + 1])
            return {name: column[rows] for name, column in columns.items()}

        return of

    def means(self, num_lanes: int) -> list[dict[str, float]]:
        """Means of the metrics, lane by lane."""
        if not self.metrics:
            return [{}] * num_lanes
        means = [np.asarray(x, np.float64).mean(axis=1).tolist() for x in self.metrics.values()]
        return [dict(zip(self.metrics, row, strict=True)) for row in zip(*means, strict=True)]

    def failures(self, updates: np.ndarray) -> dict[int, str]:
        """A sentence for each lane whose loss was not finite.

        Args:
            updates: that each lane had made before the chunk.
        """
        if "loss" not in self.metrics:
            return {}
        losses = np.asarray(self.metrics["loss"])
        finite = np.isfinite(losses)
        first = np.argmin(finite, axis=1)
        return {
            int(lane): f"the loss was {losses[lane, first[lane]]} at update "
            f"{int(updates[lane]) + int(first[lane]) + 1}"
            for lane in np.flatnonzero(~finite.all(axis=1))
        }


def make_reports(
    plans: Sequence[Plan],
    running: Mapping[int, int],
    clock: Clock,
    burn_in: Chunk | None,
    chunk: Chunk | None,
    back: Collection[int],
    failures: Mapping[int, str],
) -> list[Report]:
    """Report on each run of a row, in the order of the plans.

    Args:
        plans: of all runs.
        running: lane of each run in this row.
        clock: of each lane, on the host.
        burn_in: of lanes that began, None if none did.
        chunk: None if no lane moved.
        back: lanes that went back to their state before the chunk, which does not count.
        failures: why runs failed, by lane.
    """
    num_lanes = len(clock.updates)
    begun = None if burn_in is None else burn_in.by_lane(num_lanes)
    learned = None if chunk is None else chunk.by_lane(num_lanes)
    means = [{}] * num_lanes if chunk is None else chunk.means(num_lanes)
    reports = []
    for plan, lane in sorted(running.items()):
        end, failure = plans[plan].end, failures.get(lane)
        parts = [] if begun is None else [begun(lane)]
        if learned is not None and lane not in back:
            parts.append(learned(lane))
        reports.append(
            Report(
                plan=plan,
                episodes=_join(parts, int(clock.episodes[lane]), plans[plan]),
                metrics={} if lane in back and failure is None else means[lane],
                env_steps=min(int(clock.env_steps[lane]), int(end.steps)),
                num_episodes=min(int(clock.episodes[lane]), int(end.episodes)),
                updates=int(clock.updates[lane]),
                progress=progress(end, clock, lane),
                finished=failure is None and is_reached(end, clock, lane),
                failure=failure,
            )
        )
    return reports


def progress(end: Horizon, clock: Clock, lane: int) -> float:
    """As `Horizon.progress`, on the host: rounded alike in any number of lanes."""
    by_episodes = int(clock.episodes[lane]) / int(end.episodes)
    by_steps = int(clock.env_steps[lane]) / int(end.steps)
    return min(max(by_episodes, by_steps), 1.0)


def is_reached(end: Horizon, clock: Clock, lane: int) -> bool:
    """Whether a run has reached its end."""
    return bool(clock.episodes[lane] >= end.episodes or clock.env_steps[lane] >= end.steps)


def _join(parts: list[Arrays], num_episodes: int, plan: Plan) -> Arrays:
    """One table of the episodes, the last of which is number `num_episodes`, up to the end."""
    if not parts:
        return {}
    table = parts[0]
    if len(parts) > 1:
        table = {name: np.concatenate([part[name] for part in parts]) for name in table}
    if plan.facts is not None:
        counted = [name for name in COUNTED if name in table]
        table = {name: table[name] for name in (*counted, *plan.facts)}
    steps, end = table["env_steps"], plan.end
    if not len(steps) or (num_episodes <= int(end.episodes) and steps[-1] <= int(end.steps)):
        return table
    number = num_episodes - np.arange(len(steps))[::-1]
    kept = (number <= int(end.episodes)) & (steps <= int(end.steps))
    return {name: values[kept] for name, values in table.items()}


class EpisodeTotals:
    """Sums over the current episode of every simulator, and the episodes that have ended.

    Environments of a pool stand run by run, as many for each run. Also counts episodes whose
    discounted return was outside of the support, which a categorical model cannot represent.
    """

    def __init__(self, pool: Pool, hypers: Sequence[Any]):
        count = len(pool)
        self._num_envs = count // len(hypers)
        self._facts = pool.facts
        self._sums: Arrays = {name: np.zeros(count) for name in self._facts}
        self._sums["return"] = np.zeros(count, np.float32)
        self._sums["length"] = np.zeros(count, np.int64)
        self._ended: list[Arrays] = []
        gammas = np.array([hyper.gamma for hyper in hypers], np.float64)
        ends = [[getattr(h, "z_min", -np.inf), getattr(h, "z_max", np.inf)] for h in hypers]
        self._gammas = np.repeat(gammas, self._num_envs)
        self._supports = np.repeat(np.array(ends, np.float64), self._num_envs, axis=0)
        self._discounted, self._decay = np.zeros(count), np.ones(count)
        self._lowest, self._highest = np.full(count, np.inf), np.full(count, -np.inf)
        self._outside = np.zeros(count, np.int64)

    def add(self, moves: StepBatch, env_steps: int) -> None:
        """Add one step of every environment, the last of which is step `env_steps` of its run."""
        added = {"return": moves.reward, "length": 1, **moves.facts}
        for name, total in self._sums.items():
            total += added[name]
        self._discounted += self._decay * moves.reward
        self._decay *= self._gammas
        if not moves.boundary.any():
            return
        envs = np.flatnonzero(moves.boundary & ~moves.lost)
        ended = {name: total[envs] for name, total in self._sums.items()}
        self._ended.append(ended | {"env": envs, "env_steps": np.full(len(envs), env_steps)})
        self._check_support(envs)
        for total in (*self._sums.values(), self._discounted):
            total[moves.boundary] = 0
        self._decay[moves.boundary] = 1.0

    def take(self) -> Arrays:
        """The episodes that have ended since the last call, sorted by lane, then by time."""
        dtypes = {name: total.dtype for name, total in self._sums.items()}
        dtypes |= dict.fromkeys(("env", "env_steps"), np.dtype(np.int64))
        ended, self._ended = self._ended, []
        table = {
            name: np.concatenate([np.zeros(0, dtype), *(part[name] for part in ended)])
            for name, dtype in dtypes.items()
        }
        lane = table["env"] // self._num_envs
        order = np.argsort(lane, kind="stable")
        table = {name: column[order] for name, column in table.items()}
        return {
            "lane": lane[order],
            "return": table["return"].astype(np.float64),
            "length": table["length"],
            "env_steps": table["env_steps"],
        } | {name: _as_counts(table[name]) for name in self._facts}

    def _check_support(self, envs: np.ndarray) -> None:
        returns, (low, high) = self._discounted[envs], self._supports[envs].T
        slack = SUPPORT_SLACK * (high - low)
        self._lowest[envs] = np.minimum(self._lowest[envs], returns)
        self._highest[envs] = np.maximum(self._highest[envs], returns)
        self._outside[envs] += (returns < low - slack) | (returns > high + slack)

    def left_support(self, lane: int) -> str | None:
        """A sentence on episodes whose return was outside of the support, None without any."""
        own = slice(lane * self._num_envs, (lane + 1) * self._num_envs)
        if not self._outside[own].any():
            return None
        low, high = self._supports[own][0]
        return (
            f"the discounted return of {self._outside[own].sum():,} episodes was outside of "
            f"[{low:.4g}, {high:.4g}]: they were from {self._lowest[own].min():.4g} to "
            f"{self._highest[own].max():.4g}; set --z-min and --z-max"
        )


def _as_counts(facts: np.ndarray) -> np.ndarray:
    """Whole numbers as integers, other facts as they are."""
    rounded = np.round(facts)
    return rounded.astype(np.int64) if np.array_equal(rounded, facts) else facts


def make_jobs(plans: Sequence[Plan]) -> Job:
    """Stack the inputs of runs as programs take them, without what only compiled worlds have."""
    return Job(
        params=(),
        hyper=stack([plan.hyper for plan in plans]),
        horizon=Horizon(
            episodes=jnp.array([plan.horizon.episodes for plan in plans], jnp.int32),
            steps=jnp.array([plan.horizon.steps for plan in plans], jnp.int32),
        ),
        key=jax.vmap(_make_key)(
            np.array([plan.seed for plan in plans], np.uint32),
            np.array([plan.copy for plan in plans], np.uint32),
        ),
    )


def stack(trees: list[Any]) -> Any:
    """Stack pytrees of numbers, on the host first: one transfer for each leaf."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *trees)


def _make_key(seed: Any, copy: Any) -> Any:
    key = jax.random.key(seed)
    return jax.lax.select(copy == 0, key, jax.random.fold_in(key, COPY_OFFSET + copy))
