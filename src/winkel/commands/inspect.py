"""`winkel inspect`: what a trained agent predicts, and where it has been."""

from dataclasses import dataclass
from pathlib import Path

from winkel.commands.figure import Format, write_figure
from winkel.commands.options import OfRun, say
from winkel.errors import InputError
from winkel.figures import heatmaps
from winkel.files import ensure_folder
from winkel.play import inspection, maps
from winkel.play.episodes import load_one, observe_after, open_environment
from winkel.simulators.pool import TIMEOUT
from winkel.training.programs import start_jax


@dataclass(frozen=True, kw_only=True)
class Inspect(OfRun):
    """Draw return distributions, value, disagreement and bonus; heat maps or a map where known."""

    seed: int | None = None
    """Which of several runs; the first by default."""
    at: str = "start"
    """Where: 'start' (the first observation of an episode), the index of a one-hot observation, for
    deep sea ROW,COLUMN, or for a simulator after so many greedy STEPS."""
    out: Path | None = None
    """Folder for pictures and arrays; the run's own by default."""
    formats: tuple[Format, ...] = ("png", "pdf")
    """File formats."""
    timeout: float = TIMEOUT
    """Seconds that a simulator may take to start, for a reset and for a step."""

    def run(self) -> None:
        """Write the pictures and print the numbers of each action."""
        start_jax()
        run = load_one(self.path, self.seed, self.env)
        task, out = run.task, self.out or self.path
        ensure_folder(out)
        if task.compiled and self.at != "start":
            obs = inspection.find_observation(task, self.at)
        elif self.at == "start" or (self.at.isascii() and self.at.isdecimal()):
            with open_environment(task, notice=say, timeout=self.timeout) as env:
                obs = observe_after(run, env, 0 if self.at == "start" else int(self.at))
        else:
            raise InputError(f"need --at start, or a number of greedy steps, got {self.at!r}")
        arrays = inspection.inspection_arrays(run, obs)
        written = write_figure(inspection.draw, arrays, out / "inspect", self.formats)
        if run.snapshots and run.experiment.startswith("deep_sea"):
            grids = heatmaps.snapshot_arrays(task.id, run.snapshots)
            written += write_figure(heatmaps.draw, grids, out / "heatmaps", self.formats)
        if (visited := maps.map_arrays(run)) is not None:
            written += write_figure(maps.draw, visited, out / "map", self.formats)
        for path in written:
            say(f"wrote {path}")
        for action, name in enumerate(arrays["actions"]):
            numbers = ("value", "disagreement", "bonus")
            texts = [f"{number} {arrays[number][action]:.3f}" for number in numbers]
            say(f"{name}: {', '.join(texts)}")
