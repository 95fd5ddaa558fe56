"""The terminal that all commands print to."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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
