"""Figures as inline SVG: unique ids, and colours that follow the page's light or dark theme."""

import io
import re
from collections.abc import Callable

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from winkel.figures import style

THEMED = {
    "#222222": ("ink", "#e7e5df"),
    "#ffffff": ("paper", "#1a1c20"),
    "#9a9a9a": ("faint", "#83858a"),
    "#0072b2": ("quantile", "#6f93f5"),
    "#882255": ("wine", "#e8626c"),
    "#332288": ("indigo", "#8f86e0"),
    "#661100": ("brown", "#c77a5f"),
    "#117733": ("forest", "#4fae6f"),
    "#aa4499": ("purple", "#cf78c2"),
}
"""Colours of figures, with the name of the page's CSS variable and the colour in the dark theme."""

_SVG = Markup(
    '<svg viewBox="{box}" role="img" aria-label="{title}" style="--natural:{width:.0f}px">'
    "<title>{title}</title>{content}</svg>"
)


def themed(colour: str) -> str:
    """Write a colour of a figure as CSS: a variable if it depends on the theme."""
    plain = "#222222" if colour == "#000000" else colour.lower()
    return f"var(--{THEMED[plain][0]})" if plain in THEMED else colour


def svg_of(draw: Callable[[], Figure], name: str, title: str) -> Markup:
    """Draw a figure in the style of the paper, as an <svg> element for a template.

    Letters are paths, because the width of a reader's fonts is unknown.
    """
    file = io.StringIO()
    with style.paper_style(), mpl.rc_context({"svg.fonttype": "path"}):
        draw().savefig(file, format="svg", metadata={"Date": None})
    return inline(file.getvalue(), name, title)


def inline(svg: str, name: str, title: str) -> Markup:
    """Turn an SVG file into an element: no prologue, ids prefixed by the name, themed colours."""
    opening, content = svg[svg.index("<svg") :].split(">", 1)
    content = re.sub(r"<(metadata|style)[^>]*>.*?</\1>", "", content, flags=re.DOTALL)
    content = re.sub(r'\bid="', f'id="{name}-', content)
    content = re.sub(r"url\(#", f"url(#{name}-", content)
    content = re.sub(r'xlink:href="#', f'href="#{name}-', content)
    content = content.replace("xlink:href=", "href=")
    content = re.sub(r"(?<=: )#[0-9a-f]{6}", lambda found: themed(found[0]), content)
    size = {key: value for key, value in re.findall(r'(width|viewBox)="([^"]+)"', opening)}
    return _SVG.format(
        box=size["viewBox"],
        title=title,
        width=float(size["width"].removesuffix("pt")) * 4 / 3,
        content=Markup(content.rstrip().removesuffix("</svg>")),
    )
