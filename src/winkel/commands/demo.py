"""`winkel demo`: a tour."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from winkel.commands.figure import FigureName, make_figure
from winkel.commands.terminal import console, say
from winkel.figures import FIGURES
from winkel.io.results import load_arrays


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A tour in under a minute: the figures of the theory, both iterations, a summary."""

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
        say(f"picture: {path}")
