"""Many runs through few lanes: a lane whose run has ended takes the next one from the queue.

The host's side of the loop on the accelerator. Nothing here touches a disk or a screen: `Lanes`
tells after every chunk of steps what happened, and hands out or takes in the state of a lane.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winkel.agents.base import Agent
from winkel.errors import InputError
from winkel.training import device
from winkel.training.device import Job, Lane, Trace
from winkel.training.steps import Horizon
from winkel.types import Clock

Arrays = dict[str, np.ndarray]


class Plan(NamedTuple):
    """A run to be made.

    Attributes:
        params: the environment's setting.
        hyper: the agent's hyperparameters, plain numbers.
        horizon: when it ends.
        seed: of everything random in it.
        fan_in: numbers that an observation really has, where it is padded.
        stop: when to stop before the horizon, which the agent's schedules go by; None: at it.
        saved: state of its lane to go on from; None to begin.
    """

    params: Any
    hyper: Any
    horizon: Horizon
    seed: int
    fan_in: int | None = None
    stop: Horizon | None = None
    saved: Lane | None = None

    @property
    def end(self) -> Horizon:
        """Where records end."""
        return self.stop or self.horizon


class Report(NamedTuple):
    """What a chunk of steps brought for one run.

    Attributes:
        plan: its index among the plans.
        episodes: the episodes that ended, within the horizon: return, length, facts, and the clock
            at their end.
        metrics: means over the chunk, empty without learning.
        env_steps: steps made so far, not beyond the horizon.
        num_episodes: episodes ended so far, not beyond the horizon.
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


@dataclass
class Lanes:
    """Runs of one agent and one shape of environment, `num_lanes` of them at a time.

    Lanes without a run are idle, not left out: the number of lanes decides how the accelerator
    rounds, and nothing else in a run's company does.

    A lane's chunks begin at its own step `burn_in`, whatever its neighbours do, so that everything
    that happens between chunks (evaluation, the end of a run) happens at the same step of a run
    alone and in company.
    """

    agent: Agent
    env: Any
    plans: Sequence[Plan]
    num_lanes: int
    chunk_steps: int = 100
    _jobs: Any = field(init=False, default=None)
    _lanes: Any = field(init=False, default=None)
    _plan_of: list[int | None] = field(init=False)
    _next: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if not self.plans:
            raise InputError("need at least one run, got none")
        if self.num_lanes < 1 or self.chunk_steps < 1:
            raise InputError(
                f"need at least one lane and one step a chunk, got {self.num_lanes} and "
                f"{self.chunk_steps}"
            )
        self._plan_of = [None] * self.num_lanes

    @property
    def running(self) -> dict[int, int]:
        """Lane of each run under way."""
        return {plan: lane for lane, plan in enumerate(self._plan_of) if plan is not None}

    def advance(self) -> list[Report]:
        """Fill idle lanes from the queue, then move all by a chunk. Empty when all is done.

        What a new lane's burn-in brought is reported together with its first chunk. A run that is
        reported as finished or failed keeps its lane until it is released.
        """
        burnt_in = self._fill()
        if not self.running:
            return []
        before = self._lanes
        if burnt_in is not None and self._all_reached():
            return self._reports(burnt_in, None, before)
        self._lanes, trace = device.advance(
            self.agent, self.env, self._jobs, before, self.chunk_steps, learning=True
        )
        return self._reports(burnt_in, jax.device_get(trace), before)

    def _all_reached(self) -> bool:
        """Whether all runs ended within their burn-in, so that there is nothing to learn for."""
        clock = jax.device_get(self._lanes.run.clock)
        return all(_reached(self.plans[p].end, clock, lane) for p, lane in self.running.items())

    def release(self, plan: int) -> None:
        """Free the lane of a run that has ended, for the next in the queue."""
        self._plan_of[self.running[plan]] = None

    def state(self, lane: int) -> Lane:
        """Everything of one lane, on the host (keys stay JAX's)."""
        return jax.device_get(device.picked(self._lanes, lane))

    def evaluate(self, lanes: Sequence[int], index: int, num_episodes: int) -> np.ndarray:
        """Returns `[lanes, num_episodes]` of greedy episodes; `index` makes their randomness."""
        keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, 5), index))(
            self._jobs.key
        )
        found = device.evaluate(self.agent, self.env, self._jobs, self._lanes, keys, num_episodes)
        return np.asarray(found)[list(lanes)]

    def survey(self, lanes: Sequence[int]) -> list[Arrays]:
        """Visits, value, disagreement and bonus at every countable observation."""
        found = jax.device_get(device.survey(self.agent, self._jobs, self._lanes))
        visits = np.asarray(self._lanes.visits)
        return [
            {
                "visits": visits[lane],
                "value": found.value[lane],
                "disagreement": found.disagreement[lane],
                "bonus": found.bonus[lane],
            }
            for lane in lanes
        ]

    def _fill(self) -> Trace | None:
        """Start queued runs in idle lanes; the trace of their burn-in."""
        fresh: list[int] = []
        restored: list[int] = []
        for lane, plan in enumerate(self._plan_of):
            if plan is None and self._next < len(self.plans):
                self._plan_of[lane] = self._next
                (fresh if self.plans[self._next].saved is None else restored).append(lane)
                self._next += 1
        if not fresh and not restored:
            return None
        self._place_jobs()
        begun = device.begin(self.agent, self.env, self._jobs)
        burnt_in = None
        if fresh:
            begun, trace = device.advance(
                self.agent, self.env, self._jobs, begun, self.agent.config.burn_in, learning=False
            )
            burnt_in = _only(jax.device_get(trace), fresh)
        if self._lanes is not None:
            begun = device.chosen(np.isin(np.arange(self.num_lanes), fresh), begun, self._lanes)
        for plan, lane in self.running.items():
            if lane in restored:
                begun = device.placed(begun, lane, self.plans[plan].saved)
        self._lanes = begun
        return burnt_in

    def _place_jobs(self) -> None:
        """The jobs of all lanes; an idle lane repeats another's, and nobody looks."""
        spare = next(plan for plan in self._plan_of if plan is not None)
        plans = [self.plans[spare if plan is None else plan] for plan in self._plan_of]
        self._jobs = Job(
            params=_stacked([plan.params for plan in plans]),
            hyper=_stacked([plan.hyper for plan in plans]),
            horizon=Horizon(
                episodes=jnp.array([plan.horizon.episodes for plan in plans], jnp.int32),
                steps=jnp.array([plan.horizon.steps for plan in plans], jnp.int32),
            ),
            key=jnp.stack([jax.random.key(plan.seed) for plan in plans]),
            fan_in=jnp.array([plan.fan_in or self.agent.spec.inputs for plan in plans], float),
        )

    def _reports(self, burnt_in: Trace | None, trace: Trace | None, before: Lane) -> list[Report]:
        """What burn-in and chunk brought; without a trace there was no chunk.

        A lane whose loss was not finite, or whose run had ended in its burn-in, stays as it was
        before the chunk.
        """
        losses = np.asarray([[0.0]] * self.num_lanes if trace is None else trace.metrics["loss"])
        sound: np.ndarray = np.isfinite(losses).all(axis=1)
        started = jax.device_get(before.run.clock)
        early = [
            p for p, lane in self.running.items() if _reached(self.plans[p].end, started, lane)
        ]
        broken = [lane for p, lane in self.running.items() if not sound[lane] and p not in early]
        kept = [*broken, *(self.running[plan] for plan in early)]
        if kept and trace is not None:
            which = np.isin(np.arange(self.num_lanes), kept)
            self._lanes = device.chosen(which, before, self._lanes)
        clock = jax.device_get(self._lanes.run.clock)
        reports = []
        for plan, lane in sorted(self.running.items()):
            end = self.plans[plan].end
            last = int(clock.env_steps[lane])
            parts, failure = [], None
            if lane in broken:
                step = int(np.argmin(np.isfinite(losses[lane])))
                failure = (
                    f"the loss was {losses[lane, step]} at update "
                    f"{int(clock.updates[lane]) + step + 1}; the state before that chunk is kept"
                )
            elif trace is not None and plan not in early:
                parts.append(_episodes(trace, lane, last))
                last -= trace.ended.shape[1]
            if burnt_in is not None:
                parts.insert(0, _episodes(burnt_in, lane, last))
            ended = _within(parts, int(clock.episodes[lane]), end)
            if self._lanes.visits.shape[1] == 0:
                ended.pop("seen", None)
            reports.append(
                Report(
                    plan=plan,
                    episodes=ended,
                    metrics={} if trace is None or plan in early else _means(trace, lane),
                    env_steps=min(int(clock.env_steps[lane]), int(end.steps)),
                    num_episodes=min(int(clock.episodes[lane]), int(end.episodes)),
                    updates=int(clock.updates[lane]),
                    progress=_progress(end, clock, lane),
                    finished=failure is None and _reached(end, clock, lane),
                    failure=failure,
                )
            )
        return reports


def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x) for x in leaves]), *trees)


def _means(trace: Trace, lane: int) -> dict[str, float]:
    return {
        name: float(np.mean(values[lane], dtype=np.float64))
        for name, values in trace.metrics.items()
    }


def _only(trace: Trace, lanes: list[int]) -> Trace:
    """The trace with episodes of these lanes alone: the others' burn-in did not happen."""
    begun = np.isin(np.arange(len(trace.ended)), lanes)
    return trace._replace(ended=trace.ended & begun[:, None])


def _episodes(trace: Trace, lane: int, last_step: int) -> Arrays:
    """Records of the episodes that ended in a trace whose last step has the given number."""
    at = np.asarray(trace.ended)[lane]
    records = {
        "return": np.asarray(trace.tally.total, np.float64)[lane][at],
        "length": np.asarray(trace.tally.length, np.int64)[lane][at],
        "env_steps": last_step - len(at) + 1 + np.flatnonzero(at),
        "seen": np.asarray(trace.seen, np.int64)[lane][at],
    }
    return records | {
        name: np.asarray(fact, np.int64)[lane][at] for name, fact in trace.tally.facts.items()
    }


def _progress(end: Horizon, clock: Clock, lane: int) -> float:
    """As `Horizon.progress`, on the host: rounded alike in any number of lanes."""
    by_episodes = int(clock.episodes[lane]) / int(end.episodes)
    by_steps = int(clock.env_steps[lane]) / int(end.steps)
    return min(max(by_episodes, by_steps), 1.0)


def _reached(end: Horizon, clock: Clock, lane: int) -> bool:
    return bool(clock.episodes[lane] >= end.episodes or clock.env_steps[lane] >= end.steps)


def _within(parts: list[Arrays], num_episodes: int, horizon: Horizon) -> Arrays:
    """One table of the episodes, the last of which is number `num_episodes`, up to the horizon."""
    if not parts:
        return {}
    table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    number = num_episodes - np.arange(len(table["length"]))[::-1]
    kept = (number <= int(horizon.episodes)) & (table["env_steps"] <= int(horizon.steps))
    return {name: values[kept] for name, values in table.items()}
