"""Training: an agent in an environment, several seeds at once, recorded and resumable."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from winkel.envs.host import UNKNOWN, HostTask, is_name, make_host
from winkel.envs.registry import Task, make
from winkel.errors import InputError, require_integer
from winkel.experiments.visits import watching
from winkel.files import ensure_folder
from winkel.runs.folder import run_folder
from winkel.runs.metrics import Mirror
from winkel.runs.presets import named_preset
from winkel.runs.recording import Recorder, conclude, is_complete
from winkel.runs.session import Options, Planned, Session, Status
from winkel.runs.spec import Configured, configure, describe, field_name, fingerprint
from winkel.runs.trained import Training, load_trained
from winkel.training.steps import UNLIMITED, Horizon
from winkel.version import __version__

MAX_LANES = 256
DOOM, DOOM_ENVS = "doom:", 32
"""What names of VizDoom begin with, and the environments of a run there (the paper's table)."""
DOOM_PRESET = "vizdoom-official"
"""Of which it was seen that it learns (decision 021)."""
MAX_SEED = 2**31 - 1
"""Of runs that are reported. Seeds above it, of JAX's 32 bits, are for tuning (`winkel.search`)."""


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
    mirrors: Callable[[dict[str, Any], Path], tuple[Mirror, ...]] | None = None,
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
        episodes: the horizon; bsuite's own where neither this nor `steps` is given.
        steps: the horizon in steps.
        until: stop after so many episodes, although schedules go by the horizon.
        out: folder for the runs; nothing is written without one.
        resume: go on with what is in `out`: finished runs are loaded, begun ones continued.
        lanes: runs side by side; the others wait in a queue. All runs have a lane by default, also
            finished ones: the number of lanes decides how the accelerator rounds.
        num_envs: environments that each run of a simulator has at once; 1, or 32 in VizDoom, by
            default. There is one update for each step of all of them.
        workers: processes that simulators run in; by the number of CPUs by default, 0: none.
        preset: settings from `winkel.agents.presets`, or of a file (`winkel.runs.presets`); in
            VizDoom `DOOM_PRESET` by default.
        options: evaluation, snapshots, checkpoints.
        label: what the agent is called in `out`; its name by default.
        mnist_dir: where MNIST's files are.
        mirrors: makes copies of the metrics' log (TensorBoard, W&B) for a run's config and folder.
        progress: gets the status of every run after each chunk of steps.
        notice: gets sentences that a user should see.
        **fields: any field of the agent's `Config` or `Hyper`.
    """
    options = options or Options()
    fields = preset_fields(env, agent, preset) | fields
    task = task_of(env, agent, fields, mnist_dir, num_envs, workers)
    configured = configure(agent, fields, task)
    _tell_support(task, configured, fields, notice)
    chosen_seeds = checked_seeds(seeds)
    horizon = horizon_of(task, episodes, steps)
    stop = None if until is None else stop_of(until, horizon)
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
        runs = [
            Planned(task, configured, horizon, stop, _recorder(configs[i], folders[i], mirrors))
            for i in todo
        ]
        for numbers, batch in _batches(todo, runs, lanes, isinstance(task, HostTask)):
            with watching(batch, notice) as watch:
                session = Session(batch, options, progress, notice, watch=watch)
                trained = session.run(min(lanes or MAX_LANES, len(configs)))
            done |= dict(zip(numbers, trained, strict=True))
    return Training(runs=tuple(done[i] for i in range(len(configs))))


def task_of(
    env: str,
    agent: str,
    fields: Mapping[str, Any],
    mnist_dir: Path | None = None,
    num_envs: int | None = None,
    workers: int | None = None,
) -> Task | HostTask:
    """The environment of an id or the simulator of a name."""
    if not is_name(env):
        for name, value in (("num_envs", num_envs), ("workers", workers)):
            if value is not None:
                raise InputError(f"need {name} with a simulator such as gym:CartPole-v1, got {env}")
        return make(env, mnist_dir)
    default = DOOM_ENVS if env.startswith(DOOM) else 1
    count = require_integer("num_envs", default if num_envs is None else num_envs, at_least=1)
    if workers is not None:
        require_integer("workers", workers, at_least=0)
    given = {field_name(agent, field) for field in fields}
    return make_host(env, num_envs=count, workers=workers, look=not {"z_min", "z_max"} <= given)


def preset_fields(env: str, agent: str, name: str | None) -> dict[str, Any]:
    """Settings of a preset by name; by default `DOOM_PRESET` in VizDoom, and none elsewhere."""
    if name is None:
        name = DOOM_PRESET if env.startswith(DOOM) else None
    if name is None:
        return {}
    return named_preset(name, agent)


def _tell_support(
    task: Task | HostTask,
    configured: Configured,
    fields: Mapping[str, Any],
    notice: Callable[[str], None],
) -> None:
    hyper = configured.hyper
    if isinstance(task, HostTask) and task.rewards is not None and "z_min" in hyper._fields:
        rewardless = task.rewards.support(hyper.gamma) == UNKNOWN
        why = (
            "though a random policy met no reward" if rewardless else "by a random policy's rewards"
        )
        notice(
            f"returns are taken to lie in [{hyper.z_min:.4g}, {hyper.z_max:.4g}], {why}; "
            "--z-min and --z-max set it"
        )


def _batches(
    numbers: list[int], runs: list[Planned], lanes: int | None, host: bool
) -> list[tuple[list[int], list[Planned]]]:
    """Runs that go together: in simulators those that are side by side, else all."""
    size = min(lanes or len(runs), len(runs)) if host else len(runs)
    return [(numbers[i : i + size], runs[i : i + size]) for i in range(0, len(runs), size)]


def run_config(
    task: Task | HostTask,
    configured: Configured,
    seed: int,
    horizon: Horizon,
    stop: Horizon | None,
    options: Options,
    label: str,
) -> dict[str, Any]:
    """Everything that makes a run what it is, as JSON, with a hash of it and the versions used."""
    settings = {
        **task.describe(),
        "agent": label,
        "seed": seed,
        "algorithm": configured.name,
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
    return settings | {
        "fingerprint": fingerprint(settings),
        "versions": versions,
        "hardware": jax.devices()[0].device_kind,
    }


def _recorder(
    config: dict[str, Any],
    folder: Path | None,
    mirrors: Callable[[dict[str, Any], Path], tuple[Mirror, ...]] | None,
) -> Recorder:
    copies = mirrors(config, folder) if mirrors is not None and folder is not None else ()
    return Recorder(config=config, folder=folder, mirrors=copies)


def checked_seeds(seeds: int | Sequence[int]) -> list[int]:
    """Seeds 0, 1, … of a number, or those given; raises unless they are different and in range."""
    if isinstance(seeds, int):
        return list(range(require_integer("seeds", seeds, at_least=1)))
    chosen = [require_integer("each seed", seed, at_least=0) for seed in seeds]
    if chosen and max(chosen) > MAX_SEED:
        raise InputError(
            f"need each seed <= {MAX_SEED} (above it they are for tuning), got {max(chosen)}"
        )
    if not chosen or len(set(chosen)) != len(chosen):
        raise InputError(f"need different seeds, at least one, got {chosen}")
    return chosen


def horizon_of(task: Task | HostTask, episodes: int | None, steps: int | None = None) -> Horizon:
    """When a run ends; after bsuite's own number of episodes where nothing is given."""
    if episodes is None and steps is None:
        if task.num_episodes is None:
            raise InputError(f"need episodes or steps, the horizon, for {task.id}, got neither")
        episodes = task.num_episodes
    for name, count in (("episodes", episodes), ("steps", steps)):
        if count is not None and require_integer(name, count, at_least=1) >= UNLIMITED:
            raise InputError(f"need {name} < {UNLIMITED}, got {count}")
    return Horizon(episodes=episodes or UNLIMITED, steps=steps or UNLIMITED)


def stop_of(until: int, horizon: Horizon) -> Horizon:
    """A stop within the horizon."""
    if require_integer("until", until, at_least=1) > horizon.episodes:
        raise InputError(f"need until <= {horizon.episodes}, the horizon, got {until}")
    return Horizon(episodes=until, steps=horizon.steps)


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
