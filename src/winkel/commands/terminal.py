"""The terminal that all commands print to."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave a pipe that nobody reads to `cli.main`."""
        raise BrokenPipeError


console = _Console()


def say(text: str) -> None:
    """Print a line without colours and wrapping."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def progress_bar() -> Progress:
    """Make a progress bar with counts and the time left."""
    return Progress(
        TextColumn("{task.description:38}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def exit_if_failed(what: str, reasons: Sequence[str], total: int, allowed: bool) -> None:
    """Count what has failed in a line on standard error; exit with status 1 unless allowed."""
    if reasons:
        sys.stderr.write(
            f"winkel: {len(reasons)} of {total} {what} failed; the first: {reasons[0]}\n"
        )
        if not allowed:
            raise SystemExit(1)


def make_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None
) -> Table:
    """Make a table of numbers. In a narrow terminal words are wrapped, but not cut."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
        words = " ".join([column, *cells]).split()
        table.add_column(column, justify="right", min_width=max(map(len, words), default=0))
    for row in rows:
        table.add_row(*row)
    return table
