"""`winkel score`, `winkel export bsuite` and `winkel data mnist`."""

import math
from pathlib import Path
from typing import Literal

import tyro

from winkel.analysis.scores import export_bsuite, note_incomplete, score_runs, score_tags
from winkel.commands.options import Runs, say
from winkel.envs.bsuite.mnist import fetch_mnist, mnist_directory
from winkel.errors import InputError
from winkel.runs.compact import write_compact
from winkel.runs.record import find_runs, load_run


def score(runs: Runs) -> None:
    """Official bsuite scores of runs, for each agent and seed on its own."""
    records = [load_run(folder) for folder in find_runs(runs)]
    scored = score_runs(records)
    if not scored:
        raise InputError(
            f"need runs of bsuite's 468 settings, such as catch/0, in {runs}; "
            f"`winkel report {runs}` shows the returns of any runs"
        )
    for (agent, seed), scores in scored.items():
        say(f"{agent}, seed {seed}")
        for name, value in scores.items():
            say(f"  {name:24} {value:.4f}")
        for tag, value in score_tags(scores).items():
            if not math.isnan(value):  # no experiment of this tag has been run
                say(f"  tag {tag:20} {value:.4f}")
    for note in note_incomplete(records):
        say(f"note: {note}")


def export(
    layout: tyro.conf.Positional[Literal["bsuite", "compact"]],
    runs: tyro.conf.Positional[Path],
    out: tyro.conf.Positional[Path],
) -> None:
    """Write runs in the layout of other tools, or in few bytes.

    Args:
        layout: bsuite: DeepMind's CSV files, a folder for each agent and seed. compact: a file for
            all seeds of an agent in a setting, without checkpoints; figures and reports read it.
        runs: Folder of runs.
        out: Folder to write to.
    """
    if layout == "compact":
        added = write_compact(runs, out)
        say(f"added {sum(added.values())} runs to {len(added)} files in {out}")
        return
    written, skipped = export_bsuite(runs, out)
    if not written:
        raise InputError(
            "need runs of bsuite's 468 settings, such as catch/0, in which an episode ended, "
            f"in {runs}"
        )
    say(f"wrote {len(written)} files to {out}")
    for folder in skipped:
        say(f"skipped {folder}: not one of bsuite's 468 settings, or no episode ended")


def fetch_data(name: tyro.conf.Positional[Literal["mnist"]]) -> None:
    """Fetch a data set into the folder that the environments read, and verify it.

    The folder is that in the variable WINKEL_MNIST, else the cache folder.

    Args:
        name: Which one.
    """
    directory = mnist_directory()
    fetch_mnist(directory, progress=say)
    say(f"MNIST is in {directory}")
