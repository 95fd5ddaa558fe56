"""The one exception that means: the input is wrong, not the program."""

import difflib
import operator
from collections.abc import Iterable
from typing import Any

LARGEST = 2**31 - 1
"""The largest number of things: JAX counts them with 32 bits."""
LARGEST_SEED = 2**32 - 1
"""Of environments: those of NumPy's legacy generator have 32 bits."""


class InputError(ValueError):
    """Bad input. The message shows the value and says what would be right.

    The command line prints it as one line and exits with a non-zero status.
    """


def require_integer(name: str, value: Any, at_least: int, at_most: int = LARGEST) -> int:
    """The value as an int; raises unless it is of an integer type, ≥ at_least and ≤ at_most."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or number < at_least:
        raise InputError(f"need {name} >= {at_least}, a whole number, got {value!r}")
    if number > at_most:
        raise InputError(f"need {name} <= {at_most}, got {number}")
    return number


def require_type(name: str, value: Any, kind: Any, wanted: str) -> None:
    """Raise unless a value is of a type or of one of several; `wanted` says it in words."""
    if not isinstance(value, kind):
        raise InputError(f"need {wanted} for {name}, got {value!r:.80}")


def suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Name what a mistyped name may have meant, for the end of a message."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {', '.join(near)}?" if near else otherwise
