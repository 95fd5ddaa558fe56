"""What a chunk of steps brought for each run: traces of all lanes, taken apart on the host.

There may be hundreds of lanes and a few milliseconds for all of them, so that whatever can be done
for all at once is.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from winkel.training.device import Lane, Trace
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
        copy: number of a run with the same setting and seed, which is to be another all the same.
        fan_in: numbers that an observation really has, where it is padded.
        stop: when to stop before the horizon, which the agent's schedules go by; None: at it.
        saved: state of its lane to go on from; None to begin.
        available: actions that there really are, the first ones; None: all.
        facts: names of the facts to record; None: all that the environment tells.
        most_steps: that it can have; None where nobody knows.
    """

    params: Any
    hyper: Any
    horizon: Horizon
    seed: int
    fan_in: int | None = None
    stop: Horizon | None = None
    saved: Lane | None = None
    available: int | None = None
    facts: tuple[str, ...] | None = None
    most_steps: int | None = None
    copy: int = 0

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


class Moved(NamedTuple):
    """All lanes after a chunk, on the host.

    Attributes:
        running: lane of each run.
        clock: of each lane.
        burnt_in: trace of the burn-in of lanes that began, None if none did.
        trace: of the chunk, None if there was none.
        early: lanes whose runs had ended in their burn-in, and stayed there.
        broken: lanes whose loss was not finite, and which went back to before the chunk.
    """

    running: dict[int, int]
    clock: Clock
    burnt_in: Trace | None
    trace: Trace | None
    early: frozenset[int]
    broken: frozenset[int]


def reports_of(plans: Sequence[Plan], moved: Moved, countable: bool) -> list[Report]:
    """What a chunk brought for each run, in the order of the plans."""
    clock, trace, stayed = moved.clock, moved.trace, moved.early | moved.broken
    steps = np.full(len(clock.updates), 0 if trace is None else trace.ended.shape[1])
    steps[list(stayed)] = 0
    last = np.asarray(clock.env_steps)
    learned = begun = None
    means: list[dict[str, float]] = [{}] * len(steps)
    if trace is not None:
        learned, means = episodes_by_lane(trace, last), means_by_lane(trace)
    if moved.burnt_in is not None:
        begun = episodes_by_lane(moved.burnt_in, last - steps)
    reports = []
    for plan, lane in sorted(moved.running.items()):
        end, failure = plans[plan].end, None
        if trace is not None and lane in moved.broken:
            failure = _failure(trace, clock, lane)
        parts = [] if begun is None else [begun(lane)]
        if learned is not None and lane not in stayed:
            parts.append(learned(lane))
        ended = within(parts, int(clock.episodes[lane]), plans[plan])
        if not countable:
            ended.pop("seen", None)
        reports.append(
            Report(
                plan=plan,
                episodes=ended,
                metrics={} if lane in moved.early else means[lane],
                env_steps=min(int(clock.env_steps[lane]), int(end.steps)),
                num_episodes=min(int(clock.episodes[lane]), int(end.episodes)),
                updates=int(clock.updates[lane]),
                progress=progress(end, clock, lane),
                finished=failure is None and reached(end, clock, lane),
                failure=failure,
            )
        )
    return reports


def _failure(trace: Trace, clock: Clock, lane: int) -> str:
    losses = trace.metrics["loss"][lane]
    step = int(np.argmin(np.isfinite(losses)))
    return (
        f"the loss was {losses[step]} at update {int(clock.updates[lane]) + step + 1}; "
        "the state before that chunk is kept"
    )


def episodes_by_lane(trace: Trace, last_steps: np.ndarray) -> Callable[[int], Arrays]:
    """Records of the episodes that ended in a trace, lane by lane.

    Args:
        trace: on the host.
        last_steps: number of each lane's last step in it.
    """
    lanes, at = np.nonzero(trace.ended)
    columns = {
        "return": np.asarray(trace.tally.total)[lanes, at].astype(np.float64),
        "length": np.asarray(trace.tally.length)[lanes, at].astype(np.int64),
        "env_steps": np.asarray(last_steps, np.int64)[lanes] - trace.ended.shape[1] + 1 + at,
        "seen": np.asarray(trace.seen)[lanes, at].astype(np.int64),
    }
    for name, fact in trace.tally.facts.items():
        columns[name] = np.asarray(fact)[lanes, at].astype(np.int64)
    bounds = np.searchsorted(lanes, np.arange(len(trace.ended) + 1))

    def of(lane: int) -> Arrays:
        rows = slice(bounds[lane], bounds[lane + 1])
        return {name: column[rows] for name, column in columns.items()}

    return of


def means_by_lane(trace: Trace) -> list[dict[str, float]]:
    """Means of the metrics, lane by lane."""
    means = [np.asarray(x).astype(np.float64).mean(axis=1).tolist() for x in trace.metrics.values()]
    return [dict(zip(trace.metrics, row, strict=True)) for row in zip(*means, strict=True)]


def only(trace: Trace, lanes: Sequence[int]) -> Trace:
    """The trace with episodes of these lanes alone: the others' burn-in did not happen."""
    begun = np.isin(np.arange(len(trace.ended)), lanes)
    return trace._replace(ended=trace.ended & begun[:, None])


def progress(end: Horizon, clock: Clock, lane: int) -> float:
    """As `Horizon.progress`, on the host: rounded alike in any number of lanes."""
    by_episodes = int(clock.episodes[lane]) / int(end.episodes)
    by_steps = int(clock.env_steps[lane]) / int(end.steps)
    return min(max(by_episodes, by_steps), 1.0)


def reached(end: Horizon, clock: Clock, lane: int) -> bool:
    """Whether a run has come to its end."""
    return bool(clock.episodes[lane] >= end.episodes or clock.env_steps[lane] >= end.steps)


def within(parts: list[Arrays], num_episodes: int, plan: Plan) -> Arrays:
    """One table of the episodes, the last of which is number `num_episodes`, up to the end."""
    if not parts:
        return {}
    table = parts[0]
    if len(parts) > 1:
        table = {name: np.concatenate([part[name] for part in parts]) for name in table}
    if plan.facts is not None:
        told = ("return", "length", "env_steps", "seen", *plan.facts)
        table = {name: table[name] for name in told}
    steps, end = table["env_steps"], plan.end
    if not len(steps) or (num_episodes <= int(end.episodes) and steps[-1] <= int(end.steps)):
        return table
    number = num_episodes - np.arange(len(steps))[::-1]
    kept = (number <= int(end.episodes)) & (steps <= int(end.steps))
    return {name: values[kept] for name, values in table.items()}
