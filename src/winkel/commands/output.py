"""How commands end: failures and errors as lines on standard error, standard output written."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn


def warn(text: str) -> None:
    """Print a line on standard error."""
    print(f"winkel: {text}", file=sys.stderr)  # noqa: T201


def exit_if_failed(what: str, reasons: Sequence[str], total: int, allowed: bool) -> None:
    """Count what has failed in a line on standard error; exit with status 1 unless allowed."""
    if reasons:
        warn(f"{len(reasons)} of {total} {what} failed; the first: {reasons[0]}")
        if not allowed:
            raise SystemExit(1)


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """End the process, with a line on standard error, if standard output cannot be written."""
    if sys.stdout is None:
        warn("error: standard output is closed")
        raise SystemExit(2)
    output: Any = CheckedOutput(sys.stdout)
    with contextlib.redirect_stdout(output):
        try:
            yield
        finally:
            output.flush()


class CheckedOutput:
    """A file whose errors end the process: quietly if it is a pipe that nobody reads any more."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write text."""
        try:
            return self._file.write(text)
        except OSError as error:
            self._end(error)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self._file.flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> NoReturn:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())  # for the flush at exit
        if isinstance(error, BrokenPipeError):
            raise SystemExit(128 + signal.SIGPIPE) from None
        warn(f"error: cannot write to standard output: {error.strerror}")
        raise SystemExit(2) from None
