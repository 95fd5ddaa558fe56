"""Write docs/results.md and its pictures from the compact records in this folder.

python results/page.py
"""

import shutil
import tempfile
from pathlib import Path

import jinja2

from winkel.commands.figure import write_figure
from winkel.errors import InputError
from winkel.figures import COLLECTED, FIGURES
from winkel.figures.style import agent_style
from winkel.report import claims, tables
from winkel.report.page import number, plus_minus
from winkel.runs.results import Results, read_results

HERE = Path(__file__).parent
PICTURES = Path("images/results")
"""Below the folder of the page."""


def interval(found: tables.Interval, digits: int) -> str:
    """Write an interval as '0.52 [0.4, 0.6]'."""
    low, high = number(found.low, digits), number(found.high, digits)
    return f"{number(found.estimate, digits)} [{low}, {high}]"


def label(text: str) -> str:
    """Write the agent at the beginning of a comparison as figures show it."""
    agent, comma, rest = text.partition(", ")
    return agent_style(agent).label + comma + rest


def write_mean(found: tables.Interval | None) -> str:
    """Write a mean with half of its interval; an en dash where nothing was measured."""
    return "–" if found is None else plus_minus(found)


def draw_figures(results: Results, docs: Path) -> list[dict]:
    """Draw the figures that the runs allow; return their names, titles and notes."""
    figures = []
    (docs / PICTURES).mkdir(parents=True, exist_ok=True)
    for name in COLLECTED:
        try:
            arrays = FIGURES[name].collect(results)
        except InputError:
            continue
        notes = arrays["notes"].tolist()
        arrays["notes"] = arrays["notes"][:0]
        with tempfile.TemporaryDirectory() as folder:
            write_figure(FIGURES[name].draw, arrays, Path(folder) / name, ("png",))
            shutil.copy(Path(folder) / f"{name}.png", docs / PICTURES)
        figures.append({"name": name, "title": FIGURES[name].TITLE, "notes": notes})
    return figures


def write_page(docs: Path, pictures: bool = True) -> Path:
    """Write results.md into a folder, and its pictures unless they are left out."""
    results = read_results(HERE)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"interval": interval, "label": label, "plus_minus": write_mean}
    try:
        scores = tables.score_tables(results)
    except InputError:  # without runs of bsuite
        scores = None
    text = environment.get_template("page.md").render(
        results=results,
        assessments=[(claim, *claims.assess(claim, results)) for claim in claims.load_claims()],
        verdicts=claims.VERDICTS,
        deviations=claims.deviations,
        apply_rule=claims.apply_rule,
        returns=tables.return_rows(results),
        deep_sea=tables.deep_sea_rows(results),
        scores=scores,
        provenance=tables.provenance(results),
        figures=draw_figures(results, docs) if pictures else [],
        folder=PICTURES.as_posix(),
    )
    page = docs / "results.md"
    page.write_text(text, encoding="utf-8")
    return page


if __name__ == "__main__":
    write_page(HERE.parent / "docs")
