"""One look for every figure: colours that colour-blind readers tell apart, sizes for a paper."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.io.results import write_atomically

# Okabe and Ito's palette.
QUANTILE = "#0072B2"
CATEGORICAL = "#D55E00"
MIXTURE = "#009E73"
ACCENT = "#CC79A7"
INK = "#222222"
FAINT = "#9A9A9A"

TEXT_WIDTH = 5.5
"""Inches between the margins of a one-column conference paper."""

_RC: dict[str, Any] = {
    "font.family": "serif",
    "font.serif": ["STIXGeneral", "Times New Roman", "Times", "DejaVu Serif"],
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}


@contextmanager
def paper_style() -> Iterator[None]:
    """Settings for everything drawn inside."""
    with mpl.rc_context(_RC):  # type: ignore[arg-type]
        yield


def new_figure(height: float, width: float = TEXT_WIDTH) -> Figure:
    """A figure that no window system knows of, so that drawing works anywhere."""
    return Figure(figsize=(width, height), layout="constrained")


def label_panel(axes: Axes, letter: str, title: str) -> None:
    """'(a) title' above the panel."""
    axes.set_title(f"({letter}) {title}", pad=4)


def save(figure: Figure, stem: Path, formats: tuple[str, ...]) -> list[Path]:
    """Write `stem`.png, `stem`.pdf …; each appears whole or not at all."""
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in formats]
    for path, suffix in zip(paths, formats, strict=True):
        # Without dates, equal figures are equal files.
        metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(suffix)
        write_atomically(path, partial(figure.savefig, format=suffix, metadata=metadata))
    return paths
