"""Named measures of claims: from runs to comparisons with intervals. `MEASURES` is their table.

A measure looks only at runs of the agents that it compares. It raises `InputError`, or says so in
`missing`, where there are none.
"""

from collections.abc import Callable

from winkel.report.measures.common import Found, Part
from winkel.report.measures.sea import coverage_gap, members_ratio, projection_gap, regret_ratio
from winkel.report.measures.suite import found_share, score_lead

MEASURES: dict[str, Callable[..., Found]] = {
    "score_lead": score_lead,
    "regret_ratio": regret_ratio,
    "projection_gap": projection_gap,
    "coverage_gap": coverage_gap,
    "members_ratio": members_ratio,
    "found_share": found_share,
}

__all__ = ["MEASURES", "Found", "Part"]
