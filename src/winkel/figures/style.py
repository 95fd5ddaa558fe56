"""The style of figures: colours for colour-blind readers, sizes for a paper, lines, legends."""

import hashlib
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import matplotlib as mpl
import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from winkel.files import Arrays, write_atomically

# Okabe and Ito's palette.
QUANTILE = "#0072B2"
CATEGORICAL = "#D55E00"
MIXTURE = "#009E73"
ACCENT = "#CC79A7"
INK = "#222222"
FAINT = "#9A9A9A"
PROJECTIONS = {"quantile": QUANTILE, "categorical": CATEGORICAL}
_ORANGE, _SKY = "#E69F00", "#56B4E9"
# Tol's muted one, for agents without a colour of their own.
_WINE = "#882255"
_OTHERS = (
    "#332288", "#44AA99", "#999933", "#AA4499", "#661100", "#6699CC", "#DDCC77", "#117733",
)  # fmt: skip

Dashes = Literal["--", ":", "-.", "-"]
_DASHES, _MARKERS = get_args(Dashes), ("h", "*", "d", "8", "H", "p")

TEXT_WIDTH = 5.5
"""Inches between the margins of a one-column conference paper."""

MOST_NOTES = 6
"""Written beneath a figure; further ones are counted."""
_CHARACTERS, _LINE = 26.5, 0.105  # of a note to the inch, and inches from line to line
_ENTRY, _LETTER = 0.46, 0.047  # inches of a legend's entry without its name, and of a letter


class AgentStyle(NamedTuple):
    """Label, colour, dashes and marker of an agent in every figure."""

    label: str
    colour: str
    dashes: Dashes
    marker: str


# The diverse ensemble has the mixture's colour, its uniform ablations those of their projections; a
# variant of a baseline has the baseline's colour and another line.
_AGENTS = {
    "pe_dqn": AgentStyle("PE-DQN", MIXTURE, "-", "o"),
    "bdqn": AgentStyle("BDQN+P", ACCENT, "--", "s"),
    "ids": AgentStyle("IDS-C51", _ORANGE, "-.", "^"),
    "ids_clip": AgentStyle("IDS-C51 [clipped]", _ORANGE, ":", "v"),
    "dltv": AgentStyle("DLTV", _SKY, ":", "D"),
    "dltv_no_prior": AgentStyle("DLTV [no prior]", _SKY, "--", "X"),
    "pe_dqn_qr_qr": AgentStyle("PE-DQN [QR/QR]", QUANTILE, "--", "v"),
    "pe_dqn_c51_c51": AgentStyle("PE-DQN [C51/C51]", CATEGORICAL, "-.", "^"),
    "pe_dqn_ind": AgentStyle("PE-DQN [Ind.]", _WINE, ":", "D"),
    "pe_dqn_no_prior": AgentStyle("PE-DQN [no prior]", INK, "--", "P"),
    "dqn": AgentStyle("DQN", INK, ":", "p"),
    "c51": AgentStyle("C51", CATEGORICAL, ":", "<"),
    "qr_dqn": AgentStyle("QR-DQN", QUANTILE, ":", ">"),
    "random": AgentStyle("random", FAINT, "-", "."),
}


def agent_style(name: str) -> AgentStyle:
    """Return the style of an agent; that of an unknown agent depends on its name alone."""
    if name in _AGENTS:
        return _AGENTS[name]
    colour, dashes, marker = hashlib.sha256(name.encode()).digest()[:3]
    return AgentStyle(
        label=name,
        colour=_OTHERS[colour % len(_OTHERS)],
        dashes=_DASHES[dashes % len(_DASHES)],
        marker=_MARKERS[marker % len(_MARKERS)],
    )


def in_order(names: Iterable[str]) -> dict[str, int]:
    """Return agents with their indices, in the order of figures: the paper's agents first."""
    rank = {name: place for place, name in enumerate(_AGENTS)}
    index = {str(name): place for place, name in enumerate(names)}
    return {name: index[name] for name in sorted(index, key=lambda n: (rank.get(n, len(rank)), n))}


def paper_style() -> AbstractContextManager[None]:
    """Apply the settings to everything drawn inside a `with` statement."""
    return mpl.style.context(Path(__file__).with_name("paper.mplstyle"))


def new_figure(height: float, width: float = TEXT_WIDTH) -> Figure:
    """Make a figure without a window system, so that drawing works anywhere."""
    return Figure(figsize=(width, height), layout="constrained")


def split_panels(sides: Mapping[str, list[str]]) -> tuple[Figure, list[tuple[Axes, list[str]]]]:
    """Make a panel for each title whose list of agents is not empty; two get letters and titles."""
    shown = {title: agents for title, agents in sides.items() if agents}
    figure = new_figure(height=2.2, width=TEXT_WIDTH if len(shown) > 1 else 3.3)
    panels = figure.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
    if len(shown) > 1:
        for axes, letter, title in zip(panels, "ab", shown, strict=True):
            axes.set_title(f"({letter}) {title}", pad=4)
    return figure, list(zip(panels, shown.values(), strict=True))


def seeds_text(counts: np.ndarray) -> str:
    """Write '10 seeds', '3 to 10 seeds' or '1 seed', ignoring zeros."""
    known = counts[counts > 0]
    low, high = int(known.min()), int(known.max())
    return f"{low} seed{'s' if low != 1 else ''}" if low == high else f"{low} to {high} seeds"


def medians_text(results: Arrays) -> str:
    """Write what most figures of deep sea show."""
    return f"medians and interquartile ranges of {seeds_text(results['num_seeds'])}"


def draw_band(
    axes: Axes, x: np.ndarray, spread: Sequence[np.ndarray], agent: str, among: int = 1
) -> None:
    """Draw a line and its band (estimate, low, high), fainter among many; one point is a dot."""
    estimate, low, high = spread
    line = agent_style(agent)
    axes.fill_between(
        x, low, high, color=line.colour, alpha=0.2 / (1 + among / 5), linewidth=0, zorder=1
    )
    alone = np.isfinite(estimate).sum() == 1
    axes.plot(
        x, estimate, color=line.colour, linestyle=line.dashes, linewidth=1.1, label=agent,
        marker=line.marker if alone else "", markersize=3,
    )  # fmt: skip


def draw_limit(axes: Axes, budget: float) -> None:
    """Draw a dashed line at the budget, the end of an axis of episodes."""
    axes.axhline(budget, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    axes.set_ylim(0, 1.06 * budget)


def draw_markers(
    axes: Axes, x: np.ndarray, values: np.ndarray, limit: float, agent: str, size: float
) -> None:
    """Draw markers; those of infinite values are open and drawn at the limit."""
    line = agent_style(agent)
    for where, face in ((np.isfinite(values), line.colour), (np.isinf(values), "white")):
        if where.any():  # an empty line has a place, and layouts make room for it
            axes.plot(
                x[where], np.minimum(values, limit)[where], line.marker, color=line.colour,
                markerfacecolor=face, markersize=size,
                markeredgewidth=min(0.7, size / 5), clip_on=False,
            )  # fmt: skip


def draw_bars(
    axes: Axes,
    x: np.ndarray,
    width: float,
    spread: Sequence[np.ndarray],
    seeds: np.ndarray,
    colour: str,
    label: str,
    most_dots: int = 1000,
) -> None:
    """Draw bars with intervals, and dots for fewer than `most_dots` seeds [bars, seeds].

    What is missing has a small cross.
    """
    estimate, low, high = spread
    axes.bar(x, estimate, 0.9 * width, color=colour, alpha=0.75, label=label)
    axes.vlines(x, low, high, color=INK, linewidth=0.7)
    if 1 < seeds.shape[1] < most_dots:
        beside = x[:, None] + np.linspace(-0.3, 0.3, seeds.shape[1]) * width
        axes.plot(
            beside.ravel(), seeds.ravel(), "o", color=INK, markersize=1.5, markeredgewidth=0,
            alpha=0.8, clip_on=False,
        )  # fmt: skip
    for gap in x[np.isnan(estimate)]:
        axes.plot(
            gap, 0.025, "x", color=colour, markersize=2.5, transform=axes.get_xaxis_transform()
        )


def spread_at(results: Arrays, *index: int) -> list[np.ndarray]:
    """Return estimate, low and high at an index."""
    return [results[name][index] for name in ("estimate", "low", "high")]


def count_axis(axes: Axes, bins: int = 4) -> None:
    """Set few round ticks from zero on the horizontal axis, as 0, 5k, 10k or 2M."""
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(bins, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def legend_above(
    figure: Figure, agents: Iterable[str], *, markers: bool = False, bars: bool = False
) -> None:
    """Write a legend of all agents in as few rows as fit; the figure grows by them."""
    handles: list[Artist] = [
        Patch(color=line.colour, alpha=0.75, linewidth=0, label=line.label)
        if bars
        else Line2D(
            [], [], color=line.colour, linestyle=line.dashes, label=line.label, linewidth=1.2,
            marker=line.marker if markers else "", markersize=3.5, markeredgewidth=0.7,
        )
        for line in map(agent_style, agents)
    ]  # fmt: skip
    width, height = figure.get_size_inches()
    widths = [_ENTRY + _LETTER * len(str(handle.get_label())) for handle in handles]
    columns = len(handles)
    while columns > 1 and sum(max(widths[i::columns]) for i in range(columns)) > width:
        columns -= 1
    rows = math.ceil(len(handles) / columns)
    columns = math.ceil(len(handles) / rows)  # rows of equal length
    figure.set_size_inches(width, height + 0.15 * rows)
    # Legends fill columns first; agents are to be read from left to right.
    figure.legend(
        handles=[handle for column in range(columns) for handle in handles[column::columns]],
        loc="outside upper center",
        ncols=columns,
        handlelength=1.0 if bars else 2.6,
        columnspacing=1.2,
    )


def write_below(figure: Figure, caption: str, notes: Iterable[str]) -> None:
    """Write a caption and notes beneath all panels; the figure grows by their height.

    Call it last. Of many notes only the first are written; the arrays have them all.
    """
    width, height = figure.get_size_inches()
    columns = int(width * _CHARACTERS)
    lines, notes = textwrap.wrap(caption, columns), list(notes)
    if more := len(notes[MOST_NOTES:]):
        notes[MOST_NOTES:] = [f"and {more} notes more, among the arrays of this figure"]
    for note in notes:
        lines += textwrap.wrap(f"Note: {note}", columns, subsequent_indent="   ")
    figure.set_size_inches(width, height + _LINE * len(lines) + 0.06)
    figure.supxlabel(
        "\n".join(lines), x=0.05 / width, ha="left", fontsize=6, color=INK, linespacing=1.15
    )


def save(figure: Figure, stem: Path, formats: tuple[str, ...]) -> list[Path]:
    """Write `stem`.png, `stem`.pdf …, each atomically."""
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in formats]
    for path, suffix in zip(paths, formats, strict=True):
        # Without dates, equal figures are equal files.
        metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(suffix)
        write_atomically(path, partial(figure.savefig, format=suffix, metadata=metadata))
    return paths
