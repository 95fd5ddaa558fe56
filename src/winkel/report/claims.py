"""Claims of the paper, from `claims.toml`, and what runs say about them.

A claim has one rule for all of its parts. It is reproduced when the rule holds for each of them,
not reproduced when one contradicts it or leaves it open, and untested when runs are missing (unless
what is there contradicts it already) or seeds are few.
"""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from winkel.errors import InputError
from winkel.experiments.statistics import Interval
from winkel.report.measures import MEASURES, Found
from winkel.runs.results import Results

Verdict = Literal["reproduced", "not reproduced", "untested"]
Outcome = Literal["holds", "contradicted", "open"]

FEWEST_SEEDS = 5
"""On each side, for a verdict: intervals of fewer are far too narrow."""

CLAIMS = Path(__file__).with_name("claims.toml")
RULES = (
    "interval_below",
    "interval_above",
    "interval_excludes",
    "interval_within",
    "estimate_at_most",
    "estimate_at_least",
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim, as the file has it."""

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
        says = {
            "estimate_at_most": "estimate ≤ {}",
            "estimate_at_least": "estimate ≥ {}",
            "interval_below": "95 % interval below {}",
            "interval_above": "95 % interval above {}",
            "interval_excludes": "95 % interval without {}",
            "interval_within": "95 % interval within {}",
        }
        return " and ".join(says[name].format(_say(value)) for name, value in self.rule.items())


class Judged(NamedTuple):
    """A claim with what was found.

    Attributes:
        claim: which.
        found: the measurements.
        outcomes: of each part.
        verdict: over all parts.
        reason: why, in a few words; empty when reproduced.
        deviations: where our experiment is smaller than the paper's.
    """

    claim: Claim
    found: Found
    outcomes: tuple[Outcome, ...]
    verdict: Verdict
    reason: str
    deviations: tuple[str, ...]


def load_claims(path: Path = CLAIMS) -> list[Claim]:
    """All claims of a file, in its order."""
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


def judge(claim: Claim, results: Results) -> Judged:
    """Measure and compare with the rule."""
    try:
        found = MEASURES[claim.measure](results, **claim.arguments)
    except InputError as error:
        found = Found(missing=(str(error).removeprefix("no ").strip(" ,"),))
    outcomes = tuple(outcome(claim.rule, part.interval) for part in found.parts)
    decisive = [o for o, part in zip(outcomes, found.parts, strict=True) if part.judged]
    verdict, reason = _verdict(decisive, found)
    return Judged(claim, found, outcomes, verdict, reason, _deviations(claim, found))


def outcome(rule: dict[str, Any], interval: Interval) -> Outcome:
    """What one comparison says: the rule holds, its contrary does, or neither is sure."""
    estimate, low, high = interval
    if math.isnan(low) or math.isnan(high):
        return "open"
    outcomes = [_one(name, value, estimate, low, high) for name, value in rule.items()]
    for worst in ("contradicted", "open"):
        if worst in outcomes:
            return worst
    return "holds"


def _one(name: str, value: Any, estimate: float, low: float, high: float) -> Outcome:
    if name == "interval_within":
        within = value[0] <= low and high <= value[1]
        return "holds" if within else "contradicted" if _apart(value, low, high) else "open"
    holds, contradicted = {
        "interval_below": (high < value, low > value),
        "interval_above": (low > value, high < value),
        "interval_excludes": (not low <= value <= high, False),
        "estimate_at_most": (estimate <= value, low > value),
        "estimate_at_least": (estimate >= value, estimate < value),
    }[name]
    return "holds" if holds else "contradicted" if contradicted else "open"


def _apart(within: list[float], low: float, high: float) -> bool:
    return high < within[0] or low > within[1]


def _verdict(decisive: list[Outcome], found: Found) -> tuple[Verdict, str]:
    seeds = found.scale.get("seeds", 0)
    if decisive and seeds < FEWEST_SEEDS:
        return "untested", f"needs {FEWEST_SEEDS} seeds or more, has {seeds}"
    if "contradicted" in decisive:
        return "not reproduced", "contradicted"
    if found.missing or not decisive:
        holds = decisive.count("holds")
        so_far = f"; holds in {holds} of {len(decisive)} measured" if decisive else ""
        return "untested", f"needs {in_short(found.missing) or 'runs'}{so_far}"
    if "open" in decisive:
        return "not reproduced", "inconclusive"
    return "reproduced", ""


def in_short(missing: Sequence[str]) -> str:
    """'a by x; a by y' as 'a by x, y'."""
    grouped: dict[str, list[str]] = {}
    for line in missing:
        what, _, who = line.partition(" by ")
        grouped.setdefault(what, []).append(who)
    return "; ".join(what + " by " * any(who) + ", ".join(who) for what, who in grouped.items())


def _deviations(claim: Claim, found: Found) -> tuple[str, ...]:
    if not found.parts:
        return ()
    return tuple(
        f"{name} {'up to ' if name == 'size' else ''}{found.scale[name]:,} (paper {theirs:,})"
        for name, theirs in claim.paper.items()
        if found.scale.get(name, theirs) < theirs
    )


def _say(value: Any) -> str:
    return f"[{value[0]:g}, {value[1]:g}]" if isinstance(value, list) else f"{value:g}"
