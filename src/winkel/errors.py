"""The one exception that means: the input is wrong, not the program."""

import difflib
import importlib
import operator
from collections.abc import Callable, Iterable
from typing import Any

LARGEST = 2**31 - 1
"""The largest number of things: JAX counts them with 32 bits."""
LARGEST_SEED = 2**32 - 1
"""Of environments: those of NumPy's legacy generator have 32 bits."""
SYNONYMS = {
    "learning_rate": ("lr", "alpha", "step_size"),
    "gamma": ("discount",),
    "capacity": ("buffer_size", "replay_size", "memory_size"),
    "burn_in": ("learning_starts", "warmup"),
    "target_period": ("target_update",),
    "clip_norm": ("max_grad_norm",),
    "hidden": ("layers", "hidden_sizes", "units"),
    "num_atoms": ("quantiles",),
    "num_members": ("ensemble_size",),
    "steps": ("timesteps", "total_timesteps", "horizon"),
    "episodes": ("horizon",),
    "seeds": ("seed",),
    "first_seed": ("seed",),
    "figure": ("plot",),
}
"""Names that other libraries use, by winkel's name."""


class InputError(ValueError):
    """Bad input. The message shows the value and says what would be right.

    The command line prints it as one line and exits with a non-zero status.
    """


class MissingDataError(InputError):
    """A data set that an environment needs is not on this machine."""


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


def import_extra(package: str, extra: str) -> Any:
    """Import a package that is installed with one of winkel's extras."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"{package} is missing: pip install 'winkel[{extra}]'") from error


def suggest(
    name: str, known: Iterable[str], otherwise: str, write: Callable[[str], str] = str
) -> str:
    """Name what an unknown name may have meant, for the end of a message.

    Case, - and _ do not matter. `write` writes a known name as the user must.
    """
    plain = _plain(name)
    names = {one: [_plain(word) for word in (one, *SYNONYMS.get(one, ()))] for one in known}
    near = [one for one, words in names.items() if plain in words]
    if not near:
        by_spelling = {_plain(one): one for one in names}
        matches = difflib.get_close_matches(plain, by_spelling, n=3, cutoff=0.5)
        near = [by_spelling[spelling] for spelling in matches]
    return f"did you mean {', '.join(map(write, near))}?" if near else otherwise


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
