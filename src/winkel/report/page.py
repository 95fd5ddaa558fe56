"""Reports as one HTML file with style, script and figures in it, which requests nothing else."""

import io
import itertools
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from winkel.analysis.statistics import Interval
from winkel.errors import InputError
from winkel.figures import COLLECTED, FIGURES, style
from winkel.files import ensure_folder, write_text
from winkel.report import claims, comparisons, tables
from winkel.runs.results import Results, read_results

PAGE = "index.html"
THEMED = {
    "#222222": ("ink", "#e7e5df"),
    "#ffffff": ("paper", "#1a1c20"),
    "#9a9a9a": ("faint", "#83858a"),
    "#0072b2": ("quantile", "#6f93f5"),
}
"""Colours of figures, with the name of the page's CSS variable and the colour in the dark theme."""


def write_report(runs: Path, out: Path) -> tuple[Path, list[tables.Table], Counter[str]]:
    """Read runs and write the page; return its path, the table of returns and the verdicts.

    The same runs give the same page. No claim is assessed if none has anything to compare.
    """
    results = read_results(runs)
    ensure_folder(out)
    assessments = [(claim, *claims.assess(claim, results)) for claim in claims.load_claims()]
    if not any(measured.comparisons for _, measured, _, _ in assessments):
        assessments = []  # no claim if none has anything to compare
    counts = Counter(str(verdict) for _, _, verdict, _ in assessments)
    figures, absent = _draw_figures(results)
    by_agent = itertools.groupby(results.records, lambda r: (r.config["env"], r.config["agent"]))
    returns = tables.return_rows(results)
    try:
        scores = tables.score_tables(results)
    except InputError:  # without runs of bsuite
        scores = None
    text = render(
        "report.html",
        results=results,
        returns=returns,
        assessments=assessments,
        counts=counts,
        scores=scores,
        figures=figures,
        absent=absent,
        runs=shlex.quote(str(runs)),
        out=shlex.quote(str(out)),
        records=[list(group) for _, group in by_agent],
        link=partial(tables.link, out=out),
    )
    write_text(out / PAGE, text)
    return out / PAGE, returns, counts


def _draw_figures(results: Results) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Draw all figures that the runs allow, by name; the others with what they lack, by title."""
    shown, absent = {}, {}
    for name in COLLECTED:
        figure = FIGURES[name]
        try:
            arrays = figure.collect(results)
        except InputError as error:
            absent[figure.TITLE] = str(error)
        else:
            notes, arrays["notes"] = arrays["notes"].tolist(), arrays["notes"][:0]
            svg = svg_of(partial(figure.draw, arrays), name, figure.TITLE)
            shown[name] = {"title": figure.TITLE, "svg": svg, "notes": notes}
    return shown, absent


def themed(colour: str) -> str:
    """Write a colour of a figure as CSS: a variable if it depends on the theme."""
    plain = "#222222" if colour == "#000000" else colour.lower()
    return f"var(--{THEMED[plain][0]})" if plain in THEMED else colour


def svg_of(draw: Callable[[], Figure], name: str, title: str) -> Markup:
    """Draw a figure in the style of the paper, as an <svg> element for a template.

    Letters are paths, because the width of a reader's fonts is unknown. Ids begin with the name, so
    that figures share none.
    """
    file = io.StringIO()
    with style.paper_style(), mpl.rc_context({"svg.fonttype": "path"}):
        figure = draw()
        figure.savefig(file, format="svg", metadata={"Title": title, "Date": None})
    _, _, content = file.getvalue().partition("<svg ")
    content = re.sub(r"<(metadata|style).*?</\1>", "", content, flags=re.DOTALL)
    content = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", content)
    content = re.sub(r"(?<=: )#[0-9a-f]{6}", lambda found: themed(found[0]), content)
    width = 96 * figure.get_figwidth()
    return Markup(f'<svg role="img" style="--natural:{width:.0f}px" {content}')


def render(template: str, **values: Any) -> str:
    """Fill a template of `report/templates`; all values are escaped but `markupsafe.Markup`."""
    return _ENVIRONMENT.get_template(template).render(**values)


def agent(name: str) -> Markup:
    """Write an agent's name as figures show it, with the colour of its lines."""
    line = style.agent_style(name)
    return Markup(
        '<span class="agent" title="{}"><i class="dot" style="background:{}"></i>{}</span>'
    ).format(name, themed(line.colour), line.label)


def number(value: int | float, digits: int = 2) -> str:
    """Write a number such as 0.52 or 1,204; infinity is ∞ and NaN is –."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:,.{digits}f}".replace("-", "−")


def plus_minus(found: Interval) -> str:
    """Write the mean of seeds and half of its Student t interval, '148 ± 66', in three digits."""
    digits = 0
    if largest := max(abs(found.estimate), found.high - found.estimate):
        digits = min(4, max(0, 2 - math.floor(math.log10(largest))))
    mean = number(found.estimate, digits)
    if math.isnan(found.high):
        return mean
    return f"{mean} ± {number(found.high - found.estimate, digits)}"


def plural(count: int, what: str) -> str:
    """Write '1 run' or '2,000 runs'."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def sort_key(value: int | float) -> str:
    """Write a number for the page's sorting script; NaN, which is sorted last, is empty."""
    return "" if math.isnan(value) else f"{value:.10g}"


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {"agent": agent, "number": number, "sort_key": sort_key}
_ENVIRONMENT.globals |= {
    "THEMED": THEMED,
    "agent_style": style.agent_style,
    "claims": claims,
    "comparisons": comparisons,
    "plus_minus": plus_minus,
    "nan": math.nan,
    "plural": plural,
    "tables": tables,
}
