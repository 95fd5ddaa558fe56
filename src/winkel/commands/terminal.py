"""What all commands print with."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

console = Console()


def say(text: str) -> None:
    """A line as it is: no colours, no wrapping."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def progress_bar() -> Progress:
    """A bar with counts and the time left."""
    return Progress(
        TextColumn("{task.description:38}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )
