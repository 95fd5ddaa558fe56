"""The table of claims: what the paper says, what we measure, and whether that is the same."""

import math
from collections import Counter
from collections.abc import Sequence

from winkel.figures.style import agent_style
from winkel.report.claims import FEWEST_SEEDS, Judged, Outcome, Verdict, in_short
from winkel.report.html import (
    Cell,
    Html,
    breakable,
    details,
    element,
    interval,
    join,
    paragraph,
    plural,
    section,
    table,
)
from winkel.report.measures import Part
from winkel.report.measures.common import REPETITIONS

_ORDER: tuple[Verdict, ...] = ("reproduced", "not reproduced", "untested")
_WIDTH, _HEIGHT = 150.0, 16.0


def claims_section(judged: Sequence[Judged]) -> Html:
    """All claims, in the paper's order."""
    return section(
        "Claim by claim",
        paragraph(
            "Seeds are the unit of replication. Intervals are 95 % percentile bootstraps over "
            f"seeds ({REPETITIONS:,} resamples, generator seeded with 0; Wilson's for shares). "
            "Statements, measures and rules are one file, ",
            element("code", "claims.toml"),
            f". A rule must hold in every row, and a verdict needs {FEWEST_SEEDS} seeds. Where our "
            "experiment is smaller than the paper's, the verdict says so (▽).",
        ),
        table(
            ("claim", "measured", "seeds", "verdict"),
            [_row(found) for found in judged],
            caption="What the paper claims, and what these runs say",
            class_="claims",
        ),
        anchor="claims",
    )


def tally(judged: Sequence[Judged]) -> Html:
    """'3 reproduced, 1 not reproduced, 7 untested', as chips."""
    counts = Counter(found.verdict for found in judged)
    return join([_chip(verdict, f"{counts[verdict]} {verdict}") for verdict in _ORDER], " ")


def _row(found: Judged) -> list[Cell | str]:
    claim = found.claim
    statement = join(
        [
            element("p", claim.statement, class_="statement"),
            element("small", f"{claim.source} · ", element("code", claim.id)),
        ]
    )
    seeds = sorted({part.seeds for part in found.found.parts if part.judged})
    fewest = found.found.scale.get("seeds", 0)
    rank = float(_ORDER.index(found.verdict))
    return [
        Cell(statement),
        Cell(_measured(found)),
        Cell("; ".join(seeds) or "–", float(fewest), numeric=True),
        Cell(_verdict(found), rank),
    ]


def _verdict(found: Judged) -> Html:
    scaled = bool(found.deviations) and found.verdict != "untested"
    lines = [_chip(found.verdict, found.verdict, scaled=scaled)]
    if found.reason:
        lines.append(element("p", breakable(found.reason), class_="reason"))
    if found.verdict != "untested" and found.found.missing:
        also = breakable(f"also missing: {in_short(found.found.missing)}")
        lines.append(element("p", also, class_="reason"))
    if found.deviations:
        lines.append(element("p", f"smaller scale: {', '.join(found.deviations)}", class_="scale"))
    return join(lines)


def _measured(found: Judged) -> Html:
    claim = found.claim
    pairs = list(zip(found.found.parts, found.outcomes, strict=True))
    judged = [_line(found, part, outcome) for part, outcome in pairs if part.judged]
    others = [_line(found, part, outcome) for part, outcome in pairs if not part.judged]
    children: list[str] = []
    if judged:
        children.append(element("div", *judged, class_="parts"))
    if others:
        children.append(details("each size", element("div", *others, class_="parts")))
    if found.found.notes:
        notes = element("ul", *(element("li", note) for note in found.found.notes))
        children.append(details(f"{plural(len(found.found.notes), 'note')} on the data", notes))
    rule = element("small", claim.what, "; rule: ", element("em", claim.rule_in_words()))
    return join([*children, element("p", rule, class_="what")])


def _line(found: Judged, part: Part, outcome: Outcome) -> Html:
    return element(
        "div",
        element("span", _label(part.label), class_="label"),
        _forest(found, part, outcome),
        interval(part.interval),
        class_=f"part {outcome}",
    )


def _label(label: str) -> str:
    """With an agent's name as figures have it."""
    name, comma, rest = label.partition(", ")
    return f"{agent_style(name).label}{comma}{rest}"


def _forest(found: Judged, part: Part, outcome: Outcome) -> Html:
    """The interval as a line with a dot, over the numbers of the rule."""
    low, high = found.claim.axis

    def x(value: float) -> str:
        share = (min(max(value, low), high) - low) / (high - low)
        return f"{4 + share * (_WIDTH - 8):.1f}"

    middle = f"{_HEIGHT / 2:g}"
    shapes = [element("line", x1="0", x2=f"{_WIDTH:g}", y1=middle, y2=middle, class_="axis")]
    for value in _thresholds(found):
        shapes.append(element("line", x1=x(value), x2=x(value), y1="0", y2="16", class_="rule"))
    estimate, lower, upper = part.interval
    if not math.isnan(lower):
        shapes.append(
            element("line", x1=x(lower), x2=x(upper), y1=middle, y2=middle, class_="range")
        )
    shapes.append(element("circle", cx=x(estimate), cy=middle, r="3.5", class_="estimate"))
    words = f"{part.label}: {estimate:.2f}, {outcome}"
    return element(
        "svg",
        *shapes,
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
        class_="forest",
        role="img",
        aria_label=words,
    )


def _thresholds(found: Judged) -> list[float]:
    numbers: list[float] = []
    for value in found.claim.rule.values():
        numbers += value if isinstance(value, list) else [value]
    return numbers


def _chip(verdict: str, text: str, *, scaled: bool = False) -> Html:
    kind = f"chip {verdict.replace(' ', '-')}{' scaled' if scaled else ''}"
    return element("span", text, class_=kind)
