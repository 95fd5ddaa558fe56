"""`winkel figure`: compute, save and draw."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro
from rich.progress import Progress

from winkel.commands.terminal import progress_bar, say
from winkel.errors import InputError
from winkel.experiments.iteration import IterationConfig, iteration
from winkel.experiments.operator import operator
from winkel.experiments.toy import ToyConfig, toy
from winkel.figures import FIGURES, style
from winkel.io.results import ensure_folder, load_arrays, save_arrays

Format = Literal["png", "pdf", "svg"]
FigureName = Literal["toy", "operator", "iteration"]


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
    """Make a figure of the paper: compute its data, save them, draw them."""

    name: tyro.conf.Positional[FigureName]
    """toy: fig. 1, two projections of the same data. operator: fig. 2, the five steps of Ω_M T^π.
    iteration: value and bonus iteration on small MDPs."""
    out: Path = Path("figures")
    """Folder for the pictures and the arrays behind them (NAME.npz)."""
    data: Path | None = None
    """Draw from this .npz file of an earlier call instead of computing."""
    formats: tuple[Format, ...] = ("png", "pdf")
    """File formats."""

    def run(self) -> None:
        """Write the files and name them."""
        if not self.formats:
            raise InputError("need at least one format of png, pdf, svg, got none")
        for path in make_figure(self.name, self.out, self.data, self.formats):
            say(f"wrote {path}")


def make_figure(
    name: FigureName, out: Path, data: Path | None, formats: tuple[Format, ...]
) -> list[Path]:
    """Compute (or load), save and draw one figure; the files written."""
    figure = FIGURES[name]
    written = []
    ensure_folder(out)
    if data is None:
        with progress_bar() as progress:
            results = COMPUTE[name](progress)
        written.append(out / f"{name}.npz")
        save_arrays(written[0], results)
    else:
        results = load_arrays(data, figure.NEEDS)
    with style.paper_style():
        return written + style.save(figure.draw(results), out / name, formats)
