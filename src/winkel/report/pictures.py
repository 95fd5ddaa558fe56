"""Figures as inline SVG: one name space for each, and colours that follow the page's theme."""

import io
import re

import matplotlib as mpl

from winkel.errors import InputError
from winkel.experiments.collect import COLLECTORS
from winkel.experiments.collect.common import text
from winkel.figures import RUN_FIGURES, style
from winkel.report.html import Html, bullets, details, element, paragraph, plural, section
from winkel.report.theme import themed
from winkel.runs.results import Results

TITLES = {
    "radar": "bsuite by capability (Fig. 4a)",
    "scores": "bsuite by experiment",
    "learning-curves": "Learning curves (Fig. 10)",
    "regret": "Deep sea: regret by size (Fig. 4b)",
    "statistics": "Deep sea: what a statistic explores (Fig. 3)",
    "coverage": "Deep sea: state-actions seen (Fig. 7b)",
    "ensemble-size": "Deep sea: members of the ensemble (compare Fig. 7a)",
    "heatmaps": "Deep sea: visits, disagreement and bonus (Fig. 9)",
    "vizdoom": "VizDoom (Fig. 5b)",
}

_FEW_NOTES = 3


def figures_section(results: Results, runs: str) -> Html:
    """All figures that the runs allow; of the others what they need."""
    shown, absent = [], []
    for name in COLLECTORS:
        title = TITLES.get(name, name)
        try:
            shown.append(_figure(name, title, results, runs))
        except InputError as error:
            absent.append(element("span", element("b", title), f": no data ({_tidy(str(error))})"))
    parts = shown or [paragraph("None: no figure has its data among these runs.")]
    if absent:
        parts = [*parts, element("h3", "No data"), bullets(absent)]
    return section("Figures", *parts, anchor="figures")


def _figure(name: str, title: str, results: Results, runs: str) -> Html:
    arrays = COLLECTORS[name](results)
    notes = [str(note) for note in arrays["notes"]]
    picture = draw_svg(name, title, arrays | {"notes": text([])})
    below = [element("b", title), ". ", element("code", f"winkel figure {name} {runs}")]
    listed = bullets(notes) if notes else ""
    if len(notes) > _FEW_NOTES:
        listed = details(plural(len(notes), "note"), listed)
    caption = element("figcaption", *below, listed)
    box = element("div", picture, class_="box", tabindex="0", role="region", aria_label=title)
    return element("figure", box, caption, id=f"figure-{name}")


def draw_svg(name: str, title: str, arrays: dict[str, object]) -> Html:
    """The figure as an <svg> element; letters are paths, as readers' fonts differ in width."""
    file = io.StringIO()
    with style.paper_style(), mpl.rc_context({"svg.fonttype": "path"}):
        RUN_FIGURES[name].draw(arrays).savefig(file, format="svg", metadata={"Date": None})
    return inline(file.getvalue(), name, title)


def inline(svg: str, name: str, title: str) -> Html:
    """An SVG file as part of a page: no prologue, ids that no other figure has, themed colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r'xlink:href="#', f'href="#{name}-', svg)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r"(?<=: )#[0-9a-f]{6}", lambda found: themed(found[0]), svg)
    width = re.search(r'width="([0-9.]+)pt"', svg)
    natural = float(width[1]) * 4 / 3 if width else 0.0
    label = element("title", title)
    opening = re.search(r'viewBox="([^"]+)"', svg)
    inside = svg[svg.index(">") + 1 :].removesuffix("\n").removesuffix("</svg>")
    return element(
        "svg",
        label,
        Html(inside),
        viewBox=opening[1] if opening else "",
        role="img",
        aria_label=title,
        style=f"--natural:{natural:.0f}px",
    )


def _tidy(reason: str) -> str:
    return reason.strip(" ,")
