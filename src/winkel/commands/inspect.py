"""`winkel inspect`: what a trained agent predicts, and where it has been."""

from pathlib import Path

import tyro

from winkel.commands.figure import Formats, write_figure
from winkel.commands.options import RunCode, RunEnv, say
from winkel.errors import InputError
from winkel.figures import heatmaps
from winkel.files import ensure_folder
from winkel.play import inspection, maps
from winkel.play.episodes import load_one, observe_after, open_environment
from winkel.simulators.pool import TIMEOUT
from winkel.training.programs import start_jax


def inspect_agent(
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
