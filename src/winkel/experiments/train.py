"""Training: an agent in an environment, several seeds at once, recorded and resumable."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from winkel.envs.registry import Task, make
from winkel.errors import InputError, require_integer
from winkel.experiments.config import Configured, configure, describe, fingerprint
from winkel.experiments.recording import Recorder, conclude, is_complete
from winkel.experiments.session import Options, Planned, Session, Status
from winkel.experiments.trained import Training, load_trained
from winkel.io.log import Mirror
from winkel.io.results import ensure_folder
from winkel.io.runs import run_folder
from winkel.training.steps import UNLIMITED, Horizon
from winkel.version import __version__

MAX_LANES = 256
MAX_SEED = 2**32 - 1  # JAX takes no more bits of a seed


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
        session = Session(runs, options, progress, notice)
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
        "padded": task.padded,
        "options": {
            "evaluate_every": options.evaluate_every,
            "evaluation_episodes": options.evaluation_episodes,
            "snapshots": options.snapshots,
            "chunk_steps": options.chunk_steps,
        },
    }
    if task.packing is not None:
        settings["packed"] = {
            "pack": task.packing.pack,
            "inputs": math.prod(task.env.observation.shape),
            "actions": task.env.num_actions,
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
        raise InputError(f"need each seed <= {MAX_SEED}, got {max(chosen)}")
    if not chosen or len(set(chosen)) != len(chosen):
        raise InputError(f"need different seeds, at least one, got {chosen}")
    return chosen


def horizon_of(task: Task, episodes: int | None, steps: int | None = None) -> Horizon:
    """When a run ends; after bsuite's own number of episodes where nothing is given."""
    if episodes is None and steps is None:
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
