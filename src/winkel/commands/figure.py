"""`winkel figure` and `winkel report`: results of runs as a figure, or all of them as a page."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from winkel.commands.options import console, make_table, say
from winkel.errors import InputError
from winkel.figures import COMPUTED, FIGURES, style
from winkel.files import Arrays, ensure_folder, save_arrays
from winkel.report.page import number, plus_minus, write_report
from winkel.runs.results import read_results
from winkel.training.programs import start_jax

Format = Literal["png", "pdf", "svg"]
if TYPE_CHECKING:
    FigureName = str
else:
    FigureName = Literal[tuple(FIGURES)]
CURVES = "learning-curves"
"""The figure over time, which can show a run that has not ended."""

_COLUMNS = ("agent", "seeds", "episodes", "steps", "final return", "greedy return", "first goal")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Make a figure: compute its data or collect them from runs, save and draw."""

    name: tyro.conf.Positional[FigureName]
    """Computed: toy (fig. 1, two projections of the same data), operator (fig. 2, the five steps of
    Ω_M T^π), iteration (value and bonus iteration on small MDPs). From RUNS: radar and scores
    (bsuite by capability, by experiment), learning-curves (returns in any environment), regret
    (deep sea by size), statistics (section 6.1), coverage (deep sea over episodes), ensemble-size
    (BDQN+P), heatmaps."""
    runs: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUNS]")] = None
    """Folder that `winkel train`, a sweep or `winkel rollout --out` has filled."""
    out: Path = Path("figures")
    """Folder for the pictures and the arrays behind them (NAME.npz)."""
    unfinished: bool = False
    """Also show runs that have not ended, up to their newest checkpoint, in learning-curves;
    the figure says so."""
    over: Literal["steps", "episodes"] | None = None
    """Show learning-curves over environment steps or over episodes; by default over
    what the budget of the runs counts."""
    returns: Literal["greedy", "training"] | None = None
    """Returns of greedy evaluations or of training in learning-curves; by default
    greedy where all runs of an environment have evaluations."""
    formats: tuple[Format, ...] = ("png", "pdf")
    """File formats."""

    def run(self) -> None:
        """Write the files and name them."""
        if self.runs is not None and self.name in COMPUTED:
            raise InputError(f"{self.name} is computed and needs no runs, got {self.runs}")
        if self.runs is None and self.name not in COMPUTED:
            raise InputError(f"need a folder of runs: winkel figure {self.name} RUNS")
        if self.name != CURVES and (self.unfinished or self.over or self.returns):
            raise InputError(
                f"need {CURVES} for --unfinished, --over and --returns, got {self.name}"
            )
        if self.runs is None:
            start_jax()
        ensure_folder(self.out)
        arrays = self._make_arrays()
        for note in arrays.get("notes", ()):
            say(f"note: {note}")
        for path in write_figure(
            FIGURES[self.name].draw, arrays, self.out / self.name, self.formats
        ):
            say(f"wrote {path}")

    def _make_arrays(self) -> Arrays:
        if self.runs is None:
            return FIGURES[self.name].compute()
        results = read_results(self.runs, unfinished=self.unfinished)
        try:
            options = (self.over, self.returns) if self.name == CURVES else ()
            return FIGURES[self.name].collect(results, *options)
        except InputError as error:
            raise InputError(f"{error} in {self.runs}") from error


def write_figure(
    draw: Callable[[Arrays], Any], arrays: Arrays, stem: Path, formats: tuple[Format, ...]
) -> list[Path]:
    """Save arrays and the figure that `draw` makes of them; return the files written."""
    data = stem.with_suffix(".npz")
    save_arrays(data, arrays)
    with style.paper_style():
        return [data, *style.save(draw(arrays), stem, formats)]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a page: returns, curves, the paper's claims with verdicts, scores, figures, records."""

    runs: tyro.conf.Positional[Path]
    """Folder that `winkel train`, a sweep or `winkel rollout --out` has filled."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report")
    """Folder for the page, index.html; one that is there is replaced."""

    def run(self) -> None:
        """Write the page; print its returns, where it is and the verdicts on the claims."""
        page, returns, counts = write_report(self.runs, self.out)
        say("Means over seeds ± half of a 95 % interval; first goal: the median episode")
        for env, rows in itertools.groupby(returns, lambda row: row["env"]):
            console.print(
                make_table(_COLUMNS, [_write(row) for row in rows], title=env), crop=False
            )
        say(f"wrote {page}")
        verdicts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))
        say(f"claims: {verdicts or 'none of the paper can be judged on these runs'}")


def _write(row: dict[str, Any]) -> list[str]:
    """Write a row of the table; a cell without a number is empty."""
    counts = [str(row["seeds"]), *(f"{max(row[name]):,}" for name in ("episodes", "steps"))]
    returns = ["" if row[name] is None else plus_minus(row[name]) for name in ("final", "last")]
    first = "" if row["first"] is None else number(row["first"].estimate, 0)
    return [row["agent"], *counts, *returns, first]
