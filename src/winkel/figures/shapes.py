"""Arrays of a figure that fit together, or one line that says which does not."""

from collections.abc import Mapping

import numpy as np

from winkel.errors import InputError
from winkel.files import Arrays

TEXTS = (
    "agents",
    "devices",
    "experiments",
    "moments",
    "notes",
    "projections",
    "quantities",
    "settings",
    "tags",
)
"""Arrays of names and sentences; all others are of numbers."""


def needs(shapes: Mapping[str, str]) -> dict[str, int]:
    """How many axes each array of numbers has."""
    return {name: len(axes.split()) for name, axes in shapes.items() if name not in TEXTS}


def check(results: Arrays, shapes: Mapping[str, str]) -> None:
    """Raise unless each array has its axes, and axes of one name are equally long and not empty.

    `shapes` are such as {"agents": "agents", "mean": "agents sizes"}.
    """
    lengths: dict[str, tuple[int, str]] = {}
    for name, axes in {"notes": "notes", **shapes}.items():
        if name not in results:
            raise InputError(f"need an array {name}, got {', '.join(results) or 'none'}")
        array = results[name]
        if np.issubdtype(array.dtype, np.str_) != (name in TEXTS):
            wanted = "text" if name in TEXTS else "numbers"
            raise InputError(f"need {wanted} in {name}, got {array.dtype}")
        if array.ndim != len(axes.split()):
            raise InputError(f"need axes [{axes}] of {name}, got shape {list(array.shape)}")
        for axis, length in zip(axes.split(), array.shape, strict=True):
            known, where = lengths.setdefault(axis, (length, name))
            if length != known:
                raise InputError(f"need {known} {axis} in {name}, as in {where}, got {length}")
            if length == 0 and axis != "notes":
                raise InputError(f"need at least one of {axis} in {name}, got none")


def check_visits(results: Arrays) -> list[str]:
    """The titles of panels of visits; raises unless there is one for each, and visits to show."""
    visits, titles = results["visits"], [str(title) for title in results.get("titles", ())]
    if len(titles) != len(visits):
        raise InputError(f"need {len(visits)} titles, as visits have panels, got {len(titles)}")
    if not (np.isfinite(visits) & (visits >= 0)).all() or not visits.any():
        raise InputError("need visits >= 0 and at least one, got others or none")
    left, right, bottom, top = results["extent"]
    if not (left < right and bottom < top):
        raise InputError(
            f"need an extent of left < right, bottom < top, got {results['extent'].tolist()}"
        )
    return titles


def names_of(results: Arrays, key: str, otherwise: list[str]) -> list[str]:
    """Those that the results have under a key, or others, of which there are as many."""
    if key not in results:
        return otherwise
    names = [str(name) for name in np.atleast_1d(results[key])]
    if len(names) != len(otherwise):
        raise InputError(f"need {len(otherwise)} names in {key}, got {len(names)}")
    return names
