"""Films of a trained agent: what it observes, value and bonus of each action, both over time."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from PIL import Image

from winkel.errors import InputError, require_integer
from winkel.figures import style
from winkel.files import ensure_folder, write_atomically
from winkel.interrupts import stop_at_interrupt
from winkel.play.episodes import CUT, ENDED
from winkel.runs.record import Arrays

MAX_FPS = 50
"""Viewers take shorter times between the frames of a GIF for mistakes."""
HOLD = 1.0
"""Seconds that the last frame of an episode is shown."""

WIDTH, DPI = 540, 100
_MARGIN, _TOP, _SIDE = 12.0, 48.0, 216.0  # pixels: margins, height of the header, observation
_BAR_ROW, _STRIP = 40.0, 70.0  # greatest height of a bar's row; height of a line over time
_NUMBERS = 46.0  # width of numbers
_SMALL = 7.2
_HEADING: dict[str, Any] = {"size": 8.0, "weight": "bold", "pad": 4}
_MARKED, _FAINT = "#EEEEEE", 0.45
_COLOURS = {"value": style.QUANTILE, "bonus": style.CATEGORICAL}
_ENDINGS = {ENDED: "the episode has ended", CUT: "cut here"}

Track = Callable[[Iterable[int]], Iterable[int]]


def check_film(path: Path, fps: int) -> None:
    """Raise unless a film of this name can be made here, before the work and not after."""
    if path.suffix.lower() != ".gif":
        raise InputError(f"need a file that ends in .gif, got {path}")
    if path.is_dir():
        raise InputError(f"need a file to write to, got the folder {path}")
    require_integer("--fps", fps, at_least=1, at_most=MAX_FPS)
    ensure_folder(path.parent)


def write_film(
    path: Path, played: Arrays, title: str, fps: int, track: Track = lambda frames: frames
) -> None:
    """Write a film of what `play` returned, after `check_film`; `track` may show progress."""
    film, shown = Film(played, title), played["shown"]
    times = np.where(played["action"][shown] < 0, max(1, round(HOLD * fps)), 1)
    indices = stop_at_interrupt(track(range(len(shown))))
    # Durations are whole hundredths of a second; rounding their sums keeps the film's length.
    ends = np.round(100 * np.cumsum(times) / fps)
    durations = (10 * np.diff(ends, prepend=0)).astype(int).tolist()
    images = (Image.fromarray(film.draw(index)) for index in indices)
    options = {"save_all": True, "append_images": images, "duration": durations, "loop": 0}
    write_atomically(path, partial(next(images).save, format="GIF", **options))


class Film:
    """A figure that shows one moment after the other. Its scales are those of all moments."""

    def __init__(self, played: Arrays, title: str):
        self._played, self._lines = played, _lines(played)
        self._height = _TOP + _SIDE + len(self._lines) * _STRIP + 22
        self.figure = Figure(figsize=(WIDTH / DPI, self._height / DPI), dpi=DPI)
        self._canvas = FigureCanvasAgg(self.figure)
        title = title if len(title) <= 64 else f"{title[:63]}…"
        self._write(_MARGIN, 14.0, title, size=9.4, weight="bold")
        self._step = self._write(_MARGIN, 34.0)
        self._return = self._write(WIDTH - _MARGIN, 34.0, ha="right", weight="bold")
        self._add_observation()
        self._add_actions()
        self._strips = [self._add_strip(place, name) for place, name in enumerate(self._lines)]
        self._write(_MARGIN + _NUMBERS, self._height - 12, "0", size=_SMALL)
        self._length = self._write(WIDTH - _MARGIN, self._height - 12, size=_SMALL, ha="right")

    def draw(self, index: int) -> np.ndarray:
        """Return the frame of one of the `shown` moments, uint8 [height, width, 3]."""
        played, moment = self._played, self._played["shown"][index]
        number, total = played["episode"][moment], played["episode"][-1]
        episode = f"episode {number} of {total}, " if total > 1 else ""
        self._step.set_text(f"{episode}step {played['step'][moment]:,}")
        self._return.set_text(f"return {_short(played['return'][moment])}")
        if "pictures" in played:
            self._picture.set_data(played["pictures"][index])
        else:
            numbers = played["numbers"][index]
            self._show_numbers(numbers / self._reach, numbers)
        action = int(played["action"][moment])
        self._end.set_text(_ENDINGS.get(int(played["state"][moment]), ""))
        self._mark.set_visible(action >= 0)
        self._mark.set_y(action - 0.5)
        for name, (axes, show_bars) in self._bars.items():
            axes.set_visible(action >= 0)
            show_bars(played[name][moment], played[name][moment], action)
        within = np.flatnonzero(played["episode"] == number)
        past = within[within <= moment]
        self._length.set_text(f"step {len(within) - 1:,}")
        for (axes, line, point, now), (_, values) in zip(
            self._strips, self._lines.values(), strict=True
        ):
            axes.set_xlim(0, max(1, len(within) - 1))
            line.set_data(played["step"][past], values[past])
            point.set_data(played["step"][past[-1:]], values[past[-1:]])
            now.set_text(_short(values[moment]))
        self._canvas.draw()
        return np.array(self._canvas.buffer_rgba())[..., :3]

    def _write(self, x: float, y: float, text: str = "", size: float = 8.6, **how: Any) -> Text:
        """Write at a pixel, counted from the upper left corner."""
        place = x / WIDTH, 1 - y / self._height
        return self.figure.text(*place, text, size=size, va="center", color=style.INK, **how)

    def _add_axes(self, left: float, top: float, width: float, height: float) -> Axes:
        bottom = 1 - (top + height) / self._height
        return self.figure.add_axes((left / WIDTH, bottom, width / WIDTH, height / self._height))

    def _add_observation(self) -> None:
        if "numbers" in self._played:
            numbers = self._played["numbers"]
            self._reach = np.abs(numbers).max(axis=0)
            self._reach[self._reach == 0] = 1.0
            axes = self._add_axes(_MARGIN + 22, _TOP + 18, _SIDE - 22 - _NUMBERS, _SIDE - 18)
            names = [str(place) for place in range(numbers.shape[1])]
            self._show_numbers = _add_bars(axes, "observation", style.MIXTURE, names, (-1.0, 1.0))
            return
        pictures, axes = self._played["pictures"], self._add_axes(_MARGIN, _TOP, _SIDE, _SIDE)
        rows, columns = pictures.shape[1:3]
        smooth = "nearest" if max(rows, columns) <= _SIDE else "antialiased"
        self._picture = axes.imshow(
            pictures[0], cmap="gray", vmin=0, vmax=255, interpolation=smooth
        )
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=style.FAINT, visible=True)
        if "cells" in self._played and max(rows, columns) <= _SIDE / 6:
            axes.set_xticks(np.arange(columns - 1) + 0.5, minor=True)
            axes.set_yticks(np.arange(rows - 1) + 0.5, minor=True)
            axes.grid(which="minor", color=_MARKED, linewidth=0.7)
            axes.tick_params(which="minor", length=0)

    def _add_actions(self) -> None:
        """Add bars for value and bonus of each action; the row of the selected action is marked."""
        played, count = self._played, self._played["value"].shape[1]
        names = [str(name)[:12] for name in played.get("actions", np.arange(count))]
        left, right = 2 * _MARGIN + _SIDE, WIDTH - _MARGIN
        behind = self._add_axes(left, _TOP + 18, right - left, _SIDE - 18)
        behind.set_axis_off()
        self._mark = behind.axhspan(-0.5, 0.5, color=_MARKED)
        self._end = self._write((left + right) / 2, _TOP + _SIDE / 2, ha="center")
        begin = left + 14 + 6 * max(map(len, names))
        width = (right - begin) / len(self._lines)
        self._bars = {}
        for place, name in enumerate(self._lines):
            axes = self._add_axes(
                begin + place * width, _TOP + 18, width - _NUMBERS - 8, _SIDE - 18
            )
            limits = _limits(played[name], zero=True)
            shown = names if place == 0 else [""] * count
            self._bars[name] = axes, _add_bars(axes, name, _COLOURS[name], shown, limits)
        behind.set_ylim(axes.get_ylim())

    def _add_strip(self, place: int, name: str) -> tuple[Axes, Line2D, Line2D, Text]:
        """Add a line over the steps of an episode; return what changes from moment to moment."""
        top, left = _TOP + _SIDE + 22 + place * _STRIP, _MARGIN + _NUMBERS
        axes = self._add_axes(left, top, WIDTH - _MARGIN - left, _STRIP - 22)
        heading, values = self._lines[name]
        ends, colour = _limits(values, zero=False), _COLOURS[name]
        axes.set(xticks=[], ylim=ends)
        axes.set_yticks(ends, [_short(end) for end in ends], size=_SMALL)
        axes.tick_params(length=0)
        axes.spines[:].set_color(style.FAINT)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(heading, loc="left", color=colour, **_HEADING)
        now = axes.set_title("", loc="right", **_HEADING)
        (line,) = axes.plot([], [], color=colour, linewidth=1.1, clip_on=False)
        (point,) = axes.plot([], [], "o", color=colour, markersize=4.3, clip_on=False)
        return axes, line, point, now


def _add_bars(
    axes: Axes, heading: str, colour: str, names: list[str], limits: tuple[float, float]
) -> Callable[..., None]:
    """Add bars from 0, with names on their left and numbers on their right.

    Return a function that sets their lengths and numbers; all but the chosen one, if one is, are
    faint.
    """
    count = len(names)
    axes.set_title(heading, loc="left", color=colour, **_HEADING)
    axes.set_frame_on(False)
    axes.set(xlim=limits, ylim=(max(count, _SIDE / _BAR_ROW) - 0.5, -0.5), xticks=[])
    size = min(_SMALL, 0.6 * _SIDE / count)
    axes.set_yticks(range(count), names, size=size)
    axes.tick_params(length=0)
    axes.plot([0.0, 0.0], [-0.5, count - 0.5], color=style.FAINT, linewidth=0.7)
    bars = axes.barh(range(count), np.zeros(count), 0.6, color=colour)
    right, transform = 1 + _NUMBERS / axes.bbox.width, axes.get_yaxis_transform()
    texts = [
        axes.text(right, y, "", size=size, transform=transform, va="center", ha="right")
        for y in range(count)
    ]

    def show(lengths: np.ndarray, numbers: np.ndarray, chosen: int | None = None) -> None:
        for place, (bar, text) in enumerate(zip(bars, texts, strict=True)):
            bar.set_width(np.nan_to_num(lengths[place]))
            bar.set_alpha(1.0 if chosen in (None, place) else _FAINT)
            text.set_text(_short(numbers[place]))
        for place, label in enumerate(axes.get_yticklabels()):
            label.set_fontweight("bold" if chosen == place else "normal")

    return show


def _lines(played: Arrays) -> dict[str, tuple[str, np.ndarray]]:
    """Return heading and numbers over time of the value, and of the bonus if there is one."""
    found = {"value": ("highest value", played["value"].max(axis=1))}
    bonus = np.take_along_axis(played["bonus"], played["action"][:, None], axis=1)[:, 0]
    if np.isfinite(bonus).any():
        found["bonus"] = ("bonus of the selected action", bonus)
    return found


def _limits(values: np.ndarray, *, zero: bool) -> tuple[float, float]:
    """Return the range of all finite values and, if asked for, 0 unless they are far from it."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if zero and min(abs(low), abs(high)) <= high - low:
        low, high = min(low, 0.0), max(high, 0.0)
    margin = 0.0 if low < high else 0.5 * abs(low) or 1.0
    return low - margin, high + margin


def _short(number: SupportsFloat) -> str:
    """Write three or four digits of a number, and nothing for NaN."""
    value = float(number)
    if np.isnan(value):
        return ""
    return f"{value:.{4 if abs(value) >= 1 else 3}g}".replace("-", "−")
