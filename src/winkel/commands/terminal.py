"""The terminal that all commands print to."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

console = Console()


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


def make_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None
) -> Table:
    """Make a table of numbers; without a title it has no lines."""
    table = Table(title=title, title_justify="left")
    if title is None:
        table.box, table.padding = None, (0, 2, 0, 0)
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    return table
