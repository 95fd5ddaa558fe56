"""One HTML file that holds everything: style, script and figures. It asks for nothing elsewhere."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from winkel.errors import InputError
from winkel.files import ensure_folder
from winkel.report.claims import CLAIMS, Judged, judge, load_claims
from winkel.report.html import Html, bullets, details, element, join, paragraph, plural, section
from winkel.report.pictures import figures_section
from winkel.report.provenance import provenance_section, settings_section
from winkel.report.tables import scores_section, sea_section
from winkel.report.theme import variables
from winkel.report.verdicts import claims_section, tally
from winkel.runs.folder import write_text
from winkel.runs.results import Results, read_results

PAGE = "index.html"

_HERE = Path(__file__).parent
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_SECTIONS = {
    "problems": "Problems",
    "claims": "Claims",
    "scores": "bsuite",
    "deep-sea": "Deep sea",
    "figures": "Figures",
    "settings": "Settings",
    "provenance": "Provenance",
}
_FEW_PROBLEMS = 12


def write_report(runs: Path, out: Path, claims: Path = CLAIMS) -> tuple[Path, list[Judged]]:
    """Read runs, judge the claims and write the page: where it is, and the verdicts."""
    results = read_results(runs)
    if out.exists() and not out.is_dir():
        raise InputError(f"need a folder to write to, got the file {out}")
    ensure_folder(out)
    judged = [judge(claim, results) for claim in load_claims(claims)]
    page = out / PAGE
    write_text(page, render(results, judged, runs, out))
    return page, judged


def render(results: Results, judged: Sequence[Judged], runs: Path, out: Path) -> str:
    """The whole page, the same for the same runs."""
    command = f"winkel report {shlex.quote(str(runs))} -o {shlex.quote(str(out))}"
    main = [
        _problems(results),
        claims_section(judged),
        scores_section(results),
        sea_section(results),
        figures_section(results, shlex.quote(str(runs))),
        settings_section(results),
        provenance_section(results, out, command),
    ]
    return document("winkel: reproduction report", _header(results, judged), main)


def document(title: str, header: Html, sections: Sequence[Html]) -> str:
    """A page in itself, in the style of all."""
    body = element(
        "body",
        header,
        element("main", *sections),
        element("script", Html((_HERE / "page.js").read_text(encoding="utf-8"))),
    )
    return f"<!DOCTYPE html>\n{element('html', _head(title), body, lang='en')}\n"


def _head(title: str) -> Html:
    css = variables() + (_HERE / "style.css").read_text(encoding="utf-8")
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": _POLICY}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Html(css)),
    )


def _header(results: Results, judged: Sequence[Judged]) -> Html:
    links = [element("a", text, href=f"#{anchor}") for anchor, text in _SECTIONS.items()]
    return element(
        "header",
        element("button", "dark", id="theme", type="button", aria_label="light or dark"),
        element("h1", "Reproduction report"),
        paragraph(
            element("em", "Diverse Projection Ensembles for Distributional RL"),
            " (Zanger, Böhmer and Spaan, ICLR 2024), by winkel",
        ),
        paragraph(_summary(results), class_="summary"),
        paragraph(tally(judged), class_="tally"),
        element("nav", *links),
    )


def _summary(results: Results) -> str:
    """Runs, agents, environments, seeds and, where recorded, time."""
    records = results.records
    seeds = {r.config["seed"] for r in records}
    environments = {r.config["env"] for r in records}
    steps = sum(int(r.episodes["length"].sum()) for r in records)
    seconds = sum(float(sweep.get("seconds", 0.0)) for sweep in results.sweeps)
    clock = f"{seconds / 60:,.1f} minutes of sweeps" if seconds else "wall-clock not recorded"
    parts = (
        plural(len(records), "run"),
        plural(len(results.agents()), "agent"),
        plural(len(environments), "environment"),
        plural(len(seeds), "seed"),
        plural(steps, "environment step"),
        clock,
    )
    return " · ".join(parts)


def _problems(results: Results) -> Html:
    """First of all what is wrong with the runs."""
    lines = results.problems
    if not lines:
        text = "None: every run has ended well, with one version, and agents have equal seeds."
        return section("Problems", paragraph(text, class_="good"), anchor="problems")
    first, rest = lines[:_FEW_PROBLEMS], lines[_FEW_PROBLEMS:]
    more = details(f"and {len(rest):,} more", bullets(rest)) if rest else Html("")
    return section(
        "Problems",
        element(
            "div",
            paragraph(f"{plural(len(lines), 'line')} to know before any average is read:"),
            join([bullets(first), more]),
            class_="problems",
        ),
        anchor="problems",
    )
