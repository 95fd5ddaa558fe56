"""`winkel figure` and `winkel report`: results of runs as a figure, or all of them as a page."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from winkel.commands.options import Runs, console, make_table, say
from winkel.errors import InputError
from winkel.figures import COMPUTED, FIGURES, style
from winkel.files import Arrays, ensure_folder, save_arrays
from winkel.report.page import number, plus_minus, write_report
from winkel.runs.results import read_results
from winkel.training.programs import start_jax

Formats = Annotated[tuple[Literal["png", "pdf", "svg"], ...], tyro.conf.arg(help="File formats.")]
CURVES = "learning-curves"
"""The figure over time, which can show a run that has not ended."""

_COLUMNS = ("agent", "seeds", "episodes", "steps", "final return", "greedy return", "first goal")


def figure(
    name: tyro.conf.Positional[Literal[tuple(FIGURES)]],  # type: ignore[valid-type]
    runs: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUNS]")] = None,
    out: Path = Path("figures"),
    unfinished: bool = False,
    over: Literal["steps", "episodes"] | None = None,
    returns: Literal["greedy", "training"] | None = None,
    formats: Formats = ("png", "pdf"),
) -> None:
    """Make a figure: compute its data or collect them from runs, save and draw.

    Args:
        name: Computed: toy (fig. 1), operator (fig. 2), iteration (value and bonus iteration on
            small MDPs). From RUNS: radar and scores (bsuite by capability, by experiment),
            learning-curves (returns in any environment), regret (deep sea by size), statistics
            (section 6.1), coverage (deep sea over episodes), ensemble-size (BDQN+P), heatmaps.
        runs: Folder that `winkel train`, a sweep or `winkel rollout --out` has filled.
        out: Folder for the pictures and the arrays behind them (NAME.npz).
        unfinished: In learning-curves: also runs that have not ended, up to their last checkpoint.
        over: Time in learning-curves; by default what the budget of the runs counts.
        returns: Returns in learning-curves; by default greedy where all runs have evaluations.
    """
    if runs is not None and name in COMPUTED:
        raise InputError(f"{name} is computed and needs no runs, got {runs}")
    if runs is None and name not in COMPUTED:
        raise InputError(f"need a folder of runs: winkel figure {name} RUNS")
    if name != CURVES and (unfinished or over or returns):
        raise InputError(f"need {CURVES} for --unfinished, --over and --returns, got {name}")
    if runs is None:
        start_jax()
    ensure_folder(out)
    chosen = FIGURES[name]
    if runs is None:
        arrays = chosen.compute()
    else:
        results = read_results(runs, unfinished=unfinished)
        try:
            arrays = chosen.collect(results, *((over, returns) if name == CURVES else ()))
        except InputError as error:
            raise InputError(f"{error} in {runs}") from error
    for note in arrays.get("notes", ()):
        say(f"note: {note}")
    for path in write_figure(chosen.draw, arrays, out / name, formats):
        say(f"wrote {path}")


def write_figure(
    draw: Callable[[Arrays], Any], arrays: Arrays, stem: Path, formats: Formats
) -> list[Path]:
    """Save arrays and the figure that `draw` makes of them; return the files written."""
    data = stem.with_suffix(".npz")
    save_arrays(data, arrays)
    with style.paper_style():
        return [data, *style.save(draw(arrays), stem, formats)]


def report(
    runs: Runs,
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report"),
) -> None:
    """Write a page: returns, curves, the paper's claims with verdicts, scores, figures, records.

    Args:
        out: Folder for the page, index.html; one that is there is replaced.
    """
    page, returns, counts = write_report(runs, out)
    say("Means over seeds ± half of a 95 % interval; first goal: the median episode")
    for env, rows in itertools.groupby(returns, lambda row: row["env"]):
        console.print(make_table(_COLUMNS, [_write(row) for row in rows], title=env), crop=False)
    say(f"wrote {page}")
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))
    say(f"claims: {verdicts or 'none of the paper can be judged on these runs'}")


def _write(row: dict[str, Any]) -> list[str]:
    """Write a row of the table; a cell without a number is empty."""
    counts = [str(row["seeds"]), *(f"{max(row[name]):,}" for name in ("episodes", "steps"))]
    returns = ["" if row[name] is None else plus_minus(row[name]) for name in ("final", "last")]
    first = "" if row["first"] is None else number(row["first"].estimate, 0)
    return [row["agent"], *counts, *returns, first]
