"""Claims of the paper, from `claims.toml`, and whether runs reproduce them.

A claim has one rule for all of its comparisons. It is reproduced when the rule holds in each of
them, not reproduced when one contradicts it or is inconclusive, and untested when runs are missing
(unless what is there contradicts it already) or seeds are few.
"""

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from winkel.analysis.statistics import Interval
from winkel.errors import InputError
from winkel.report.measures import MEASURES, Measured
from winkel.runs.results import Results

Claim = dict[str, Any]
"""One entry of `claims.toml`, which describes the fields."""
Verdict = Literal["reproduced", "not reproduced", "untested"]
Outcome = Literal["holds", "contradicted", "open"]

VERDICTS: tuple[Verdict, ...] = ("reproduced", "not reproduced", "untested")
FEWEST_SEEDS = 5
"""On each side, for a verdict: intervals of fewer are far too narrow."""

RULES = {
    "interval_below": "95 % interval below {}",
    "interval_above": "95 % interval above {}",
    "interval_excludes": "95 % interval without {}",
    "interval_within": "95 % interval within {}",
    "estimate_at_most": "estimate ≤ {}",
    "estimate_at_least": "estimate ≥ {}",
}
"""Kinds of rules, in words."""


def load_claims() -> list[Claim]:
    """Load all claims, in the order of the file."""
    text = Path(__file__).with_name("claims.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["claim"]


def assess(claim: Claim, results: Results) -> tuple[Measured, Verdict, str]:
    """Measure a claim and apply its rule: the verdict, and why unless the claim is reproduced."""
    try:
        measured = MEASURES[claim["measure"]](results, **claim["with"])
    except InputError as error:
        measured = Measured(missing=(str(error).removeprefix("no "),))
    decisive = [
        apply_rule(claim["rule"], one.interval) for one in measured.comparisons if one.decisive
    ]
    seeds = measured.scale.get("seeds", 0)
    if decisive and seeds < FEWEST_SEEDS:
        return measured, "untested", f"needs {FEWEST_SEEDS} seeds or more, has {seeds}"
    if "contradicted" in decisive:
        return measured, "not reproduced", "contradicted"
    if measured.missing or not decisive:
        holds = decisive.count("holds")
        so_far = f"; holds in {holds} of {len(decisive)} measured" if decisive else ""
        needs = summarize_missing(measured.missing) or "runs"
        return measured, "untested", f"needs {needs}{so_far}"
    if "open" in decisive:
        return measured, "not reproduced", "inconclusive"
    return measured, "reproduced", ""


def deviations(claim: Claim, measured: Measured) -> list[str]:
    """Say where our experiment is smaller than the paper's."""
    return [
        f"{name} {'up to ' if name == 'size' else ''}{measured.scale[name]:,} (paper {theirs:,})"
        for name, theirs in claim["paper"].items()
        if measured.comparisons and measured.scale.get(name, theirs) < theirs
    ]


def apply_rule(rule: dict[str, Any], interval: Interval) -> Outcome:
    """Decide whether a rule holds in one comparison, is contradicted, or remains open."""
    estimate, low, high = interval
    if math.isnan(low) or math.isnan(high):
        return "open"
    outcomes = []
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
        outcomes.append("holds" if holds else "contradicted" if contradicted else "open")
    if "contradicted" in outcomes:
        return "contradicted"
    return "open" if "open" in outcomes else "holds"


def summarize_missing(missing: Sequence[str]) -> str:
    """Write 'a by x; a by y' as 'a by x, y'."""
    grouped: dict[str, list[str]] = {}
    for line in missing:
        what, _, who = line.partition(" by ")
        grouped.setdefault(what, []).append(who)
    return "; ".join(what + " by " * any(who) + ", ".join(who) for what, who in grouped.items())
