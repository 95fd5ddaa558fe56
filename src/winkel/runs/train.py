"""`winkel.train`: several seeds of an agent in an environment, from the first step to the last."""

import contextlib
import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from winkel.envs.base import Task
from winkel.envs.functional import is_functional, is_jax, make_jax_task
from winkel.envs.outside import OutsideTask, make_simulator_task
from winkel.envs.registry import is_outside, make
from winkel.errors import InputError, require_integer, require_type
from winkel.extensions import permit
from winkel.files import hold_runs
from winkel.interrupts import defer_interrupt
from winkel.runs.checkpoint import has_checkpoint, pack, unpack
from winkel.runs.presets import preset_fields
from winkel.runs.record import (
    CHECKPOINTS,
    RunRecord,
    Training,
    load_run_checkpoint,
    read_checkpoint,
)
from winkel.runs.recorder import MirrorMaker, Recorder, Status, load_ended
from winkel.runs.spec import DEFAULTS, Options, RunSpec, check_seeds, make_spec
from winkel.runs.worlds import Watch, check_run, learner_shapes, make_lanes, state_shapes
from winkel.simulators.names import Factory, identify
from winkel.simulators.visits import watch_visits
from winkel.training.lanes import Lanes, Report
from winkel.training.programs import Programs
from winkel.training.steps import Plan

MAX_LANES = 256
"""Runs side by side by default."""
MAX_SAVING = 0.05
"""Fraction of the time that writing checkpoints may take; if it is more, they become rarer."""


@dataclass(kw_only=True)
class Session:
    """Runs that share one compiled program; `progress`, `notice` and `mirrors` as in `train`."""

    specs: Sequence[RunSpec]
    out: Path | None
    """Folder for all runs; None to keep them in memory."""
    num_lanes: int
    """Runs side by side; the others wait."""
    ended: Callable[[RunRecord], None]
    """Gets the record of every run that has ended, with its learner."""
    progress: Callable[[list[Status]], None] = lambda _: None
    notice: Callable[[str], None] = lambda _: None
    mirrors: MirrorMaker | None = None
    watch: Watch | None = None
    programs: Programs = field(init=False, default_factory=Programs)
    recorders: list[Recorder] = field(init=False, default_factory=list)
    lanes: Lanes = field(init=False)
    saving: float = field(init=False, default=0.0)
    """Seconds of writing checkpoints and records."""
    consistent: bool = field(init=False, default=True)
    """False while a chunk is only partly recorded, so that nothing can be saved."""

    def run(self) -> None:
        """Make all runs, or continue them from their checkpoints. Ctrl-C saves them."""
        spec, options = self.specs[0], self.specs[0].options
        with defer_interrupt() as check_interrupt, contextlib.ExitStack() as closing:
            plans = []
            for one in self.specs:
                plans.append(self._plan(one))
                closing.callback(self.recorders[-1].close)
            self.lanes = make_lanes(
                spec, plans, self.num_lanes, options,
                notice=self.notice, programs=self.programs, watch=self.watch,
            )  # fmt: skip
            closing.callback(self.lanes.close)
            saved_at, pause = time.monotonic(), options.checkpoint_seconds
            try:
                while self._advance():
                    if time.monotonic() - saved_at >= pause:
                        before = self.saving
                        self._save()
                        saved_at = time.monotonic()
                        if pause:
                            pause = max(pause, (self.saving - before) / MAX_SAVING)
                    self.progress([recorder.status for recorder in self.recorders])
                    check_interrupt()
            except KeyboardInterrupt:
                if self.consistent:
                    self._save()
                raise

    def _plan(self, spec: RunSpec) -> Plan:
        """Open the records of a run, and plan it from its beginning or its checkpoint."""
        folder = None if self.out is None else spec.folder(self.out)
        mirrors = self.mirrors(spec.config, folder) if self.mirrors and folder else ()
        recorder = Recorder(spec, folder, self.num_lanes, mirrors)
        self.recorders.append(recorder)
        if folder is None or not has_checkpoint(folder / CHECKPOINTS):
            return spec.plan()
        arrays, notices = recorder.resume()
        for text in notices:
            self.notice(f"{folder}: {text}")
        state = unpack(arrays, state_shapes(spec))
        plan, clock = spec.plan()._replace(saved=state), state.clock
        recorder.updates_before = int(clock.updates)
        recorder.status = recorder.status._replace(
            progress=plan.share_done(clock.episodes, clock.env_steps),
            env_steps=int(clock.env_steps),
            num_episodes=int(clock.episodes),
            updates=recorder.updates_before,
        )
        return plan

    def _advance(self) -> list[Report]:
        """Advance the lanes by a chunk and record it."""
        self.consistent = False
        reports = self.lanes.advance()
        for report in reports:
            self.recorders[report.run].record(report)
        self._evaluate(reports)
        self._take_snapshots(reports)
        for report in reports:
            solved = self.recorders[report.run].is_solved
            if report.finished or solved or report.failure is not None:
                self._finish(report)
        self.consistent = True
        return reports

    def _evaluate(self, reports: Sequence[Report]) -> None:
        """Make the greedy evaluations that are due, those of one number together."""
        due: dict[int, list[Report]] = {}
        for report in reports:
            if number := self.recorders[report.run].due_evaluation(report):
                due.setdefault(number, []).append(report)
        for number, chosen in sorted(due.items()):
            num_episodes = self.specs[0].options.evaluation_episodes
            found = self.lanes.evaluate([report.run for report in chosen], number, num_episodes)
            for report, returns in zip(chosen, found, strict=True):
                row = {
                    "evaluation": np.array([number]),
                    "env_steps": np.array([report.env_steps]),
                    "episodes": np.array([report.num_episodes]),
                    "returns": np.asarray(returns, np.float64)[None],
                }
                self.recorders[report.run].add("evaluations", row)

    def _take_snapshots(self, reports: Sequence[Report]) -> None:
        """Take the snapshots that are due."""
        due = [report for report in reports if self.recorders[report.run].due_snapshot(report)]
        surveys = self.lanes.survey([report.run for report in due])
        for report, survey in zip(due, surveys, strict=True):
            row = {"episodes": np.array([report.num_episodes])}
            row |= {name: values[None] for name, values in survey.items()}
            self.recorders[report.run].add("snapshots", row)

    def _finish(self, report: Report) -> None:
        """Save a run that has ended, and free its lane."""
        spec, recorder = self.specs[report.run], self.recorders[report.run]
        state = self.lanes.state(report.run)
        outcome: dict[str, Any] = {"status": "finished"}
        if recorder.is_solved and not report.finished:
            outcome["solved"] = report.num_episodes
        if report.failure is not None:
            where = f"{spec.label} in {spec.task.id}, seed {spec.seed}"
            self.notice(f"{where} stopped: {report.failure}")
            outcome = {"status": "failed", "reason": report.failure}
        outside = self.lanes.support_notice(report.run)
        if outside is not None:
            self.notice(f"seed {spec.seed}: {outside}")
        begin = time.perf_counter()
        recorder.checkpoint(pack(state), outcome)
        record = recorder.finish(outcome)
        self.saving += time.perf_counter() - begin
        self.ended(dataclasses.replace(record, spec=spec, learner=state.learner))
        self.lanes.release(report.run)

    def _save(self) -> None:
        """Write a checkpoint of every run under way."""
        begin = time.perf_counter()
        if self.out is not None:
            for number in self.lanes.running:
                self.recorders[number].checkpoint(pack(self.lanes.state(number)))
        self.saving += time.perf_counter() - begin


def train(
    env: Any,
    agent: str | type = "pe_dqn",
    *,
    seeds: SupportsIndex | Iterable[SupportsIndex] = 1,
    episodes: int | None = None,
    steps: int | None = None,
    until: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    lanes: int | None = None,
    num_envs: int | None = None,
    workers: int | None = None,
    timeout: float | None = None,
    preset: str | None = None,
    options: Options = DEFAULTS,
    label: str | None = None,
    mirrors: MirrorMaker | None = None,
    progress: Callable[[list[Status]], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> Training:
    """Train an agent in an environment.

    A run that fails raises nothing: `status` in its config is 'failed', and `reason` says why.

    Args:
        env: an id such as 'deep_sea/0' or 'deep_sea:size=30'; the name of a simulator such as
            'gym:CartPole-v1' or 'my_module:make' (`winkel.simulators.names`), an environment that
            `gymnasium.make(id)` made, or a function that makes one of any library; an environment
            in JAX (`winkel.envs.functional`), or its name (`winkel.envs.functional`).
        agent: a name from `winkel list agents`, module:Class, or a subclass of
            `winkel.agents.Agent`.
        seeds: how many (0, 1, …), or which.
        episodes: the horizon; bsuite's own if neither this nor `steps` is given.
        steps: the horizon in steps.
        until: stop after so many episodes; schedules still use the full horizon.
        out: folder for the runs; nothing is written without one.
        resume: continue what is in `out`: finished runs are loaded, begun ones continued.
        lanes: runs side by side; by default all, up to 256. Rounding depends on it.
        num_envs: environments per run, for simulators; 1 by default, 32 in VizDoom.
        workers: processes that simulators run in; by the number of CPUs by default, 0 for none.
        timeout: seconds that such a process may take to make, reset or step its simulators.
        preset: settings by name (`winkel.runs.presets`).
        options: evaluation, snapshots, checkpoints.
        label: the agent's name in `out`; `agent` by default.
        mirrors: makes copies of the metrics' log (TensorBoard, W&B) for a run's config and folder.
        progress: gets the status of every run after each chunk of steps.
        notice: gets sentences that a user should see.
        **fields: any field of the agent's `Config` or `Hyper`.
    """
    if not isinstance(env, str) and not is_functional(env):
        env = identify(env)
    name = env if isinstance(env, str) else ""
    for what, text in (("preset", preset), ("label", label)):
        require_type(what, text, str | None, "a name or None")
    require_type("out", out, str | os.PathLike | None, "a folder or None")
    require_type("options", options, Options, "winkel.runs.spec.Options")
    for what, function in (("progress", progress), ("notice", notice)):
        require_type(what, function, Callable, "a function")
    agent = name_agent(agent, fields)
    if preset is not None or name.startswith("doom:"):
        fields = preset_fields(name, agent, preset) | fields
    task = make_task(env, notice, num_envs=num_envs, workers=workers, timeout=timeout)
    specs = [
        make_spec(
            task, agent, fields, seed=seed, episodes=episodes, steps=steps, until=until,
            options=options, label=label,
        )
        for seed in check_seeds(seeds)
    ]  # fmt: skip
    hyper = specs[0].hyper
    given = {"z_min", "z_max"} <= fields.keys()
    if isinstance(task, OutsideTask) and "z_min" in hyper._fields and not given:
        notice(
            f"returns are taken to lie in [{hyper.z_min:.4g}, {hyper.z_max:.4g}], "
            f"{task.range_origin}; --z-min and --z-max set it"
        )
    if lanes is not None:
        require_integer("lanes", lanes, at_least=1)
    root = None if out is None else Path(out)
    if resume and root is None:
        raise InputError("need a folder `out` to resume from, got none")
    num_lanes = min(lanes or MAX_LANES, len(specs))
    check_run(specs[0], num_lanes)
    done: dict[int, RunRecord] = {}

    def keep(record: RunRecord) -> None:
        done[record.config["seed"]] = record

    with contextlib.ExitStack() as held:
        if root is not None:
            folders = [spec.folder(root) for spec in specs]
            held.enter_context(hold_runs(root, folders, "winkel train"))
            for spec in specs:
                if (record := load_ended(spec, root, resume)) is not None:
                    keep(add_learner(record, spec))
        todo = [spec for spec in specs if spec.seed not in done]
        batches = [todo] if task.compiled else _simulator_batches(todo, root, num_lanes)
        for batch in filter(None, batches):
            runs = []
            if root is not None and not task.compiled:
                folders = [spec.folder(root) for spec in batch]
                resumed = [has_checkpoint(folder / CHECKPOINTS) for folder in folders]
                runs = list(zip(folders, [spec.end for spec in batch], resumed, strict=True))
            with watch_visits(task, runs, notice) if runs else contextlib.nullcontext() as watch:
                Session(
                    specs=batch, out=root, num_lanes=num_lanes, ended=keep, progress=progress,
                    notice=notice, mirrors=mirrors, watch=watch,
                ).run()  # fmt: skip
    return Training(runs=tuple(done[spec.seed] for spec in specs))


def _simulator_batches(
    specs: Sequence[RunSpec], root: Path | None, size: int
) -> Iterator[list[RunSpec]]:
    """Group runs in simulators, which begin together, after equally many steps."""

    def steps_made(spec: RunSpec) -> int:
        folder = None if root is None else spec.folder(root)
        if folder is None or not has_checkpoint(folder / CHECKPOINTS):
            return 0
        # All of it is read, since a run goes back to an older checkpoint if any byte is damaged.
        return int(load_run_checkpoint(folder)[0]["state/clock.env_steps"])

    for _, group in itertools.groupby(sorted(specs, key=steps_made), steps_made):
        while batch := list(itertools.islice(group, size)):
            yield batch


def make_task(env: Any, notice: Callable[[str], None] = lambda _: None, **options: Any) -> Task:
    """Make a task by id, by name or of an environment in JAX; `options` are of simulators."""
    options = {name: value for name, value in options.items() if value is not None}
    own = isinstance(env, str) and not is_outside(env)
    if not own and not is_functional(env) and (isinstance(env, Factory) or not is_jax(env)):
        return make_simulator_task(env, notice=notice, **options)
    for name in options:
        raise InputError(f"need {name} with a simulator such as gym:CartPole-v1, got {env}")
    return make(env) if own else make_jax_task(env, notice)


def name_agent(agent: Any, fields: dict[str, Any]) -> str:
    """Return the name of an agent; code that it and its projections name may be imported."""
    require_type("agent", agent, str | type, "a name such as 'pe_dqn', or a class")
    if isinstance(fields.get("projections"), list | tuple):
        fields["projections"] = permit(*fields["projections"])
    return agent if isinstance(agent, str) and ":" not in agent else permit(agent)[0]


def add_learner(record: RunRecord, spec: RunSpec) -> RunRecord:
    """Add what the agent has learned, from the newest checkpoint, to a record on disk."""
    arrays, _ = read_checkpoint(record.folder, "state")
    kept = {name: x for name, x in arrays.items() if name.startswith(("learner", "clock"))}
    return dataclasses.replace(record, spec=spec, **unpack(kept, learner_shapes(spec)))
