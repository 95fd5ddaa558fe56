"""The one exception that means: the input is wrong, not the program."""

import difflib
import operator
from collections.abc import Iterable
from typing import Any


class InputError(ValueError):
    """Bad input. The message shows the value and says what would be right.

    The command line prints it as one line and exits with a non-zero status.
    """


def require_integer(name: str, value: Any, at_least: int) -> int:
    """The value as an int; raises unless it is a whole number of an integer type ≥ at_least."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or number < at_least:
        raise InputError(f"need {name} >= {at_least}, a whole number, got {value!r}")
    return number


def suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Name what a mistyped name may have meant, for the end of a message."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {', '.join(near)}?" if near else otherwise
