"""Speed: time per update against lanes, the size of deep sea and the number of atoms."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from winkel.figures import lines, shapes, style
from winkel.files import Arrays

SHAPES = {
    "agents": "rows",
    "settings": "rows",
    "experiments": "rows",
    "sizes": "rows",
    "lanes": "rows",
    "atoms": "rows",
    "milliseconds": "rows",
    "fastest": "rows",
    "slowest": "rows",
    "floor": "rows",
    "devices": "devices",
}
NEEDS = shapes.needs(SHAPES)

_DASHES: tuple[style.Dashes, ...] = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.4, 1.2, 1.4)))
_SIZE = "size of deep sea"
_PANEL_WIDTH, _LEAST_WIDTH = 1.85, 3.3


class _Line(NamedTuple):
    """Points of one agent in one setting, from left to right."""

    agent: str
    setting: str
    atoms: int
    x: np.ndarray
    y: np.ndarray
    fastest: np.ndarray
    slowest: np.ndarray
    floor: np.ndarray


class _Panel(NamedTuple):
    title: str
    label: str
    lines: list[_Line]
    lanes: int | None


def draw(results: Arrays) -> Figure | None:
    """Three panels, of which one without two points on a line is left out; None without any.

    Colour and marker are the agent's, the line's pattern is the setting's. Bars go from the fastest
    chunk to the slowest; faint lines are what Adam's traffic alone would take.
    """
    shapes.check(results, SHAPES)
    made = (make(results) for make in (_by_lanes, _by_size, _by_atoms))
    panels = [panel for panel in made if panel.lines]
    if not panels:
        return None
    width = max(_LEAST_WIDTH, _PANEL_WIDTH * len(panels))
    figure = style.new_figure(height=2.0, width=width)
    settings = _settings(panels)
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, letter, panel in zip(all_axes, "abc", panels, strict=False):
        _draw_panel(axes, panel, settings)
        if len(panels) > 1:
            style.label_panel(axes, letter, panel.title)
        axes.set_xlabel(panel.label)
    all_axes[0].set_ylabel("ms per update")
    _legend(figure, panels, settings)
    style.write_below(figure, _caption(results, panels), results["notes"])
    return figure


def _settings(panels: Sequence[_Panel]) -> list[str]:
    """What has a line's pattern: environments, and seas where there are several kinds."""
    found: dict[str, None] = {}
    for panel in panels:
        own = dict.fromkeys(line.setting for line in panel.lines)
        if panel.label != _SIZE or len(own) > 1:
            found |= own
    return list(found)


def _by_lanes(results: Arrays) -> _Panel:
    found = _lines(results, results["lanes"], results["settings"], np.ones(_rows(results), bool))
    return _Panel("lanes", "lanes", found, None)


def _by_size(results: Arrays) -> _Panel:
    sea = results["sizes"] > 0
    groups = list(zip(results["agents"], results["experiments"], results["sizes"], strict=True))
    lanes = _common(results["lanes"], groups, sea)
    where = sea & (results["lanes"] == lanes)
    found = _lines(results, results["sizes"], results["experiments"], where)
    return _Panel("deep sea", _SIZE, found, lanes)


def _by_atoms(results: Arrays) -> _Panel:
    pairs = list(zip(results["agents"], results["settings"], strict=True))
    many = {
        pair
        for pair in set(pairs)
        if len({k for k, p in zip(results["atoms"], pairs, strict=True) if p == pair}) > 1
    }
    several = np.array([pair in many for pair in pairs], bool) & (results["atoms"] > 0)
    groups = [(*pair, k) for pair, k in zip(pairs, results["atoms"], strict=True)]
    lanes = _common(results["lanes"], groups, several)
    where = several & (results["lanes"] == lanes)
    found = _lines(results, results["atoms"], results["settings"], where, by_atoms=True)
    return _Panel("number of atoms", "$K$", found, lanes)


def _rows(results: Arrays) -> int:
    return len(results["lanes"])


def _common(lanes: np.ndarray, groups: Sequence[tuple[object, ...]], where: np.ndarray) -> int:
    """The largest number of lanes that all groups have; if there is none, that most have."""
    have = {(groups[i], int(lanes[i])) for i in np.flatnonzero(where).tolist()}
    counts = Counter(number for _, number in have)
    return max(counts, key=lambda number: (counts[number], number), default=0)


def _lines(
    results: Arrays,
    x: np.ndarray,
    settings: np.ndarray,
    where: np.ndarray,
    *,
    by_atoms: bool = False,
) -> list[_Line]:
    """A line for each agent and setting; of several numbers of atoms the one with most points."""
    found = []
    pairs = list(zip(map(str, results["agents"]), map(str, settings), strict=True))
    agents = list(dict.fromkeys(agent for agent, _ in pairs))
    order = [agents[i] for i in style.in_order(agents)]
    for agent, setting in sorted(dict.fromkeys(pairs), key=lambda pair: order.index(pair[0])):
        mine = where & np.array([pair == (agent, setting) for pair in pairs], bool)
        counts = Counter(results["atoms"][mine].tolist())
        atoms = 0
        if not by_atoms and counts:
            atoms = max(counts, key=lambda number: (counts[number], number))
            mine = mine & (results["atoms"] == atoms)
        at = np.flatnonzero(mine)
        at = at[np.argsort(x[at], kind="stable")]
        at = at[np.append(np.diff(x[at]) > 0, True)] if len(at) else at
        if len(at) > 1:
            names = ("milliseconds", "fastest", "slowest", "floor")
            values = [results[name][at] for name in names]
            found.append(_Line(agent, setting, atoms, x[at].astype(float), *values))
    return found


def _draw_panel(axes: Axes, panel: _Panel, settings: Sequence[str]) -> None:
    for line in panel.lines:
        look = style.agent_style(line.agent)
        place = settings.index(line.setting) if line.setting in settings else 0
        axes.plot(
            line.x, line.floor, color=look.colour, linestyle=_DASHES[place % len(_DASHES)],
            linewidth=0.7, alpha=0.45,
        )  # fmt: skip
        axes.vlines(line.x, line.fastest, line.slowest, color=look.colour, linewidth=2.4, alpha=0.3)
        axes.plot(
            line.x, line.y, color=look.colour, linestyle=_DASHES[place % len(_DASHES)],
            linewidth=1.1, marker=look.marker, markersize=3.5, markeredgewidth=0.7,
            markerfacecolor=_face(look.colour, place),
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = _thinned(np.unique(np.concatenate([line.x for line in panel.lines])))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = axes.get_ylim()
    few = high / low < 30
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axes.yaxis.set_minor_locator(NullLocator() if few else LogLocator(10, subs=range(2, 10)))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _thinned(values: np.ndarray, apart: float = 0.12) -> list[float]:
    """Of ticks on a logarithmic axis those whose labels have room, the last one among them."""
    span = np.log(values[-1] / values[0])
    kept = [float(values[-1])]
    for value in values[-2::-1].tolist():
        if np.log(kept[-1] / value) >= apart * span:
            kept.append(value)
    return kept[::-1]


def _face(colour: str, place: int) -> str:
    """Patterns of lines come again with open markers."""
    return colour if place < len(_DASHES) else "white"


def _legend(figure: Figure, panels: Sequence[_Panel], settings: Sequence[str]) -> None:
    agents = list(dict.fromkeys(line.agent for panel in panels for line in panel.lines))
    handles: list[Artist] = []
    for agent in (agents[i] for i in style.in_order(agents)):
        look = style.agent_style(agent)
        handles.append(
            Line2D(
                [], [], color=look.colour, marker=look.marker, markersize=3.5, linewidth=1.2,
                linestyle="-", label=look.label,
            )
        )  # fmt: skip
    if len(settings) > 1:
        handles += [
            Line2D(
                [], [], color=style.INK, linestyle=_DASHES[place % len(_DASHES)], linewidth=1.0,
                marker="" if place < len(_DASHES) else "o", markerfacecolor="white", markersize=3,
                label=setting,
            )
            for place, setting in enumerate(settings)
        ]  # fmt: skip
    lines.place_legend(figure, handles)


def _caption(results: Arrays, panels: Sequence[_Panel]) -> str:
    parts = [
        f"{results['devices'][0]}: time of the whole loop for one update of one lane, median chunk "
        "and range of all"
    ]
    settings = _settings(panels)
    if len(settings) == 1:
        parts[0] += f", in {settings[0]}"
    for letter, panel in zip("abc", panels, strict=False):
        said = []
        if panel.lanes is not None:
            said.append(f"{panel.lanes} lane{'s' if panel.lanes > 1 else ''}")
        atoms = sorted({line.atoms for line in panel.lines} - {0})
        if atoms:
            said.append(f"K = {' or '.join(map(str, atoms))}")
        if said:
            parts.append((f"({letter}) " if len(panels) > 1 else "") + ", ".join(said))
    if any(np.isfinite(line.floor).any() for panel in panels for line in panel.lines):
        parts.append("faint: Adam's traffic alone at the speed of a copy")
    return "; ".join(parts) + "."
