"""`winkel demo`: train PE-DQN on a small deep sea, and draw what it learned."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from winkel.commands.figure import write_figure
from winkel.commands.terminal import console, say
from winkel.commands.train import Display, print_summary
from winkel.figures import heatmaps
from winkel.files import ensure_folder
from winkel.play import inspection
from winkel.runs.spec import Options
from winkel.runs.train import train
from winkel.training.programs import start_jax

ENV = "deep_sea/0"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train PE-DQN on deep sea of size 10, where one path of 2¹⁰ reaches the goal."""

    out: Path = Path("demo")
    """Folder for runs and pictures; runs of an earlier demo there are continued."""
    seeds: int = 2
    """Number of runs."""
    episodes: int = 600
    """Episodes of each run; β decays over all of them."""

    def run(self) -> None:
        """Train, draw the estimates of one run over time, print the results."""
        start_jax()
        ensure_folder(self.out)
        console.rule("[bold]winkel[/] demo: PE-DQN explores deep sea", align="left")
        say("Only ten right moves in a row reach the goal of deep sea, and each costs a little.")
        say("PE-DQN explores where the return distributions of its two models differ.")
        with Display(f"pe_dqn in {ENV}") as display:
            training = train(
                ENV,
                seeds=self.seeds,
                episodes=self.episodes,
                out=self.out,
                resume=True,
                options=Options(chunk_steps=50, checkpoint_seconds=10.0),
                progress=display.update,
                notice=display.say,
                beta_decay=1.0,
            )
        print_summary(training)
        found = [run.episodes["treasure"].any() for run in training.runs]
        solved = [run.episodes["treasure"][-50:].mean() >= 0.9 for run in training.runs]
        say(f"goal reached: {sum(found)} of {len(found)} seeds")
        say(f"solved (9 of 10 of the last 50 episodes): {sum(solved)} of {len(solved)} seeds")
        best = training.runs[int(np.argmax(found))]
        grids = heatmaps.snapshot_arrays(ENV, best.snapshots)
        estimates = inspection.inspection_arrays(best, np.array(0))
        for files in (
            write_figure(heatmaps.draw, grids, self.out / "heatmaps", ("png", "pdf")),
            write_figure(inspection.draw, estimates, self.out / "inspect", ("png",)),
        ):
            say(f"picture: {files[1]}")
        say(f"records: {self.out}/deep_sea/pe_dqn/0 (python: winkel.load({str(self.out)!r}))")
