"""Training: an agent in an environment, several seeds at once, recorded and resumable."""

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from winkel.envs.registry import Task, make
from winkel.errors import InputError, require_integer
from winkel.experiments.config import Configured, configure, describe, fingerprint
from winkel.experiments.recording import Recorder, conclude, is_begun, is_complete
from winkel.experiments.trained import Trained, Training, load_trained
from winkel.io.checkpoint import pack, unpack
from winkel.io.log import Mirror
from winkel.io.results import ensure_folder
from winkel.io.runs import run_folder
from winkel.training.device import lane_shapes
from winkel.training.lanes import Lanes, Plan, Report
from winkel.training.steps import UNLIMITED, Horizon
from winkel.types import OneHot
from winkel.version import __version__

DEFAULT_SNAPSHOTS = 6
MAX_LANES = 256
MAX_SEED = 2**32 - 1  # JAX takes no more bits of a seed


class Status(NamedTuple):
    """How one run stands, for a display.

    Attributes:
        seed: which.
        progress: share of the horizon done.
        env_steps: made so far.
        num_episodes: ended so far.
        updates: made so far.
        recent_return: mean over the last episodes, NaN before the first.
        seen: share of reachable state-actions seen, None where they cannot be counted.
        found: first episode with a treasure, None where there is none (yet).
        state: 'running', 'finished' or 'failed'.
    """

    seed: int
    progress: float
    env_steps: int
    num_episodes: int
    updates: int
    recent_return: float
    seen: float | None
    found: int | None
    state: str


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to train, none of which shapes what is learned.

    Evaluations and snapshots happen at the first end of a chunk after their time.
    """

    evaluate_every: int | None = None
    """Episodes (or steps, where the horizon counts steps) between greedy evaluations."""
    evaluation_episodes: int = 1
    """Greedy episodes of each evaluation."""
    snapshots: int = DEFAULT_SNAPSHOTS
    """Looks at all countable observations, from the start to the end; 0 for none."""
    checkpoint_seconds: float = 60.0
    """Time between checkpoints; one is written at the end in any case."""
    chunk_steps: int = 100
    """Steps between two looks at the lanes."""

    def __post_init__(self) -> None:
        if self.evaluate_every is not None:
            require_integer("evaluate_every", self.evaluate_every, at_least=1)
        require_integer("evaluation_episodes", self.evaluation_episodes, at_least=1)
        require_integer("snapshots", self.snapshots, at_least=0)
        require_integer("chunk_steps", self.chunk_steps, at_least=1)
        if not self.checkpoint_seconds >= 0:
            raise InputError(f"need checkpoint_seconds >= 0, got {self.checkpoint_seconds}")


def train(
    env: str,
    agent: str = "pe_dqn",
    *,
    seeds: int | Sequence[int] = 1,
    episodes: int | None = None,
    steps: int | None = None,
    until: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    lanes: int | None = None,
    options: Options | None = None,
    label: str | None = None,
    mnist_dir: Path | None = None,
    mirrors: Callable[[dict[str, Any], Path], tuple[Mirror, ...]] | None = None,
    progress: Callable[[list[Status]], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> Training:
    """Train an agent in an environment.

    Args:
        env: an id such as 'deep_sea/0' or 'deep_sea:size=30'.
        agent: a name from `winkel list agents`.
        seeds: how many (0, 1, …), or which.
        episodes: the horizon; bsuite's own where neither this nor `steps` is given.
        steps: the horizon in steps.
        until: stop after so many episodes, although schedules go by the horizon.
        out: folder for the runs; nothing is written without one.
        resume: go on with what is in `out`: finished runs are loaded, begun ones continued.
        lanes: runs side by side; the others wait in a queue. All runs have a lane by default, also
            finished ones: the number of lanes decides how the accelerator rounds.
        options: evaluation, snapshots, checkpoints.
        label: what the agent is called in `out`; its name by default.
        mnist_dir: where MNIST's files are.
        mirrors: makes copies of the metrics' log (TensorBoard, W&B) for a run's config and folder.
        progress: gets the status of every run after each chunk of steps.
        notice: gets sentences that a user should see.
        **fields: any field of the agent's `Config` or `Hyper`.
    """
    options = options or Options()
    task = make(env, mnist_dir)
    configured = configure(agent, fields, task)
    chosen_seeds = _checked_seeds(seeds)
    horizon = _horizon(task, episodes, steps)
    stop = None if until is None else _stop(until, horizon)
    if lanes is not None:
        require_integer("lanes", lanes, at_least=1)
    configs = [
        run_config(task, configured, seed, horizon, stop, options, label or agent)
        for seed in chosen_seeds
    ]
    folders = _folders(out, configs, resume)
    for folder, config in zip(folders, configs, strict=True):
        if folder is not None:
            conclude(folder, config)
    done = {
        i: load_trained(folder, mnist_dir)
        for i, folder in enumerate(folders)
        if folder and is_complete(folder, configs[i])
    }
    todo = [i for i in range(len(configs)) if i not in done]
    if todo:
        recorders = [_recorder(configs[i], folders[i], mirrors) for i in todo]
        session = _Session(task, configured, horizon, stop, recorders, options, progress, notice)
        trained = session.run(min(lanes or MAX_LANES, len(configs)))
        done |= dict(zip(todo, trained, strict=True))
    return Training(runs=tuple(done[i] for i in range(len(configs))))


def run_config(
    task: Task,
    configured: Configured,
    seed: int,
    horizon: Horizon,
    stop: Horizon | None,
    options: Options,
    label: str,
) -> dict[str, Any]:
    """Everything that makes a run what it is, as JSON, with a hash of it and the versions used."""
    settings = {
        "env": task.id,
        "agent": label,
        "seed": seed,
        "algorithm": configured.name,
        "setting": dict(task.setting),
        **describe(configured),
        "horizon": {
            "episodes": None if horizon.episodes == UNLIMITED else int(horizon.episodes),
            "steps": None if horizon.steps == UNLIMITED else int(horizon.steps),
        },
        "until": None if stop is None else int(stop.episodes),
        "options": {
            "evaluate_every": options.evaluate_every,
            "evaluation_episodes": options.evaluation_episodes,
            "snapshots": options.snapshots,
            "chunk_steps": options.chunk_steps,
        },
    }
    settings = json.loads(json.dumps(settings))
    versions = {"winkel": __version__, "jax": jax.__version__, "numpy": np.__version__}
    return settings | {"fingerprint": fingerprint(settings), "versions": versions}


@dataclass
class _Session:
    """One call of `train`: lanes on one side, recorders on the other."""

    task: Task
    configured: Configured
    horizon: Horizon
    stop: Horizon | None
    recorders: list[Recorder]
    options: Options
    progress: Callable[[list[Status]], None]
    notice: Callable[[str], None]

    def run(self, num_lanes: int) -> list[Trained]:
        """All runs to their end, interrupted or not."""
        self.trained: dict[int, Trained] = {}
        self.statuses = {i: _waiting(r.config["seed"]) for i, r in enumerate(self.recorders)}
        plans = [self._plan(recorder) for recorder in self.recorders]
        self.lanes = Lanes(
            self.configured.agent, self.task.env, plans, num_lanes, self.options.chunk_steps
        )
        self.whole = True
        saved_at = time.monotonic()
        try:
            while self._chunk():
                if time.monotonic() - saved_at >= self.options.checkpoint_seconds:
                    self._save()
                    saved_at = time.monotonic()
                self.progress([self.statuses[i] for i in range(len(self.recorders))])
        except KeyboardInterrupt:
            if self.whole:
                self._save()
            raise
        finally:
            for recorder in self.recorders:
                recorder.close()
        return [self.trained[i] for i in range(len(self.recorders))]

    def _chunk(self) -> list[Report]:
        """Move the lanes and record what happened. Ctrl-C waits until both are done."""
        with _held_back():
            self.whole = False
            reports = self.lanes.advance()
            for report in reports:
                self._record(report)
            self._look(reports)
            self._finish(reports)
            self.whole = True
        return reports

    def _plan(self, recorder: Recorder) -> Plan:
        plan = Plan(
            params=self.task.params,
            hyper=self.configured.hyper,
            horizon=self.horizon,
            seed=recorder.config["seed"],
            stop=self.stop,
        )
        if recorder.folder is None or not is_begun(recorder.folder):
            return plan
        arrays, skipped = recorder.resume()
        for reason in skipped:
            self.notice(f"{recorder.folder}: {reason}; went back to the checkpoint before")
        like = lane_shapes(
            self.configured.agent, self.task.env, plan.params, plan.hyper, plan.horizon
        )
        return plan._replace(saved=unpack(arrays, like))

    def _record(self, report: Report) -> None:
        recorder = self.recorders[report.plan]
        if report.episodes:
            recorder.add("episodes", report.episodes)
        if report.failure is None:
            counts = {
                "env_steps": report.env_steps,
                "episodes": report.num_episodes,
                "updates": report.updates,
            }
            recorder.log(counts | report.metrics)
        self.statuses[report.plan] = self._status(report)

    def _status(self, report: Report) -> Status:
        recorder = self.recorders[report.plan]
        rows = recorder.rows("episodes")
        returns = rows.get("return", np.zeros(0))
        treasures = np.flatnonzero(rows.get("treasure", np.zeros(0)))
        seen = rows.get("seen")
        state = "failed" if report.failure else "finished" if report.finished else "running"
        return Status(
            seed=recorder.config["seed"],
            progress=report.progress,
            env_steps=report.env_steps,
            num_episodes=report.num_episodes,
            updates=report.updates,
            recent_return=float(returns[-50:].mean()) if len(returns) else float("nan"),
            seen=None if seen is None or not len(seen) else seen[-1] / reachable(self.task),
            found=int(treasures[0]) + 1 if len(treasures) else None,
            state=state,
        )

    def _look(self, reports: list[Report]) -> None:
        """Evaluations and snapshots that are due."""
        lane_of = self._lane_of
        numbers = {report.plan: self._due_evaluation(report) for report in reports}
        for count in sorted({number for number in numbers.values() if number is not None}):
            due = [report for report in reports if numbers[report.plan] == count]
            lanes = [lane_of[report.plan] for report in due]
            found = self.lanes.evaluate(lanes, count, self.options.evaluation_episodes)
            for report, returns in zip(due, found, strict=True):
                row = {
                    "evaluation": np.array([count]),
                    "env_steps": np.array([report.env_steps]),
                    "episodes": np.array([report.num_episodes]),
                    "returns": np.asarray(returns, np.float64)[None],
                }
                self.recorders[report.plan].add("evaluations", row)
        due = [report for report in reports if self._due_snapshot(report)]
        if due:
            surveys = self.lanes.survey([lane_of[report.plan] for report in due])
            for report, survey in zip(due, surveys, strict=True):
                row = {"episodes": np.array([report.num_episodes])}
                row |= {name: values[None] for name, values in survey.items()}
                self.recorders[report.plan].add("snapshots", row)

    def _due_evaluation(self, report: Report) -> int | None:
        """The number of the evaluation that is due, if it was not made yet."""
        every = self.options.evaluate_every
        if every is None or report.failure:
            return None
        by_steps = self.horizon.steps != UNLIMITED
        count = (report.env_steps if by_steps else report.num_episodes) // every
        made = self.recorders[report.plan].evaluations.get("evaluation")
        return count if count > (made[-1][-1] if made else 0) else None

    def _due_snapshot(self, report: Report) -> bool:
        countable = isinstance(self.configured.agent.spec.observation, OneHot)
        if not countable or not self.options.snapshots or report.failure:
            return False
        made = len(self.recorders[report.plan].rows("snapshots").get("episodes", ()))
        last = max(self.options.snapshots - 1, 1)
        at = made / last if self.options.snapshots > 1 else 1.0
        return made <= last and report.progress >= at - 1e-6

    def _finish(self, reports: list[Report]) -> None:
        for report in reports:
            if not report.finished and not report.failure:
                continue
            recorder, lane = self.recorders[report.plan], self._lane_of[report.plan]
            state = self.lanes.state(lane)
            outcome = {"status": "finished"}
            if report.failure is not None:
                self.notice(f"seed {recorder.config['seed']} stopped: {report.failure}")
                outcome = {"status": "failed", "reason": report.failure}
            recorder.checkpoint(pack(state), outcome)
            run = recorder.finish(outcome)
            self.trained[report.plan] = Trained(
                config=run.config,
                episodes=run.episodes,
                evaluations=recorder.rows("evaluations"),
                snapshots=recorder.rows("snapshots"),
                agent=self.configured.agent,
                hyper=self.configured.hyper,
                learner=state.run.learner,
            )
            self.lanes.release(report.plan)

    @property
    def _lane_of(self) -> dict[int, int]:
        return self.lanes.running

    def _save(self) -> None:
        for plan, lane in self._lane_of.items():
            if self.recorders[plan].folder is not None:
                self.recorders[plan].checkpoint(pack(self.lanes.state(lane)))


def _recorder(
    config: dict[str, Any],
    folder: Path | None,
    mirrors: Callable[[dict[str, Any], Path], tuple[Mirror, ...]] | None,
) -> Recorder:
    copies = mirrors(config, folder) if mirrors is not None and folder is not None else ()
    return Recorder(config=config, folder=folder, mirrors=copies)


def reachable(task: Task) -> int:
    """State-actions that an episode can come through, where observations are countable."""
    size = task.setting["size"]
    return int(size * (size + 1) / 2 * task.env.num_actions)


def _waiting(seed: int) -> Status:
    return Status(seed, 0.0, 0, 0, 0, float("nan"), None, None, "running")


def _checked_seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        return list(range(require_integer("seeds", seeds, at_least=1)))
    chosen = [require_integer("each seed", seed, at_least=0) for seed in seeds]
    if chosen and max(chosen) > MAX_SEED:
        raise InputError(f"need each seed <= {MAX_SEED}, got {max(chosen)}")
    if not chosen or len(set(chosen)) != len(chosen):
        raise InputError(f"need different seeds, at least one, got {chosen}")
    return chosen


def _horizon(task: Task, episodes: int | None, steps: int | None) -> Horizon:
    if episodes is None and steps is None:
        episodes = task.num_episodes
    for name, count in (("episodes", episodes), ("steps", steps)):
        if count is not None and require_integer(name, count, at_least=1) >= UNLIMITED:
            raise InputError(f"need {name} < {UNLIMITED}, got {count}")
    return Horizon(episodes=episodes or UNLIMITED, steps=steps or UNLIMITED)


def _stop(until: int, horizon: Horizon) -> Horizon:
    if require_integer("until", until, at_least=1) > horizon.episodes:
        raise InputError(f"need until <= {horizon.episodes}, the horizon, got {until}")
    return Horizon(episodes=until, steps=horizon.steps)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Raise Ctrl-C's KeyboardInterrupt at the end of the block; at once if it is pressed twice."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    pressed = []

    def hold(*_: object) -> None:
        pressed.append(True)
        if len(pressed) > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _folders(
    out: str | Path | None, configs: list[dict[str, Any]], resume: bool
) -> list[Path | None]:
    """Where each run goes; refuses to touch what is there, unless it is to be resumed."""
    if out is None:
        if resume:
            raise InputError("need a folder `out` to resume from, got none")
        return [None] * len(configs)
    root = Path(out)
    ensure_folder(root)
    folders = [run_folder(root, c["env"], c["agent"], c["seed"]) for c in configs]
    for folder in folders:
        if not resume and folder.exists():
            raise InputError(f"{folder} exists; resume it, or choose another folder or label")
    return list(folders)
