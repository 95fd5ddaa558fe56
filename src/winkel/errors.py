"""The one exception that means: the input is wrong, not the program."""

import operator
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
