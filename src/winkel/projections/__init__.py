"""Projections: one file per pair of a representation and the map into it.

`PROJECTIONS` is the table that command line, agents, documentation and contract tests read. A new
projection is one file beside these and one line in it.
"""

from winkel.projections.base import Projection
from winkel.projections.categorical import Categorical
from winkel.projections.expectile import Expectile
from winkel.projections.quantile import Quantile

PROJECTIONS: dict[str, type[Projection]] = {
    "categorical": Categorical,
    "expectile": Expectile,
    "quantile": Quantile,
}

__all__ = ["PROJECTIONS", "Categorical", "Expectile", "Projection", "Quantile"]
