"""`winkel score`, `winkel export bsuite` and `winkel data mnist`."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from winkel.analysis.scores import export_bsuite, note_incomplete, score_runs, score_tags
from winkel.commands.options import say
from winkel.envs.bsuite.mnist import fetch_mnist, mnist_directory
from winkel.errors import InputError
from winkel.runs.compact import write_compact
from winkel.runs.record import find_runs, load_run


@dataclass(frozen=True, kw_only=True)
class Score:
    """Official bsuite scores of runs, for each agent and seed on its own."""

    runs: tyro.conf.Positional[Path]
    """Folder that `winkel rollout --out` or a sweep has filled."""

    def run(self) -> None:
        """Print the scores of all experiments found, and of the capabilities they count towards."""
        runs = [load_run(folder) for folder in find_runs(self.runs)]
        scored = score_runs(runs)
        if not scored:
            raise InputError(
                f"need runs of bsuite's 468 settings, such as catch/0, in {self.runs}; "
                f"`winkel report {self.runs}` shows the returns of any runs"
            )
        for (agent, seed), scores in scored.items():
            say(f"{agent}, seed {seed}")
            for name, value in scores.items():
                say(f"  {name:24} {value:.4f}")
            for tag, value in score_tags(scores).items():
                if not math.isnan(value):  # no experiment of this tag has been run
                    say(f"  tag {tag:20} {value:.4f}")
        for note in note_incomplete(runs):
            say(f"note: {note}")


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write runs in the layout of other tools, or in few bytes."""

    layout: tyro.conf.Positional[Literal["bsuite", "compact"]]
    """bsuite: DeepMind's CSV files, one folder for each agent and seed. compact: one file for all
    seeds of an agent in a setting, without checkpoints; figures and reports read it."""
    runs: tyro.conf.Positional[Path]
    """Folder of runs."""
    out: tyro.conf.Positional[Path]
    """Folder to write to."""
    overwrite: bool = False
    """Replace files that exist."""

    def run(self) -> None:
        """Write the files and count them."""
        if self.layout == "compact":
            if self.overwrite:
                raise InputError("need --overwrite for bsuite, got it for compact, which adds runs")
            added = write_compact(self.runs, self.out)
            say(f"added {sum(added.values())} runs to {len(added)} files in {self.out}")
            return
        written, skipped = export_bsuite(self.runs, self.out, overwrite=self.overwrite)
        if not written:
            raise InputError(
                "need runs of bsuite's 468 settings, such as catch/0, in which an episode ended, "
                f"in {self.runs}"
            )
        say(f"wrote {len(written)} files to {self.out}")
        for folder in skipped:
            say(f"skipped {folder}: not one of bsuite's 468 settings, or no episode ended")


@dataclass(frozen=True, kw_only=True)
class Data:
    """Fetch a data set into the folder that the environments read, and verify it.

    The folder is that in the variable WINKEL_MNIST, else the cache folder.
    """

    name: tyro.conf.Positional[Literal["mnist"]]
    """Which one."""

    def run(self) -> None:
        """Fetch, verify, and print the folder."""
        directory = mnist_directory()
        fetch_mnist(directory, progress=say)
        say(f"MNIST is in {directory}")
