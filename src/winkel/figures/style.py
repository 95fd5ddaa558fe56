"""One look for every figure: colours that colour-blind readers tell apart, sizes for a paper."""

import hashlib
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.files import write_atomically

# Okabe and Ito's palette.
QUANTILE = "#0072B2"
CATEGORICAL = "#D55E00"
MIXTURE = "#009E73"
ACCENT = "#CC79A7"
INK = "#222222"
FAINT = "#9A9A9A"
_ORANGE, _SKY = "#E69F00", "#56B4E9"
# Tol's muted one, for agents without a colour of their own.
_WINE = "#882255"
_OTHERS = (
    "#332288", "#44AA99", "#999933", "#AA4499", "#661100", "#6699CC", "#DDCC77", "#117733",
)  # fmt: skip

Dashes = Literal["-"] | tuple[float, tuple[float, ...]]
_SOLID: Dashes = "-"
_DASHED: Dashes = (0, (4, 1.6))
_DOTTED: Dashes = (0, (1.2, 1.2))
_MIXED: Dashes = (0, (5, 1.4, 1.2, 1.4))
_DASHES, _MARKERS = (_DASHED, _DOTTED, _MIXED, _SOLID), ("h", "*", "d", "8", "H", "p")

TEXT_WIDTH = 5.5
"""Inches between the margins of a one-column conference paper."""

MOST_NOTES = 7
"""Written beneath a figure."""
_CHARACTERS, _LINE = 26.5, 0.105  # of a note to the inch, and inches from line to line

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
    "svg.hashsalt": "winkel",  # equal figures are equal files
}


class AgentStyle(NamedTuple):
    """How an agent looks in every figure."""

    label: str
    colour: str
    dashes: Dashes
    marker: str


# The diverse ensemble has the mixture's colour, its uniform ablations those of their projections; a
# variant of a baseline has the baseline's colour and another line.
_AGENTS = {
    "pe_dqn": AgentStyle("PE-DQN", MIXTURE, _SOLID, "o"),
    "bdqn": AgentStyle("BDQN+P", ACCENT, _DASHED, "s"),
    "ids": AgentStyle("IDS-C51", _ORANGE, _MIXED, "^"),
    "ids_clip": AgentStyle("IDS-C51 [clipped]", _ORANGE, _DOTTED, "v"),
    "dltv": AgentStyle("DLTV", _SKY, _DOTTED, "D"),
    "dltv_no_prior": AgentStyle("DLTV [no prior]", _SKY, _DASHED, "X"),
    "pe_dqn_qr_qr": AgentStyle("PE-DQN [QR/QR]", QUANTILE, _DASHED, "v"),
    "pe_dqn_c51_c51": AgentStyle("PE-DQN [C51/C51]", CATEGORICAL, _MIXED, "^"),
    "pe_dqn_ind": AgentStyle("PE-DQN [Ind.]", _WINE, _DOTTED, "D"),
    "pe_dqn_no_prior": AgentStyle("PE-DQN [no prior]", INK, _DASHED, "P"),
    "dqn": AgentStyle("DQN", INK, _DOTTED, "p"),
    "c51": AgentStyle("C51", CATEGORICAL, _DOTTED, "<"),
    "qr_dqn": AgentStyle("QR-DQN", QUANTILE, _DOTTED, ">"),
    "random": AgentStyle("random", FAINT, _SOLID, "."),
}


def agent_style(name: str) -> AgentStyle:
    """The agent's own look; of an unknown agent one that follows from its name alone."""
    if name in _AGENTS:
        return _AGENTS[name]
    colour, dashes, marker = hashlib.sha256(name.encode()).digest()[:3]
    return AgentStyle(
        label=name,
        colour=_OTHERS[colour % len(_OTHERS)],
        dashes=_DASHES[dashes % len(_DASHES)],
        marker=_MARKERS[marker % len(_MARKERS)],
    )


def in_order(names: Sequence[str] | np.ndarray) -> list[int]:
    """Places of the agents as figures show them: known ones in the paper's order, then others."""
    known = list(_AGENTS)

    def rank(place: int) -> tuple[int, str]:
        name = str(names[place])
        return (known.index(name) if name in known else len(known), name)

    return sorted(range(len(names)), key=rank)


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


def seeds_text(counts: np.ndarray) -> str:
    """'10 seeds', '3 to 10 seeds' or '1 seed', of those that have any."""
    known = counts[counts > 0]
    low, high = int(known.min()), int(known.max())
    return f"{low} seed{'s' if low != 1 else ''}" if low == high else f"{low} to {high} seeds"


def write_below(figure: Figure, caption: str, notes: Iterable[str]) -> None:
    """A caption and small notes beneath all panels, in room of their own that the figure grows by.

    Call it last. Of many notes the first few are written; the arrays have them all.
    """
    width, height = figure.get_size_inches()
    columns = int(width * _CHARACTERS)
    lines = textwrap.wrap(caption, columns)
    notes = [str(note) for note in notes]
    if len(notes) > MOST_NOTES:
        more = len(notes) - MOST_NOTES + 1
        notes = [
            *notes[: MOST_NOTES - 1],
            f"and {more} notes more, among the arrays of this figure",
        ]
    for note in notes:
        lines += textwrap.wrap(f"Note: {note}", columns, subsequent_indent="   ")
    room = _LINE * len(lines) + 0.06
    figure.set_size_inches(width, height + room)
    share = room / (height + room)
    figure.get_layout_engine().set(rect=(0.0, share, 1.0, 1.0 - share))  # type: ignore[union-attr, call-arg]
    figure.text(
        0.05 / width, share, "\n".join(lines), va="top", fontsize=6, color=INK, linespacing=1.15
    )


def save(figure: Figure, stem: Path, formats: tuple[str, ...]) -> list[Path]:
    """Write `stem`.png, `stem`.pdf …; each appears whole or not at all."""
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in formats]
    for path, suffix in zip(paths, formats, strict=True):
        # Without dates, equal figures are equal files.
        metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(suffix)
        write_atomically(path, partial(figure.savefig, format=suffix, metadata=metadata))
    return paths
