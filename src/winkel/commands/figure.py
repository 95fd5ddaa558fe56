"""`winkel figure`: compute or collect from runs, save and draw."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro
from rich.progress import Progress

from winkel.commands.terminal import progress_bar, say
from winkel.errors import InputError
from winkel.experiments.collect import COLLECTORS
from winkel.experiments.iteration import IterationConfig, iteration
from winkel.experiments.operator import operator
from winkel.experiments.toy import ToyConfig, toy
from winkel.figures import FIGURES, RUN_FIGURES, style
from winkel.files import ensure_folder, load_all, load_arrays, save_arrays
from winkel.runs.results import read_results

Format = Literal["png", "pdf", "svg"]
ComputedName = Literal["toy", "operator", "iteration"]
CollectedName = Literal[
    "radar",
    "scores",
    "learning-curves",
    "regret",
    "statistics",
    "coverage",
    "ensemble-size",
    "heatmaps",
    "vizdoom",
]
FigureName = ComputedName | CollectedName
CURVES = ("learning-curves", "vizdoom")
"""Figures over time, in which a run that goes on has a place."""


def _compute_toy(progress: Progress) -> dict[str, np.ndarray]:
    tasks = {
        name: progress.add_task(f"fit the {name} model", total=None)
        for name in ("categorical", "quantile")
    }
    return toy(
        ToyConfig(),
        lambda name, done, total: progress.update(tasks[name], completed=done, total=total),
    )


def _compute_operator(progress: Progress) -> dict[str, np.ndarray]:
    task = progress.add_task("apply the operator", total=1)
    results = operator()
    progress.update(task, completed=1)
    return results


def _compute_iteration(progress: Progress) -> dict[str, np.ndarray]:
    config = IterationConfig()
    task = progress.add_task("value and bonus iteration", total=config.iterations)
    return iteration(
        config,
        lambda k, distance: progress.update(
            task, completed=k, description=f"value iteration, last step {distance:.1e}"
        ),
    )


COMPUTE = {"toy": _compute_toy, "operator": _compute_operator, "iteration": _compute_iteration}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Make a figure of the paper: compute its data or collect them from runs, save and draw."""

    name: tyro.conf.Positional[FigureName]
    """Computed: toy (fig. 1, two projections of the same data), operator (fig. 2, the five steps of
    Ω_M T^π), iteration (value and bonus iteration on small MDPs). From RUNS: radar and scores
    (bsuite by capability, by experiment), learning-curves, regret (deep sea by size), statistics
    (section 5.1), coverage (deep sea over episodes), ensemble-size (BDQN+P), heatmaps, vizdoom."""
    runs: tyro.conf.Positional[Path | None] = None
    """Folder that `winkel train`, a sweep or `winkel rollout --out` has filled."""
    out: Path = Path("figures")
    """Folder for the pictures and the arrays behind them (NAME.npz)."""
    data: Path | None = None
    """Draw from this .npz file of an earlier call instead of computing or reading runs."""
    unfinished: bool = False
    """Also show runs that have not ended, up to their newest checkpoint, in learning-curves and
    vizdoom; the figure says so."""
    formats: tuple[Format, ...] = ("png", "pdf")
    """File formats."""

    def run(self) -> None:
        """Write the files and name them."""
        if not self.formats:
            raise InputError("need at least one format of png, pdf, svg, got none")
        if self.unfinished and self.name not in CURVES:
            raise InputError(
                f"need {' or '.join(CURVES)} for --unfinished, since others are of whole runs, "
                f"got {self.name}"
            )
        if self.unfinished and self.runs is None:
            raise InputError(f"need a folder of runs for --unfinished, got none for {self.name}")
        written = make_figure(
            self.name, self.out, self.data, self.formats, self.runs, unfinished=self.unfinished
        )
        for path in written:
            say(f"wrote {path}")


def make_figure(
    name: FigureName,
    out: Path,
    data: Path | None,
    formats: tuple[Format, ...],
    runs: Path | None = None,
    *,
    unfinished: bool = False,
) -> list[Path]:
    """Compute, collect or load, then save and draw one figure; the files written."""
    figure = FIGURES.get(name) or RUN_FIGURES[name]
    _check_source(name, data, runs)
    ensure_folder(out)
    written = []
    if data is None:
        results = _results(name, runs, unfinished)
        written.append(out / f"{name}.npz")
        save_arrays(written[0], results)
    else:
        results = load_all(data) | load_arrays(data, figure.NEEDS)
    for note in results.get("notes", ()):
        say(f"note: {note}")
    with style.paper_style():
        return written + style.save(figure.draw(results), out / name, formats)


def _check_source(name: str, data: Path | None, runs: Path | None) -> None:
    """Where a figure's data come from is one thing, and one that it has."""
    if runs is not None and data is not None:
        raise InputError(f"need a folder of runs or --data, got both, {runs} and {data}")
    if runs is not None and name in COMPUTE:
        raise InputError(f"{name} is computed and needs no runs, got {runs}")
    if runs is None and data is None and name in COLLECTORS:
        raise InputError(f"need a folder of runs: winkel figure {name} RUNS")


def _results(name: str, runs: Path | None, unfinished: bool) -> dict[str, np.ndarray]:
    if runs is None:
        with progress_bar() as progress:
            return COMPUTE[name](progress)
    found = read_results(runs, unfinished=unfinished)
    try:
        return COLLECTORS[name](found)
    except InputError as error:
        raise InputError(f"{error} in {runs}") from error
