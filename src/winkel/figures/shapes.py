"""Checks of arrays for figures of places and of one observation."""

from collections.abc import Mapping

import numpy as np

from winkel.errors import InputError
from winkel.figures import common
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
    """Raise unless the arrays, with notes among them, have their axes."""
    common.check(results, {"notes": "notes", **shapes})


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
