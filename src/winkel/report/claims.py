"""Claims of the paper, from `claims.toml`, and whether runs reproduce them.

A claim has one rule for all of its comparisons. It is reproduced when the rule holds in each of
them, not reproduced when one contradicts it or is inconclusive, and untested when runs are missing
(unless what is there contradicts it already) or seeds are few.
"""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from winkel.analysis.statistics import Interval
from winkel.errors import InputError
from winkel.report.measures import MEASURES, Measured
from winkel.runs.results import Results

Verdict = Literal["reproduced", "not reproduced", "untested"]
Outcome = Literal["holds", "contradicted", "open"]

VERDICTS: tuple[Verdict, ...] = ("reproduced", "not reproduced", "untested")
FEWEST_SEEDS = 5
"""On each side, for a verdict: intervals of fewer are far too narrow."""

CLAIMS = Path(__file__).with_name("claims.toml")
RULES = {
    "interval_below": "95 % interval below {}",
    "interval_above": "95 % interval above {}",
    "interval_excludes": "95 % interval without {}",
    "interval_within": "95 % interval within {}",
    "estimate_at_most": "estimate ≤ {}",
    "estimate_at_least": "estimate ≥ {}",
}
"""Kinds of rules, in words."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the file."""

    id: str
    source: str
    statement: str
    measure: str
    arguments: dict[str, Any]
    what: str
    rule: dict[str, Any]
    axis: tuple[float, float]
    paper: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise InputError(
                f"{self.id}: need a measure of {', '.join(MEASURES)}, got {self.measure}"
            )
        unknown = [name for name in self.rule if name not in RULES]
        if unknown or not self.rule:
            raise InputError(f"{self.id}: need a rule of {', '.join(RULES)}, got {self.rule}")

    def rule_in_words(self) -> str:
        """Such as 'estimate ≤ 0.67 and 95 % interval below 1'."""

        def write(value: Any) -> str:
            return f"[{value[0]:g}, {value[1]:g}]" if isinstance(value, list) else f"{value:g}"

        return " and ".join(RULES[name].format(write(value)) for name, value in self.rule.items())

    def thresholds(self) -> list[float]:
        """The numbers of the rule."""
        values = (v if isinstance(v, list) else [v] for v in self.rule.values())
        return [number for value in values for number in value]


class Assessment(NamedTuple):
    """A claim with what was measured.

    Attributes:
        claim: which claim.
        measured: comparisons, and what is missing.
        outcomes: of each comparison.
        verdict: over all comparisons.
        reason: why, in a few words; empty when reproduced.
        deviations: where our experiment is smaller than the paper's.
    """

    claim: Claim
    measured: Measured
    outcomes: tuple[Outcome, ...]
    verdict: Verdict
    reason: str
    deviations: tuple[str, ...]


def load_claims(path: Path = CLAIMS) -> list[Claim]:
    """Load all claims of a file, in its order."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("claim", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read claims from {path}: {error}") from error
    claims = []
    for entry in entries:
        renamed = {("arguments" if k == "with" else k): v for k, v in entry.items()}
        try:
            claims.append(Claim(**renamed | {"axis": tuple(renamed["axis"])}))
        except (KeyError, TypeError) as error:
            raise InputError(f"claim {entry.get('id')!r} of {path}: {error}") from error
    return claims


def assess(claim: Claim, results: Results) -> Assessment:
    """Measure a claim and apply its rule."""
    try:
        measured = MEASURES[claim.measure](results, **claim.arguments)
    except InputError as error:
        measured = Measured(missing=(str(error).removeprefix("no ").strip(" ,"),))
    outcomes = tuple(apply_rule(claim.rule, one.interval) for one in measured.comparisons)
    decisive = [o for o, one in zip(outcomes, measured.comparisons, strict=True) if one.decisive]
    verdict, reason = _verdict(decisive, measured)
    deviations = tuple(
        f"{name} {'up to ' if name == 'size' else ''}{measured.scale[name]:,} (paper {theirs:,})"
        for name, theirs in claim.paper.items()
        if measured.comparisons and measured.scale.get(name, theirs) < theirs
    )
    return Assessment(claim, measured, outcomes, verdict, reason, deviations)


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
            "estimate_at_least": (estimate >= least, estimate < least),
        }[name]
        outcomes.append("holds" if holds else "contradicted" if contradicted else "open")
    if "contradicted" in outcomes:
        return "contradicted"
    return "open" if "open" in outcomes else "holds"


def _verdict(decisive: list[Outcome], measured: Measured) -> tuple[Verdict, str]:
    seeds = measured.scale.get("seeds", 0)
    if decisive and seeds < FEWEST_SEEDS:
        return "untested", f"needs {FEWEST_SEEDS} seeds or more, has {seeds}"
    if "contradicted" in decisive:
        return "not reproduced", "contradicted"
    if measured.missing or not decisive:
        holds = decisive.count("holds")
        so_far = f"; holds in {holds} of {len(decisive)} measured" if decisive else ""
        return "untested", f"needs {summarize_missing(measured.missing) or 'runs'}{so_far}"
    if "open" in decisive:
        return "not reproduced", "inconclusive"
    return "reproduced", ""


def summarize_missing(missing: Sequence[str]) -> str:
    """Write 'a by x; a by y' as 'a by x, y'."""
    grouped: dict[str, list[str]] = {}
    for line in missing:
        what, _, who = line.partition(" by ")
        grouped.setdefault(what, []).append(who)
    return "; ".join(what + " by " * any(who) + ", ".join(who) for what, who in grouped.items())
