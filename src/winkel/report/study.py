"""The page of a search: who won, by how much, what mattered, and what the search cost."""

import io
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from winkel.figures import style
from winkel.figures.search import Looks, Slice, draw_importance, draw_looks, draw_slices
from winkel.files import ensure_folder
from winkel.report.html import (
    Cell,
    Html,
    agent,
    bullets,
    count_cell,
    details,
    element,
    number,
    paragraph,
    plural,
    section,
    table,
)
from winkel.report.page import PAGE, document
from winkel.report.pictures import inline
from winkel.runs.folder import write_text
from winkel.search.pruning import LOOKS, step_of
from winkel.search.space import Choice, Range, space_from
from winkel.search.summary import Summary, Tried, look_name

_SECTIONS = {
    "winner": "Winner",
    "trials": "Trials",
    "importance": "What mattered",
    "slices": "Slices",
    "looks": "Looks",
    "stopped": "Pruned and failed",
    "budget": "Budget",
}
_FEW = 8


def write_study_page(summary: Summary, folder: Path, study: Path) -> Path:
    """Write `index.html` about a study's folder into a folder; one that is there is replaced."""
    ensure_folder(folder)
    page = folder / PAGE
    write_text(page, render_study(summary, study))
    return page


def render_study(summary: Summary, study: Path) -> str:
    """The whole page, the same for the same study."""
    sections = [
        _winner(summary, study),
        _trials(summary),
        _importance(summary),
        _slices(summary),
        _looks(summary),
        _stopped(summary),
        _budget(summary),
    ]
    return document(f"winkel: search for {summary.agent}", _header(summary), sections)


def _header(summary: Summary) -> Html:
    counts = (
        plural(summary.counted, "trial"),
        f"{len(summary.complete):,} complete",
        f"{len(summary.pruned):,} pruned",
        f"{len(summary.failed):,} failed",
        *([f"{summary.unfinished:,} unfinished"] if summary.unfinished else []),
        plural(summary.updates, "update"),
    )
    return element(
        "header",
        element("button", "dark", id="theme", type="button", aria_label="light or dark"),
        element("h1", "Hyperparameter search"),
        paragraph(agent(summary.agent), f", study {summary.name}, as appendix B.1 of the paper"),
        paragraph(" · ".join(counts), class_="summary"),
        element("nav", *(element("a", t, href=f"#{a}") for a, t in _SECTIONS.items())),
    )


def _winner(summary: Summary, study: Path) -> Html:
    if not summary.complete:
        text = "None yet: no trial has been through all environments."
        return section("Winner", paragraph(text), anchor="winner")
    best = summary.best()
    values = [f"{name} = {value}" for name, value in best.values.items()]
    full = len(summary.environments)
    told = (
        f"Trial {best.number}, final score {best.total:.3f} of at most {full}: the sum of its "
        f"calibrated scores, 1 for the best trial of an environment and 0.5 for an average one."
    )
    rest = [one.total for one in summary.complete]
    margin = (
        f"The complete trials' median is {np.median(rest):.3f}, their lowest {min(rest):.3f}. "
        "Scores are of the seeds that were tuned on. The winner is to be judged on others: "
        "winkel train and winkel sweep take no seed that a search takes."
    )
    command = f"winkel search apply {shlex.quote(str(study))}"
    return section(
        "Winner",
        paragraph(told),
        bullets(values),
        paragraph(margin),
        paragraph("As a preset: ", element("code", command)),
        anchor="winner",
    )


def _trials(summary: Summary) -> Html:
    if not summary.complete:
        return section("Trials", paragraph("None complete."), anchor="trials")
    names = list(summary.identity["space"]["parameters"])
    headers = ["trial", "final score"]
    headers += [where["id"] for where in summary.environments]
    rows = [_row(one, names) for one in summary.complete]
    what = ", ".join(dict.fromkeys(where["score"] for where in summary.environments))
    caption = f"Complete trials, the best first: calibrated scores, in brackets the raw ({what})"
    full = table([*headers, *names, "updates"], rows, caption=caption, class_="wide")
    return section("Trials", full, anchor="trials")


def _row(one: Tried, names: list[str]) -> list[Cell | str]:
    cells: list[Cell | str] = [count_cell(one.number), Cell(number(one.total, 3), one.total, True)]
    for calibrated, raw in zip(one.calibrated, one.raw, strict=True):
        seen = element("small", f"({raw:,.6g})".replace("-", "−"))
        shown = element("span", f"{number(float(calibrated), 3)} ", seen, class_="interval")
        cells.append(Cell(shown, float(calibrated), True))
    cells += [_value(one.values[name]) for name in names]
    return [*cells, count_cell(one.updates)]


def _value(value: Any) -> Cell:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(f"{value:g}" if plain else str(value), float(value) if plain else None, plain)


def _importance(summary: Summary) -> Html:
    if not summary.importance:
        text = "Not told: too few complete trials, or all with one final score."
        return section("What mattered", paragraph(text), anchor="importance")
    names, shares = list(summary.importance), np.array(list(summary.importance.values()))
    figure = _figure(
        "importance",
        "Importance of the parameters",
        lambda: draw_importance(names, shares),
        f"By Optuna's PED-ANOVA, from {plural(len(summary.complete), 'complete trial')}: what sets "
        "the better part apart. Of few trials it says little.",
    )
    return section("What mattered", figure, anchor="importance")


def _slices(summary: Summary) -> Html:
    if not summary.complete:
        return section("Slices", paragraph("No complete trial."), anchor="slices")
    parts = [_slice(summary, n, p) for n, p in _parameters(summary).items()]
    figure = _figure(
        "slices",
        "Final score by parameter",
        lambda: draw_slices(parts),
        "A dot is a complete trial, a bar the median at a value; crosses below are pruned trials, "
        "which have no final score.",
    )
    return section("Slices", figure, anchor="slices")


def _parameters(summary: Summary) -> dict[str, Choice | Range]:
    return dict(space_from(summary.identity["space"]).parameters)


def _slice(summary: Summary, name: str, part: Choice | Range) -> Slice:
    labels = part.labels if isinstance(part, Choice) else ()

    def places(found: list[dict[str, Any]]) -> np.ndarray:
        kept = [values[name] for values in found if name in values]
        return np.array([labels.index(v) if labels else v for v in kept], float)

    return Slice(
        name=name,
        ticks=tuple(f"{v:g}" if isinstance(v, float) else str(v) for v in labels),
        log=isinstance(part, Range) and part.log,
        at=places([one.values for one in summary.complete]),
        scores=np.array([one.total for one in summary.complete]),
        pruned=places([values for _, values, _, _ in summary.pruned]),
    )


def _looks(summary: Summary) -> Html:
    if not summary.looks:
        return section("Looks", paragraph("None yet."), anchor="looks")
    numbers = sorted(summary.looks)
    whole = {one.number for one in summary.complete}
    parts = []
    for environment, where in enumerate(summary.environments):
        steps = [step_of(environment, look) for look in range(1, LOOKS + 1)]
        found = [[summary.looks[n].get(step, np.nan) for step in steps] for n in numbers]
        scores = np.array(found, float)
        scores[~np.isfinite(scores)] = np.nan
        complete = np.array([n in whole for n in numbers])
        parts.append(Looks(f"{where['id']}: {where['score']}", scores, complete))
    best = numbers.index(summary.best().number) if summary.complete else None
    figure = _figure(
        "looks",
        "Scores by look",
        lambda: draw_looks(parts, best),
        "The winner in orange, complete trials in green, pruned ones in grey up to where they were "
        "stopped: below the median of all trials in that environment, those stopped in it before "
        "counted as lower.",
    )
    return section("Looks", figure, anchor="looks")


def _stopped(summary: Summary) -> Html:
    rows: list[list[Cell | str]] = [
        [
            count_cell(trial),
            look_name(summary.environments, step),
            Cell(f"{score:,.6g}".replace("-", "−"), score, True),
            ", ".join(f"{name} = {value}" for name, value in values.items()),
        ]
        for trial, values, step, score in summary.pruned
    ]
    parts: list[Html] = []
    if rows:
        headers = ["trial", "stopped in", "score there", "configuration"]
        shown = table(headers, rows, caption="Pruned trials")
        parts.append(shown if len(rows) <= _FEW else details("all of them", shown))
    if summary.failed:
        parts.append(paragraph("Failed:"))
        parts.append(bullets(f"trial {n}: {why}" for n, why in summary.failed.items()))
    told = f"{plural(len(summary.pruned), 'trial')} pruned, {len(summary.failed):,} failed."
    if summary.died:
        told += f" {plural(summary.died, 'trial')} lost their process and were made anew."
    return section("Pruned and failed", paragraph(told), *parts, anchor="stopped")


def _budget(summary: Summary) -> Html:
    identity = summary.identity
    fixed = [f"{name} = {value}" for name, value in identity["fields"].items()]
    lines = [
        f"Every configuration had the same: {summary.budget()}.",
        f"{plural(summary.counted, 'trial')} for {summary.agent}. Agents are compared fairly where "
        "each had as many trials, in the same environments, with the same values for what they "
        "share; this page is of one agent, and states its part.",
        f"Updates: {summary.updates:,} in all, pruned trials included.",
        f"Fixed: {', '.join(fixed) or 'nothing beyond the defaults'}"
        + (f", preset {identity['space']['preset']}." if identity["space"]["preset"] else "."),
        f"Pruning: {'by the median' if identity['space']['prune'] else 'none'}.",
        f"Kept in {summary.where}, made by winkel {identity['version']}.",
    ]
    return section("Budget", bullets(lines), anchor="budget")


def _figure(name: str, title: str, draw: Callable[[], Figure], caption: str) -> Html:
    file = io.StringIO()
    with style.paper_style(), mpl.rc_context({"svg.fonttype": "path"}):
        draw().savefig(file, format="svg", metadata={"Date": None})
    picture = inline(file.getvalue(), name, title)
    box = element("div", picture, class_="box", tabindex="0", role="region", aria_label=title)
    below = element("figcaption", element("b", title), ". ", caption)
    return element("figure", box, below, id=f"figure-{name}")
