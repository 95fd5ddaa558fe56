"""Projections: one file per pair of a representation and the map into it.

`PROJECTIONS` is the table that command line, agents, documentation and contract tests read. A new
projection is one file beside these and one line in it; `examples/own_projection.py` shows one from
outside the package.
"""

from typing import Any

from winkel.errors import InputError
from winkel.extensions import find
from winkel.projections.base import Projection
from winkel.projections.categorical import Categorical
from winkel.projections.expectile import Expectile
from winkel.projections.quantile import Quantile

PROJECTIONS: dict[str, type[Projection]] = {
    "categorical": Categorical,
    "expectile": Expectile,
    "quantile": Quantile,
}
METHODS = ("spanning", "decode", "project", "loss")
"""What a class from outside must have."""


def find_projection(name: str) -> Any:
    """Return the class of a name: of the table, or from outside (`winkel.extensions`)."""
    if name in PROJECTIONS:
        return PROJECTIONS[name]
    found = find("projections", name, PROJECTIONS)
    missing = [method for method in METHODS if not hasattr(found, method)]
    if missing:
        raise InputError(f"projection {name} lacks {', '.join(missing)}")
    return found


__all__ = ["PROJECTIONS", "Categorical", "Expectile", "Projection", "Quantile", "find_projection"]
