"""Reports as one HTML file with style, script and figures in it, which requests nothing else."""

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from winkel.errors import InputError
from winkel.figures import COLLECTED, FIGURES
from winkel.figures.style import agent_style
from winkel.files import ensure_folder, write_text
from winkel.report import tables
from winkel.report.claims import (
    CLAIMS,
    FEWEST_SEEDS,
    VERDICTS,
    Assessment,
    assess,
    load_claims,
    summarize_missing,
)
from winkel.report.measures import REPETITIONS
from winkel.report.pictures import THEMED, svg_of, themed
from winkel.runs.results import Results, read_results

PAGE = "index.html"


def write_report(runs: Path, out: Path, claims: Path = CLAIMS) -> tuple[Path, list[Assessment]]:
    """Read runs, assess the claims and write the page; return its path and the assessments."""
    results = read_results(runs)
    if out.exists() and not out.is_dir():
        raise InputError(f"need a folder to write to, got the file {out}")
    ensure_folder(out)
    assessments = [assess(claim, results) for claim in load_claims(claims)]
    page = out / PAGE
    write_text(page, render_report(results, assessments, runs, out))
    return page, assessments


def render_report(
    results: Results, assessments: Sequence[Assessment], runs: Path, out: Path
) -> str:
    """Render the whole page; the same runs give the same page."""
    figures, absent = _draw_figures(results)
    try:
        scores, no_scores = tables.score_tables(results), ""
    except InputError as error:
        scores, no_scores = None, str(error).strip(" ,")
    quoted_runs = shlex.quote(str(runs))
    return render(
        "report.html",
        summary=_summarize(results),
        problems=results.problems,
        assessments=assessments,
        counts=Counter(found.verdict for found in assessments),
        scores=scores,
        no_scores=no_scores,
        deep_sea=tables.deep_sea_rows(results),
        figures=figures,
        absent=absent,
        runs=quoted_runs,
        settings=tables.settings_rows(results),
        provenance=tables.provenance(results),
        records=tables.record_rows(results.records, out),
        command=f"winkel report {quoted_runs} -o {shlex.quote(str(out))}",
    )


def _draw_figures(results: Results) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Draw all figures that the runs allow; return the others with what they lack, by title."""
    shown, absent = [], {}
    for name in COLLECTED:
        figure = FIGURES[name]
        try:
            arrays = figure.collect(results)
        except InputError as error:
            absent[figure.TITLE] = str(error).strip(" ,")
            continue
        notes = arrays["notes"].tolist()
        arrays["notes"] = arrays["notes"][:0]  # the page lists them
        svg = svg_of(partial(figure.draw, arrays), name, figure.TITLE)
        shown.append({"name": name, "title": figure.TITLE, "svg": svg, "notes": notes})
    return shown, absent


def _summarize(results: Results) -> str:
    """Count runs, agents, environments, seeds, steps and, where recorded, time."""
    records = results.records
    seconds = sum(float(sweep.get("seconds", 0.0)) for sweep in results.sweeps)
    parts = (
        plural(len(records), "run"),
        plural(len(results.agents()), "agent"),
        plural(len({r.config["env"] for r in records}), "environment"),
        plural(len({r.config["seed"] for r in records}), "seed"),
        plural(sum(int(r.episodes["length"].sum()) for r in records), "environment step"),
        f"{seconds / 60:,.1f} minutes of sweeps" if seconds else "wall-clock not recorded",
    )
    return " · ".join(parts)


# Templates


def render(template: str, **values: Any) -> str:
    """Fill a template of `report/templates`; all values are escaped but `markupsafe.Markup`."""
    return _ENVIRONMENT.get_template(template).render(**values)


def agent(name: str) -> Markup:
    """Write an agent's name as figures show it, with the colour of its lines."""
    style = agent_style(name)
    return Markup(
        '<span class="agent" title="{}"><i class="dot" style="background:{}"></i>{}</span>'
    ).format(name, themed(style.colour), style.label)


def number(value: int | float, digits: int = 2) -> str:
    """Write a number such as 0.52 or 1,204; infinity is ∞ and NaN is –."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:,.{digits}f}".replace("-", "−")


def number_range(values: Sequence[int]) -> str:
    """Write '3' or '3–10'."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


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
_ENVIRONMENT.filters |= {
    "agent": agent,
    "number": number,
    "number_range": number_range,
    "sort_key": sort_key,
    "summarize_missing": summarize_missing,
    "themed": themed,
}
_ENVIRONMENT.globals |= {
    "FEWEST_SEEDS": FEWEST_SEEDS,
    "REPETITIONS": REPETITIONS,
    "THEMED": THEMED,
    "VERDICTS": VERDICTS,
    "agent_style": agent_style,
    "nan": math.nan,
    "plural": plural,
    "zip": zip,
}
