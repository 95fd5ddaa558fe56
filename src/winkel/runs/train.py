"""`winkel.train` and `winkel.load`: several seeds of an agent in an environment."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from winkel.envs.base import Task
from winkel.envs.registry import is_simulator, make
from winkel.envs.simulator_task import make_simulator_task
from winkel.errors import InputError, require_integer
from winkel.files import ensure_folder
from winkel.runs.checkpoint import load_checkpoint, unpack
from winkel.runs.configure import configure, field_name
from winkel.runs.presets import preset_fields
from winkel.runs.record import (
    CHECKPOINTS,
    CONFIG,
    Arrays,
    Policy,
    RunRecord,
    find_runs,
    load_run,
    split_tables,
)
from winkel.runs.recorder import Status, is_begun, is_ended
from winkel.runs.session import MirrorMaker, Session, state_shapes
from winkel.runs.spec import Options, RunSpec, check_seeds, make_horizon, make_spec
from winkel.simulators.visits import watch_visits
from winkel.types import Estimates

MAX_LANES = 256
"""Runs side by side by default."""
DOOM_ENVS = 32
"""Environments of a run in VizDoom by default, as in the paper."""


@dataclass(frozen=True, eq=False)
class Training:
    """Several runs of one agent in one environment, in the order of their seeds."""

    runs: tuple[RunRecord, ...]

    @property
    def episodes(self) -> Arrays:
        """All episodes of all seeds as one table: seed, episode, and the columns of each run."""
        return self._table("episodes")

    @property
    def evaluations(self) -> Arrays:
        """All greedy evaluations of all seeds as one table."""
        return self._table("evaluations")

    def policy(self, seed: int | None = None) -> Policy:
        """The greedy policy of a seed, the first by default."""
        return self.of(seed).policy()

    def estimates(self, obs: Any, seed: int | None = None) -> Estimates:
        """The estimates of the agent of a seed, the first by default, for an observation."""
        return self.of(seed).estimates(obs)

    def of(self, seed: int | None = None) -> RunRecord:
        """The run of a seed, the first by default."""
        seeds = [run.config["seed"] for run in self.runs]
        if seed is not None and seed not in seeds:
            raise InputError(f"need a seed from {seeds}, got {seed}")
        return self.runs[0 if seed is None else seeds.index(seed)]

    def _table(self, name: str) -> Arrays:
        parts = []
        for run in self.runs:
            rows: Arrays = getattr(run, name)
            if not rows:
                continue
            count = len(next(iter(rows.values())))
            index = {"seed": np.full(count, run.config["seed"])}
            if name == "episodes":
                index["episode"] = np.arange(1, count + 1)
            parts.append(index | rows)
        if not parts:
            return {}
        return {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}


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
    num_envs: int | None = None,
    workers: int | None = None,
    preset: str | None = None,
    options: Options | None = None,
    label: str | None = None,
    mnist_dir: Path | None = None,
    mirrors: MirrorMaker | None = None,
    progress: Callable[[list[Status]], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> Training:
    """Train an agent in an environment.

    Args:
        env: an id such as 'deep_sea/0' or 'deep_sea:size=30', or the name of a simulator such as
            'gym:CartPole-v1' or 'my_module:make' (`winkel.simulators.names`).
        agent: a name from `winkel list agents`.
        seeds: how many (0, 1, …), or which.
        episodes: the horizon; bsuite's own if neither this nor `steps` is given.
        steps: the horizon in steps.
        until: stop after so many episodes; schedules still use the full horizon.
        out: folder for the runs; nothing is written without one.
        resume: continue what is in `out`: finished runs are loaded, begun ones continued.
        lanes: runs side by side; the others wait. By default all runs have a lane, finished ones
            too, because results depend on the number of lanes through rounding.
        num_envs: environments per run, for simulators; 1 by default, 32 in VizDoom. There is one
            update for each step of all of them.
        workers: processes that simulators run in; by the number of CPUs by default, 0 for none.
        preset: settings by name (`winkel.runs.presets`).
        options: evaluation, snapshots, checkpoints.
        label: the agent's name in `out`; `agent` by default.
        mnist_dir: folder with MNIST's files.
        mirrors: makes copies of the metrics' log (TensorBoard, W&B) for a run's config and folder.
        progress: gets the status of every run after each chunk of steps.
        notice: gets sentences that a user should see.
        **fields: any field of the agent's `Config` or `Hyper`.
    """
    if preset is not None or env.startswith("doom:"):
        fields = preset_fields(env, agent, preset) | fields
    task = make_task(env, agent, fields, mnist_dir, num_envs, workers)
    configured = configure(agent, fields, task)
    if task.range_origin is not None and "z_min" in configured.hyper._fields:
        z_min, z_max = configured.hyper.z_min, configured.hyper.z_max
        notice(
            f"returns are taken to lie in [{z_min:.4g}, {z_max:.4g}], {task.range_origin}; "
            "--z-min and --z-max set it"
        )
    options, horizon = options or Options(), make_horizon(task, episodes, steps)
    specs = [
        make_spec(task, configured, seed, horizon, until, options, label)
        for seed in check_seeds(seeds)
    ]
    if lanes is not None:
        require_integer("lanes", lanes, at_least=1)
    root = None if out is None else Path(out)
    done = _load_finished(specs, root, resume, mnist_dir)
    todo = [spec for spec in specs if spec.seed not in done]
    num_lanes = min(lanes or MAX_LANES, len(specs))
    size = len(todo) if task.compiled else num_lanes  # simulators of a session start together
    for first in range(0, len(todo), max(size, 1)):
        batch = todo[first : first + size]
        with contextlib.ExitStack() as stack:
            watch = None
            if not task.compiled:
                visits = watch_visits(task, _watched(batch, root), notice)
                watch = stack.enter_context(visits)
            session = Session(
                batch, root, num_lanes, progress, notice, mirrors=mirrors, watch=watch
            )
            done |= {spec.seed: run for spec, run in zip(batch, session.run(), strict=True)}
    return Training(runs=tuple(done[spec.seed] for spec in specs))


def _watched(specs: Sequence[RunSpec], root: Path | None) -> list[tuple[Path, int, int, bool]]:
    """Folder, number of steps and episodes, and whether it is resumed, of runs with a folder."""
    folders = [] if root is None else [spec.folder(root) for spec in specs]
    return [
        (folder, int(spec.end.steps), int(spec.end.episodes), is_begun(folder))
        for folder, spec in zip(folders, specs, strict=False)
    ]


def make_task(
    env: str,
    agent: str,
    fields: Mapping[str, Any],
    mnist_dir: Path | None = None,
    num_envs: int | None = None,
    workers: int | None = None,
) -> Task:
    """Make the environment of an id or the simulator of a name."""
    if not is_simulator(env):
        for name, value in (("num_envs", num_envs), ("workers", workers)):
            if value is not None:
                raise InputError(f"need {name} with a simulator such as gym:CartPole-v1, got {env}")
        return make(env, mnist_dir)
    if num_envs is None:
        num_envs = DOOM_ENVS if env.startswith("doom:") else 1
    require_integer("num_envs", num_envs, at_least=1)
    if workers is not None:
        require_integer("workers", workers, at_least=0)
    given = {field_name(agent, field) for field in fields}
    measure = not {"z_min", "z_max"} <= given
    return make_simulator_task(env, num_envs=num_envs, workers=workers, measure_rewards=measure)


def load(path: str | Path, mnist_dir: Path | None = None) -> Training:
    """Load runs from disk: the folder of one run, or one with runs of one agent and environment.

    A run that has not ended is loaded as its newest checkpoint has it.
    """
    path = Path(path)
    if (path / CONFIG).is_file() or (path / CHECKPOINTS).is_dir():
        return Training(runs=(load_trained(path, mnist_dir),))
    folders = [seed for seed in sorted(path.glob("seed-*")) if seed.is_dir()] or find_runs(path)
    loaded = (load_trained(folder, mnist_dir) for folder in folders)
    runs = sorted(loaded, key=lambda run: run.config["seed"])
    kinds = sorted({(run.config["env"], run.config["agent"]) for run in runs})
    if len(kinds) > 1:
        raise InputError(
            f"need runs of one agent in one environment under {path}, got "
            f"{', '.join(f'{agent} in {env}' for env, agent in kinds[:4])}"
        )
    return Training(runs=tuple(runs))


def load_trained(folder: Path, mnist_dir: Path | None = None) -> RunRecord:
    """Load one run with what its agent has learned."""
    saved = load_checkpoint(folder / CHECKPOINTS)
    tables: dict[str, Arrays] = {"episodes": {}, "evaluations": {}, "snapshots": {}} | split_tables(
        saved.arrays
    )
    state = tables.pop("state", {})
    if (folder / CONFIG).is_file():
        record = load_run(folder)
    else:
        config, episodes = saved.meta.get("run", {}), tables.pop("episodes")
        record = RunRecord(config, episodes, folder, finished=False, tables=tables)
    try:
        spec = RunSpec.from_config(record.config, mnist_dir)
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder} was not made by `winkel train`: it lacks {error}") from error
    run = unpack(state, state_shapes(spec))
    return dataclasses.replace(record, spec=spec, learner=run.learner, clock=run.clock)


def _load_finished(
    specs: Sequence[RunSpec], out: Path | None, resume: bool, mnist_dir: Path | None
) -> dict[int, RunRecord]:
    """Runs that have ended, by seed; refuses to touch what is there unless it is to be resumed."""
    if out is None:
        if resume:
            raise InputError("need a folder `out` to resume from, got none")
        return {}
    ensure_folder(out)
    folders = [spec.folder(out) for spec in specs]
    for folder in folders:
        if not resume and folder.exists():
            raise InputError(f"{folder} exists; resume it, or choose another folder or label")
    return {
        spec.seed: load_trained(folder, mnist_dir)
        for spec, folder in zip(specs, folders, strict=True)
        if is_ended(spec, folder)
    }
