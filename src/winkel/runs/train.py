"""`winkel.train`: several seeds of an agent in an environment, from the first step to the last."""

import contextlib
import dataclasses
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsIndex

import jax
import numpy as np

from winkel.agents import AGENTS, VARIANTS
from winkel.envs.base import Task
from winkel.envs.outside import OutsideTask, SimulatorTask
from winkel.errors import InputError, defer_interrupt, require_integer, require_type
from winkel.extensions import wrap_error
from winkel.files import hold_runs
from winkel.projections import PROJECTIONS
from winkel.runs.checkpoint import has_checkpoint, pack, unpack
from winkel.runs.presets import preset_fields
from winkel.runs.record import CHECKPOINT_FOLDER, RunRecord, Training, load_run_checkpoint
from winkel.runs.recorder import Mirror, Recorder, Status, load_ended
from winkel.runs.spec import (
    DEFAULTS,
    Options,
    RunSpec,
    check_seeds,
    make_spec,
    make_task,
    name_agent,
)
from winkel.simulators.visits import watch_visits
from winkel.training.compaction import Compaction
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes, Report, World
from winkel.training.programs import Programs, check_memory, start_jax
from winkel.training.simulated import SimulatorWorld, Watch
from winkel.training.steps import Plan, start_clock
from winkel.training.steps import learn as learn_step
from winkel.types import RunState

MAX_LANES = 256
"""Runs side by side by default."""
MAX_SAVING = 0.05
"""Share of the time that writing checkpoints may take; if it is more, they become rarer."""


@dataclass(kw_only=True)
class Session:
    """Runs that share one compiled program, `num_lanes` at a time; other fields as in `train`."""

    specs: Sequence[RunSpec]
    out: Path | None
    num_lanes: int
    ended: Callable[[RunRecord], None]
    """Gets the record of each run that has ended, with its learner."""
    progress: Callable[[list[Status]], None] = lambda _: None
    notice: Callable[[str], None] = lambda _: None
    mirrors: Sequence[Mirror] = ()
    watch: Watch | None = None
    programs: Programs = field(init=False, default_factory=Programs)
    recorders: list[Recorder] = field(init=False, default_factory=list)
    lanes: Lanes = field(init=False)
    saving: float = field(init=False, default=0.0)
    """Seconds of writing checkpoints and records."""
    consistent: bool = field(init=False, default=True)
    """False while a chunk is only partly recorded: nothing can be saved."""

    def run(self) -> None:
        """Make all runs, or continue them from their checkpoints. Ctrl-C saves them."""
        options, plans = self.specs[0].options, []
        with defer_interrupt() as check_interrupt, contextlib.ExitStack() as closing:
            for spec in self.specs:
                plans.append(self._plan(spec))
                closing.callback(self.recorders[-1].close)
            self.lanes = make_lanes(
                self.specs[0], plans, self.num_lanes, options,
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
        recorder = Recorder(spec, folder, self.num_lanes, self.mirrors)
        self.recorders.append(recorder)
        if folder is None or not has_checkpoint(folder / CHECKPOINT_FOLDER):
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
        self.consistent = False
        reports = self.lanes.advance()
        for report in reports:
            self.recorders[report.run].record(report)
        self._evaluate(reports)
        self._take_snapshots(reports)
        for report in reports:
            if self.recorders[report.run].status.state != "running":
                self._finish(report)
        self.consistent = True
        return reports

    def _evaluate(self, reports: Sequence[Report]) -> None:
        """Make the greedy evaluations that are due, those of one number together."""
        due: dict[int, list[Report]] = defaultdict(list)
        for report in reports:
            if number := self.recorders[report.run].due_evaluation(report):
                due[number].append(report)
        count = self.specs[0].options.evaluation_episodes
        for number, chosen in sorted(due.items()):
            evaluated = self.lanes.evaluate([report.run for report in chosen], number, count)
            for report, returns in zip(chosen, evaluated, strict=True):
                row = {
                    "evaluation": number,
                    "env_steps": report.env_steps,
                    "episodes": report.num_episodes,
                    "returns": np.asarray(returns, np.float64),
                }
                self.recorders[report.run].add_row("evaluations", row)

    def _take_snapshots(self, reports: Sequence[Report]) -> None:
        due = [report for report in reports if self.recorders[report.run].due_snapshot(report)]
        surveys = self.lanes.survey([report.run for report in due])
        for report, survey in zip(due, surveys, strict=True):
            row = {"episodes": report.num_episodes, **survey}
            self.recorders[report.run].add_row("snapshots", row)

    def _finish(self, report: Report) -> None:
        spec, recorder = self.specs[report.run], self.recorders[report.run]
        state = self.lanes.state(report.run)
        outcome: dict[str, Any] = {"status": recorder.status.state}
        if report.failure is not None:
            where = f"{spec.label} in {spec.task.id}, seed {spec.seed}"
            self.notice(f"{where} stopped: {report.failure}")
            outcome["reason"] = report.failure
        elif recorder.is_solved and not report.finished:
            outcome["solved"] = report.num_episodes
        if (outside := self.lanes.support_notice(report.run)) is not None:
            self.notice(f"seed {spec.seed}: {outside}")
        begin = time.perf_counter()
        recorder.checkpoint(pack(state), outcome)
        record = recorder.finish(outcome)
        self.saving += time.perf_counter() - begin
        self.ended(dataclasses.replace(record, spec=spec, learner=state.learner))
        self.lanes.release(report.run)

    def _save(self) -> None:
        begin = time.perf_counter()
        for number in self.lanes.running if self.out is not None else ():
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
    mirrors: Sequence[Mirror] = (),
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
            in JAX or its name (`winkel.envs.functional`).
        agent: a name from `winkel list agents`, module:Class, or a subclass of `agents.Agent`.
        seeds: how many (0, 1, …), or which.
        episodes: the horizon; bsuite's own if neither this nor `steps` is given.
        steps: the horizon in steps.
        until: stop after so many episodes; schedules still use the full horizon.
        out: folder for the runs; without one nothing is written.
        resume: load the finished runs in `out`, and continue those that have begun.
        lanes: runs side by side; by default all, up to 256. Rounding depends on it.
        num_envs: environments per run, for simulators; 1 by default, 32 in VizDoom.
        workers: processes that simulators run in; by the number of CPUs by default, 0 for none.
        timeout: seconds that such a process may take to make, reset or step its simulators.
        preset: settings by name (`winkel.runs.presets`).
        options: evaluation, snapshots, checkpoints.
        label: the agent's name in `out`; `agent` by default.
        mirrors: other places for the metrics (`winkel.runs.recorder.Mirror`), with `out` only.
        progress: gets the status of every run after each chunk of steps.
        notice: gets sentences that a user should see.
        **fields: any field of the agent's `Config` or `Hyper`.
    """
    require_type("preset", preset, str | None, "a name or None")
    require_type("label", label, str | None, "a name or None")
    require_type("out", out, str | os.PathLike | None, "a folder or None")
    require_type("options", options, Options, "winkel.runs.spec.Options")
    require_type("progress", progress, Callable, "a function")
    require_type("notice", notice, Callable, "a function")
    agent = name_agent(agent, fields)
    task = make_task(env, notice, num_envs=num_envs, workers=workers, timeout=timeout)
    if preset is not None or task.id.startswith("doom:"):
        fields = preset_fields(task.id, agent, preset) | fields
    specs = [
        make_spec(
            task, agent, fields, seed=seed, episodes=episodes, steps=steps, until=until,
            options=options, label=label,
        )
        for seed in check_seeds(seeds)
    ]  # fmt: skip
    hyper = specs[0].hyper
    estimated = "z_min" in hyper._fields and not {"z_min", "z_max"} <= fields.keys()
    if isinstance(task, OutsideTask) and estimated:
        notice(
            f"returns are taken to lie in [{hyper.z_min:.4g}, {hyper.z_max:.4g}], "
            f"{task.range_origin}; --z-min and --z-max set it"
        )
    root = None if out is None else Path(out)
    if resume and root is None:
        raise InputError("need a folder `out` to resume from, got none")
    most = MAX_LANES if lanes is None else require_integer("lanes", lanes, at_least=1)
    num_lanes = min(most, len(specs))
    check_run(specs[0], num_lanes)
    done: dict[int, RunRecord] = {}
    with contextlib.ExitStack() as held:
        if root is not None:
            held.enter_context(hold_runs(root, [s.folder(root) for s in specs], "winkel train"))
            for spec in specs:
                if (record := load_ended(spec, root, resume)) is not None:
                    done[spec.seed] = add_learner(record, spec)
        todo = [spec for spec in specs if spec.seed not in done]
        batches = [todo] if task.compiled else _simulator_batches(todo, root, num_lanes)
        for batch in filter(None, batches):
            watching: Any = contextlib.nullcontext()
            if root is not None and not task.compiled:
                ends = {spec.folder(root): spec.end for spec in batch}
                runs = [(f, end, has_checkpoint(f / CHECKPOINT_FOLDER)) for f, end in ends.items()]
                watching = watch_visits(task, runs, notice)
            with watching as watch:
                Session(
                    specs=batch, out=root, num_lanes=num_lanes, progress=progress, notice=notice,
                    ended=lambda record: done.update({record.config["seed"]: record}),
                    mirrors=mirrors, watch=watch,
                ).run()  # fmt: skip
    return Training(runs=tuple(done[spec.seed] for spec in specs))


def _simulator_batches(
    specs: Sequence[RunSpec], root: Path | None, size: int
) -> Iterator[list[RunSpec]]:
    """Group runs in simulators, which begin together, after equally many steps."""

    def steps_made(spec: RunSpec) -> int:
        if root is None or not has_checkpoint(spec.folder(root) / CHECKPOINT_FOLDER):
            return 0
        # All of it is read, since a run goes back to an older checkpoint if any byte is damaged.
        return int(load_run_checkpoint(spec.folder(root))[0]["state"]["clock.env_steps"])

    for _, group in itertools.groupby(sorted(specs, key=steps_made), steps_made):
        while batch := list(itertools.islice(group, size)):
            yield batch


def make_world(
    task: Task, notice: Callable[[str], None] = lambda _: None, watch: Watch | None = None
) -> World:
    """Make what steps the environments of a task: simulators, or an environment in JAX."""
    start_jax()
    if isinstance(task, SimulatorTask):
        return SimulatorWorld(lambda seeds: task.pool(seeds, notice), task.num_envs, watch)
    return CompiledWorld(task.env)


def make_lanes(
    spec: RunSpec,
    plans: Sequence[Plan],
    num_lanes: int,
    options: Options,
    *,
    notice: Callable[[str], None] = lambda _: None,
    programs: Programs | None = None,
    watch: Watch | None = None,
) -> Lanes:
    """Make lanes for runs with the agent and the shapes of one of them, `spec`."""
    unit, freeze = options.compact_lanes, options.freeze_bonus
    compaction = Compaction(unit, freeze)
    world = make_world(spec.task, notice, watch)
    shapes, params = world.shapes(spec.agent, plans[0]), plans[0].params
    check_memory(spec.agent, shapes, params, num_lanes, options.chunk_steps)
    return Lanes(
        spec.agent, world, plans, num_lanes, options.chunk_steps,
        rearrange=compaction.rearrange if unit is not None or freeze else None, notice=notice,
        programs=programs or Programs(),
    )  # fmt: skip


def state_shapes(spec: RunSpec) -> RunState:
    """Shapes and types of a run's state, without computing it."""
    return make_world(spec.task).shapes(spec.agent, spec.plan())


def learner_shapes(spec: RunSpec) -> dict[str, Any]:
    """Shapes and types of a run's learner and clock alone, which do not need its environment."""
    learner = jax.eval_shape(lambda key: spec.agent.init(key, spec.hyper), jax.random.key(0))
    return {"learner": learner, "clock": jax.eval_shape(start_clock)}


def check_run(spec: RunSpec, num_lanes: int) -> None:
    """Raise unless the agent's functions fit together, and there is memory for so many runs."""
    _check_agent(spec)
    agent, params, chunk = spec.agent, spec.task.params, spec.options.chunk_steps
    check_memory(agent, state_shapes(spec), params, num_lanes, chunk, spec.record_bytes)


def _check_agent(spec: RunSpec) -> None:
    """Trace the functions of code from outside once, so that a mistake in it is one line."""
    agent, hyper = spec.agent, spec.hyper
    names = [spec.algorithm, *getattr(agent.config, "projections", ())]
    if all(name in (*AGENTS, *VARIANTS, *PROJECTIONS) for name in names):
        return

    def learn(state: RunState) -> Any:
        def update(learner: Any, _: None) -> tuple[Any, None]:
            agent.estimates(learner, state.obs[0] if state.first.ndim else state.obs, hyper)
            run, update = learn_step(agent, state._replace(learner=learner), hyper, state.key)
            if "loss" not in update.metrics:
                raise InputError(f"need the metric 'loss' of update, got {[*update.metrics]}")
            return run.learner, None

        return jax.lax.scan(update, state.learner, length=1)  # needs learners of one form

    try:
        jax.eval_shape(learn, state_shapes(spec))
    except Exception as error:
        raise wrap_error(error, f"agent {spec.algorithm}") from error


def add_learner(record: RunRecord, spec: RunSpec) -> RunRecord:
    """Add what the agent has learned, from the newest checkpoint, to a record on disk."""
    tables, _, _ = load_run_checkpoint(record.folder, only=("state/learner", "state/clock"))
    learned = unpack(tables["state"], learner_shapes(spec))
    return dataclasses.replace(record, spec=spec, **learned)
