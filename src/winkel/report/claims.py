"""Claims of the paper, from `claims.toml`, and whether runs reproduce them.

A claim holds when its rule holds in all of its comparisons, does not hold when one contradicts it
or is inconclusive, and is untested when runs are missing (unless what is there contradicts it
already) or seeds are few.
"""

import math
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args

from winkel.analysis.statistics import Interval
from winkel.errors import InputError
from winkel.report.comparisons import Measured
from winkel.report.measures import MEASURES
from winkel.runs.results import Results

Claim = dict[str, Any]
"""One entry of `claims.toml`, which describes the fields."""
Verdict = Literal["holds", "holds in part", "does not hold", "untested"]
Outcome = Literal["holds", "contradicted", "inconclusive"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
FEWEST_SEEDS = 5
"""On each side, for a verdict: intervals of fewer are far too narrow."""


def load_claims() -> list[Claim]:
    """Load all claims, in the order of the file."""
    return tomllib.loads(Path(__file__).with_name("claims.toml").read_text("utf-8"))["claim"]


def assess(claim: Claim, results: Results) -> tuple[Measured, Verdict, str]:
    """Measure a claim and apply its rule: the verdict, and why unless the claim holds.

    A claim holds in part if its rule holds in some comparisons, details included, and not in all.
    """
    try:
        measured = MEASURES[claim["measure"]](results, **claim["with"])
    except InputError as error:
        measured = Measured(missing=(str(error).removeprefix("no "),))
    places: dict[str, list[str]] = {"holds": [], "contradicted": [], "inconclusive": []}
    decisive: list[str] = []
    for one in sorted(measured.comparisons, key=lambda one: not one.decisive):
        outcome = apply_rule(claim["rule"], one.interval)
        if one.decisive or outcome not in decisive:  # details, where they say something else
            places[outcome].append(one.label)
        decisive += [outcome] if one.decisive else []
    seeds = measured.scale.get("seeds", FEWEST_SEEDS)
    if decisive and seeds < FEWEST_SEEDS:
        return measured, "untested", f"needs {FEWEST_SEEDS} seeds or more, has {seeds}"
    if not decisive or (measured.missing and not places["contradicted"]):
        holds = decisive.count("holds")
        so_far = f"; holds in {holds} of {len(decisive)} measured" if decisive else ""
        needs = "; ".join(measured.missing) or "runs"
        return measured, "untested", f"needs {needs}{so_far}"
    if set(decisive) == {"holds"} and not places["contradicted"]:
        return measured, "holds", ""
    if places["holds"]:
        parts = [f"{outcome}: {', '.join(names)}" for outcome, names in places.items() if names]
        return measured, "holds in part", "; ".join(parts)
    return measured, "does not hold", "contradicted" if places["contradicted"] else "inconclusive"


def deviations(claim: Claim, measured: Measured) -> list[str]:
    """Say where our experiment is smaller than the paper's."""
    return [
        f"{name} {'up to ' if name == 'size' else ''}{measured.scale[name]:,} (paper {theirs:,})"
        for name, theirs in claim["paper"].items()
        if measured.comparisons and measured.scale.get(name, theirs) < theirs
    ]


def apply_rule(rule: dict[str, Any], interval: Interval) -> Outcome:
    """Decide whether a rule holds in one comparison."""
    estimate, low, high = interval
    if math.isnan(low) or math.isnan(high):
        return "inconclusive"
    outcomes: list[Outcome] = []
    for name, value in rule.items():
        least, most = value if name == "interval_within" else (value, value)
        holds, contradicted = {
            "interval_below": (high < most, low > most),
            "interval_above": (low > least, high < least),
            "interval_excludes": (not low <= least <= high, False),
            "interval_within": (least <= low and high <= most, high < least or low > most),
            "estimate_at_most": (estimate <= most, low > most),
            # For shares of runs, whose interval reaches 1 only if all runs succeeded.
            "estimate_at_least": (estimate >= least, estimate < least),
        }[name]
        outcomes.append("holds" if holds else "contradicted" if contradicted else "inconclusive")
    return min(outcomes, key=("contradicted", "inconclusive", "holds").index)
