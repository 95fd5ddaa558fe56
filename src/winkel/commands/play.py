"""`winkel play` and `winkel inspect`: films of a trained agent, pictures of what it predicts."""

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from winkel.commands.figure import Formats, write_figure
from winkel.commands.options import File, RunCode, RunEnv, progress_bar, say
from winkel.errors import InputError, require_integer
from winkel.figures import heatmaps
from winkel.files import ensure_folder
from winkel.numpy_policy import Policy
from winkel.play import inspection, maps
from winkel.play.episodes import (
    CUT,
    MAX_STEPS,
    load_one,
    observe_after,
    open_environment,
    play,
    task_of,
)
from winkel.play.film import check_film, write_film
from winkel.play.zoo import PREFIX, load_zoo
from winkel.runs.record import RunRecord
from winkel.simulators.pool import TIMEOUT
from winkel.training.programs import start_jax


def play_agent(
    path: tyro.conf.Positional[Path],
    env: RunEnv = None,
    code: RunCode = (),
    seed: int | None = None,
    episodes: int = 1,
    policy: Literal["greedy", "exploring"] = "greedy",
    out: File = None,
    fps: int = 35,
    every: int = 1,
    world_seed: int = 0,
    steps: int = MAX_STEPS,
    timeout: float = TIMEOUT,
) -> None:
    """Film episodes: what the agent observes, with value and bonus of every action beside it.

    Args:
        path: Folder of a run, or of several of one agent and environment; or zoo:NAME.
        seed: Which of several runs; the first by default.
        episodes: Number of episodes.
        policy: The action of highest value, or as the agent acted when training ended.
        out: FILE.gif; play.gif in the run's folder by default, in the current one for the zoo.
        fps: Frames a second, at most 50.
        every: Show every so many steps, and the last.
        world_seed: Seed of the environment, and of exploration.
        steps: Cut an episode after so many steps.
        timeout: Seconds that a simulator may take to start, for a reset and for a step.
    """
    start_jax()
    for name, count in (("episodes", episodes), ("every", every), ("steps", steps)):
        require_integer(f"--{name}", count, at_least=1)
    if out is not None:
        check_film(out, fps)
    run: RunRecord | Policy
    folder, clock = Path(), None
    if str(path).startswith(PREFIX):
        if seed is not None or policy == "exploring":
            raise InputError(f"need a run for --seed and --policy exploring, got {path}")
        run = load_zoo(str(path))
        config = run.about
    else:
        run = load_one(path, seed, env)
        folder, config = run.folder, run.config
        clock = run.clock if policy == "exploring" else None
    task, out = task_of(run), out or folder / "play.gif"
    check_film(out, fps)
    opened = open_environment(task, world_seed, say, timeout)
    with progress_bar() as progress, opened as world:
        bar = progress.add_task("play", total=None)
        played = play(
            run,
            world,
            episodes=episodes,
            clock=clock,
            seed=world_seed,
            every=every,
            max_steps=steps,
            progress=lambda steps: progress.update(bar, completed=steps),
        )
        title = f"{config['agent']} in {task.id}, seed {config['seed']}"
        write_film(out, played, title, fps, partial(progress.track, description="draw"))
    for moment in np.flatnonzero(played["action"] < 0):
        episode, length = played["episode"][moment], played["step"][moment]
        cut = ", cut there" if played["state"][moment] == CUT else ""
        say(f"episode {episode}: return {played['return'][moment]:.4g}, length {length}{cut}")
    say(f"wrote {out}")


def inspect_run(
    path: tyro.conf.Positional[Path],
    env: RunEnv = None,
    code: RunCode = (),
    seed: int | None = None,
    at: str = "start",
    out: Path | None = None,
    formats: Formats = ("png", "pdf"),
    timeout: float = TIMEOUT,
) -> None:
    """Draw return distributions, value, disagreement and bonus; heat maps or a map where known.

    Args:
        path: Folder of a run, or of several of one agent and environment.
        seed: Which of several runs; the first by default.
        at: Where: 'start' (the first observation of an episode), the index of a one-hot
            observation, for deep sea ROW,COLUMN, or for a simulator after so many greedy STEPS.
        out: Folder for pictures and arrays; the run's own by default.
        timeout: Seconds that a simulator may take to start, for a reset and for a step.
    """
    start_jax()
    run = load_one(path, seed, env)
    task, out = run.task, out or path
    ensure_folder(out)
    if task.compiled and at != "start":
        obs = inspection.find_observation(task, at)
    elif at == "start" or (at.isascii() and at.isdecimal()):
        with open_environment(task, notice=say, timeout=timeout) as simulator:
            obs = observe_after(run, simulator, 0 if at == "start" else int(at))
    else:
        raise InputError(f"need --at start, or a number of greedy steps, got {at!r}")
    arrays = inspection.inspection_arrays(run, obs)
    written = write_figure(inspection.draw, arrays, out / "inspect", formats)
    if run.snapshots and run.experiment.startswith("deep_sea"):
        grids = heatmaps.snapshot_arrays(task.id, run.snapshots)
        written += write_figure(heatmaps.draw, grids, out / "heatmaps", formats)
    if (visited := maps.map_arrays(run)) is not None:
        written += write_figure(maps.draw, visited, out / "map", formats)
    for file in written:
        say(f"wrote {file}")
    for action, name in enumerate(arrays["actions"]):
        numbers = ("value", "disagreement", "bonus")
        texts = [f"{number} {arrays[number][action]:.3f}" for number in numbers]
        say(f"{name}: {', '.join(texts)}")
