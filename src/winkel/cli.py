"""The command line. Every user error is one line on stderr and exit status 2."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from winkel import __version__
from winkel.errors import InputError
from winkel.experiments.iteration import IterationConfig, iteration
from winkel.experiments.operator import operator
from winkel.experiments.toy import ToyConfig, toy
from winkel.figures import FIGURES, style
from winkel.io.results import ensure_folder, load_arrays, save_arrays
from winkel.projections import PROJECTIONS

console = Console()

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
            console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def make_figure(
    name: FigureName, out: Path, data: Path | None, formats: tuple[Format, ...]
) -> list[Path]:
    """Compute (or load), save and draw one figure; the files written."""
    figure = FIGURES[name]
    written = []
    ensure_folder(out)
    if data is None:
        with _progress() as progress:
            results = COMPUTE[name](progress)
        written.append(out / f"{name}.npz")
        save_arrays(written[0], results)
    else:
        results = load_arrays(data, figure.NEEDS)
    with style.paper_style():
        return written + style.save(figure.draw(results), out / name, formats)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A few minutes' tour: both figures of the theory, value and bonus iteration, a summary."""

    out: Path = Path("demo")
    """Folder for everything that is written."""

    def run(self) -> None:
        """Make every figure, then say what it shows."""
        console.rule("[bold]winkel[/] demo: projection ensembles, exactly", align="left")
        names: tuple[FigureName, ...] = ("operator", "toy", "iteration")
        pictures = {name: make_figure(name, self.out, None, ("png", "pdf"))[1] for name in names}
        _print_summary(self.out, pictures)


def _print_summary(out: Path, pictures: dict[FigureName, Path]) -> None:
    fits = load_arrays(out / "toy.npz", FIGURES["toy"].NEEDS)
    found = load_arrays(out / "iteration.npz", FIGURES["iteration"].NEEDS)
    gap = np.abs(fits["categorical"] - fits["quantile"]).mean(axis=1)
    near = np.abs(fits["grid"][:, None] - fits["x"][None]).min(axis=1) < 0.05
    table = Table(title="What was computed", title_justify="left", show_lines=False)
    table.add_column("quantity")
    table.add_column("value", justify="right")
    rows = (
        ("mean gap between both models' quantiles, at the data", gap[near].mean()),
        ("the same, away from the data", gap[~near].mean()),
        (f"value iteration: w̄₁ of step {len(found['steps'])}", found["steps"][-1]),
        ("value iteration: w̄₁ to the true return distribution", found["to_truth"][-1]),
        ("its bound: mean projection error / (1 − γ)", float(found["residual_bound"])),
        ("the oscillator: w̄₁ of its last step (never goes to 0)", found["oscillation"][-1]),
        (
            "deep sea start: one-step error of an estimate that knows half",
            found["local_error"][0, 0],
        ),
        ("deep sea start: its true error", found["true_error"][0, 0]),
        ("deep sea start: its propagated bonus", found["bonus"][0, 0]),
    )
    for label, value in rows:
        table.add_row(label, f"{value:.3g}")
    console.print(table)
    for path in pictures.values():
        console.print(f"picture: {path}", highlight=False, soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class List:
    """List what can be named on the command line."""

    what: tyro.conf.Positional[Literal["projections", "figures"]]
    """Which table."""

    def run(self) -> None:
        """Print one line for each entry."""
        entries = PROJECTIONS if self.what == "projections" else FIGURES
        for name, entry in entries.items():
            summary = (entry.__doc__ or "").strip().splitlines()[0]
            console.print(f"{name:12} {summary}", highlight=False, soft_wrap=True)


Command = (
    Annotated[Figure, tyro.conf.subcommand("figure")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[List, tyro.conf.subcommand("list")]
)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:38}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `winkel` command. WINKEL_DEBUG=1 shows the traceback of a user error."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        console.print(f"winkel {__version__}", highlight=False)
        return
    command = tyro.cli(Command, prog="winkel", description=_HELP, args=arguments)
    try:
        command.run()
    except InputError as error:
        if os.environ.get("WINKEL_DEBUG"):
            raise
        print(f"winkel: error: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


_HELP = "Deep exploration with distributional reinforcement learning. --version tells the version."
