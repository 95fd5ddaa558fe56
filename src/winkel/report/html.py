"""HTML that cannot be unescaped by accident: text is escaped, and only `Html` is not."""

import html
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from winkel.analysis.statistics import Interval
from winkel.figures.style import agent_style
from winkel.report.pictures import THEMED, themed

VOID = ("meta", "link")
"""Elements of HTML that have no content and no end."""
SHAPES = ("circle", "line")
"""Elements of SVG that have no content, and say so."""


_MANY = 30  # rows, beyond which a table scrolls in its box


class Html(str):
    """What is HTML already."""


class Cell(NamedTuple):
    """An entry of a table.

    Attributes:
        content: what is shown.
        key: what it is sorted by, the text where None; NaN comes last.
        numeric: whether it is a number; columns of numbers are set flush right.
    """

    content: str
    key: float | None = None
    numeric: bool = False


def element(name: str, /, *children: str, **attributes: str) -> Html:
    """An element; `class_` is class, `data_key` is data-key."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    if name in SHAPES:
        return Html(f"<{name}{written}/>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str], between: str = "") -> Html:
    """One after another, each escaped unless it is `Html`."""
    return Html(
        html.escape(between).join(c if isinstance(c, Html) else html.escape(c) for c in children)
    )


def section(title: str, *children: str, anchor: str) -> Html:
    """A part of the page with a heading that can be linked to."""
    return element("section", element("h2", title), *children, id=anchor)


def paragraph(*children: str, class_: str = "") -> Html:
    """A paragraph."""
    return element("p", *children, **({"class": class_} if class_ else {}))


def bullets(items: Iterable[str]) -> Html:
    """A list."""
    return element("ul", *(element("li", item) for item in items))


def details(summary: str, *children: str) -> Html:
    """What is folded away until asked for."""
    return element("details", element("summary", summary), *children)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[Cell | str]], *, caption: str, class_: str = ""
) -> Html:
    """A table that scrolls in a box of its own; a click on a header sorts by its column."""
    filled = [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in rows]
    numeric = [all(row[i].numeric for row in filled) for i in range(len(headers))]
    head = element("tr", *(_head(h, right) for h, right in zip(headers, numeric, strict=True)))
    body = [
        element("tr", *(_cell(c, right) for c, right in zip(row, numeric, strict=True)))
        for row in filled
    ]
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", head),
            element("tbody", *body),
        ),
        class_=f"box {class_} {'tall' if len(filled) > _MANY else ''}".strip(),
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def _head(name: str, right: bool) -> Html:
    button = element("button", name, type="button")
    return element("th", button, scope="col", **({"class_": "number"} if right else {}))


def _cell(cell: Cell, right: bool) -> Html:
    attributes = {}
    if cell.key is not None:
        attributes["data_key"] = "" if math.isnan(cell.key) else f"{cell.key:.10g}"
    if right:
        attributes["class_"] = "number"
    return element("td", cell.content, **attributes)


def breakable(text: str) -> Html:
    """Text with long names that may be broken after each part."""
    return Html(html.escape(text).replace("_", "_<wbr>"))


def plural(count: int, what: str) -> str:
    """'1 run', '2,000 runs'."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def agent(name: str) -> Html:
    """An agent's name as figures have it, with the colour of its lines."""
    look = agent_style(name)
    dot = element("i", style=f"background:{themed(look.colour)}", class_="dot")
    return element("span", dot, look.label, class_="agent", title=name)


def number(value: float, digits: int = 2) -> str:
    """Such as 0.52 or 1,204; infinity is ∞ and what is unknown is –."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:,.{digits}f}".replace("-", "−")


def interval(found: Interval, digits: int = 2) -> Html:
    """'0.52 [0.41, 0.66]', on one line."""
    estimate, low, high = (number(float(value), digits) for value in found)
    if low == high == "–":
        return element("span", estimate, class_="interval")
    ends = element("small", f"[{low}, {high}]")
    return element("span", f"{estimate} ", ends, class_="interval")


def interval_cell(found: Interval, digits: int = 2) -> Cell:
    """An interval, sorted by its estimate."""
    return Cell(interval(found, digits), float(found.estimate), numeric=True)


def count_cell(value: int) -> Cell:
    """A whole number."""
    return Cell(f"{value:,}", float(value), numeric=True)


def document(title: str, header: Html, sections: Sequence[Html]) -> str:
    """A page in itself, in the style of all."""
    folder = Path(__file__).parent / "templates"
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    )
    css = "".join(f"--{name}:light-dark({light},{dark});" for light, (name, dark) in THEMED.items())
    css = f":root{{{css}}}" + (folder / "style.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Html(css)),
    )
    script = element("script", Html((folder / "page.js").read_text(encoding="utf-8")))
    body = element("body", header, element("main", *sections), script)
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"
