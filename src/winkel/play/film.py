"""Films of a trained agent: what it observes, value and bonus of each action, both over time."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from winkel.errors import InputError, require_integer, stop_at_interrupt
from winkel.figures import style
from winkel.files import ensure_folder, write_atomically
from winkel.play.episodes import CUT, ENDED
from winkel.runs.record import Arrays

MAX_FPS = 50
"""Viewers take shorter times between the frames of a GIF for mistakes."""
HOLD = 1.0
"""Seconds that the last frame of an episode is shown."""
WIDTH, DPI = 540, 100
"""Pixels of a film, and of an inch."""

_COLOURS = {"value": style.QUANTILE, "bonus": style.CATEGORICAL}
_ENDINGS = {ENDED: "the episode has ended", CUT: "cut here"}


def check_film(path: Path, fps: int) -> None:
    """Raise unless a film of this name can be made here, before the work and not after."""
    if path.suffix.lower() != ".gif":
        raise InputError(f"need a file that ends in .gif, got {path}")
    if path.is_dir():
        raise InputError(f"need a file to write to, got the folder {path}")
    require_integer("--fps", fps, at_least=1, at_most=MAX_FPS)
    ensure_folder(path.parent)


def write_film(
    path: Path,
    played: Arrays,
    title: str,
    fps: int,
    track: Callable[[Iterable[int]], Iterable[int]] = lambda frames: frames,
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
        self._played = played
        taken = np.take_along_axis(played["bonus"], played["action"][:, None], axis=1)[:, 0]
        self._lines = {"value": ("highest value", played["value"].max(axis=1))}
        if np.isfinite(taken).any():
            self._lines["bonus"] = ("bonus of the selected action", taken)
        count = len(self._lines)
        height = 286 + 70 * count
        self.figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI)
        self._canvas = FigureCanvasAgg(self.figure)
        self._head = self.figure.text(0.03, 1 - 8 / height, "", size=9, va="top", linespacing=1.5)
        self._title = title if len(title) <= 64 else f"{title[:63]}…"
        upper = self.figure.add_gridspec(
            1, 1 + count, left=0.05, right=0.9, top=1 - 70 / height, bottom=1 - 262 / height,
            width_ratios=[1.6] + [0.7] * count, wspace=0.8,
        )  # fmt: skip
        lower = self.figure.add_gridspec(
            count, 1, left=0.1, right=0.97, top=1 - 300 / height, bottom=20 / height, hspace=1.0
        )
        observation = self.figure.add_subplot(upper[0, 0])
        if "numbers" in played:
            reach = np.maximum(np.abs(played["numbers"]).max(axis=0), 1e-12)
            names = [str(place) for place in range(len(reach))]
            show = _add_bars(observation, "observation", style.MIXTURE, names, (-1.0, 1.0))
            self._observe = lambda i: show(played["numbers"][i] / reach, played["numbers"][i])
        else:
            first = played["pictures"][0]
            smooth = "nearest" if max(first.shape) <= 192 else "antialiased"
            picture = observation.imshow(first, cmap="gray", vmin=0, vmax=255, interpolation=smooth)
            observation.set(xticks=[], yticks=[])
            observation.spines[:].set(color=style.FAINT, visible=True)
            self._observe = lambda i: picture.set_data(played["pictures"][i])
        numbers = np.arange(played["value"].shape[1])
        names = [str(name)[:12] for name in played.get("actions", numbers)]
        self._bars, self._strips = {}, []
        for place, (name, (heading, values)) in enumerate(self._lines.items()):
            bars = self.figure.add_subplot(upper[0, 1 + place])
            shown = names if place == 0 else [""] * len(names)
            limits = _limits(played[name], zero=True)
            self._bars[name] = bars, _add_bars(bars, name, _COLOURS[name], shown, limits)
            strip = self.figure.add_subplot(lower[place, 0])
            strip.set_ylim(*_limits(values, zero=False))
            strip.set_title(heading, loc="left", color=_COLOURS[name], size=8)
            strip.tick_params(labelsize=7, labelbottom=place == count - 1)
            strip.spines[["top", "right"]].set_visible(False)
            (line,) = strip.plot([], [], color=_COLOURS[name], linewidth=1.1)
            (point,) = strip.plot([], [], "o", color=_COLOURS[name], markersize=4, clip_on=False)
            self._strips.append((strip, line, point, values))

    def draw(self, index: int) -> np.ndarray:
        """Return the frame of one of the `shown` moments, uint8 [height, width, 3]."""
        played, moment = self._played, self._played["shown"][index]
        number, total = played["episode"][moment], played["episode"][-1]
        parts = [f"episode {number} of {total}"] if total > 1 else []
        parts += [f"step {played['step'][moment]:,}", f"return {_short(played['return'][moment])}"]
        ending = _ENDINGS.get(int(played["state"][moment]))
        self._head.set_text("\n".join([self._title, ", ".join([*parts, *filter(None, [ending])])]))
        self._observe(index)
        action = int(played["action"][moment])
        for name, (axes, show_bars) in self._bars.items():
            axes.set_visible(action >= 0)
            show_bars(played[name][moment], played[name][moment], action)
        within = np.flatnonzero(played["episode"] == number)
        past = within[within <= moment]
        for axes, line, point, values in self._strips:
            axes.set_xlim(0, max(1, len(within) - 1))
            axes.set_title(_short(values[moment]), loc="right", size=8)
            line.set_data(played["step"][past], values[past])
            point.set_data(played["step"][past[-1:]], values[past[-1:]])
        self._canvas.draw()
        return np.array(self._canvas.buffer_rgba())[..., :3]


def _add_bars(
    axes: Axes, heading: str, colour: str, names: list[str], limits: tuple[float, float]
) -> Callable[..., None]:
    """Add bars with names and numbers, and return a function that sets them."""
    count = len(names)
    axes.set_title(heading, loc="left", color=colour, size=8)
    axes.set_frame_on(False)
    axes.set(xlim=limits, ylim=(max(count, 5) - 0.5, -0.5), xticks=[])
    size = min(7.0, 110 / count)
    axes.set_yticks(range(count), names, size=size)
    axes.tick_params(length=0)
    axes.axvline(0.0, color=style.FAINT, linewidth=0.7)
    bars = axes.barh(range(count), np.zeros(count), 0.6, color=colour)
    right: dict[str, Any] = {"size": size, "transform": axes.get_yaxis_transform(), "va": "center"}
    texts = [axes.text(1.05, y, "", **right) for y in range(count)]

    def show(lengths: np.ndarray, numbers: np.ndarray, chosen: int | None = None) -> None:
        for place, (bar, text) in enumerate(zip(bars, texts, strict=True)):
            bar.set_width(np.nan_to_num(lengths[place]))
            bar.set_alpha(1.0 if chosen in (None, place) else 0.45)
            text.set_text(_short(numbers[place]))
        for place, label in enumerate(axes.get_yticklabels()):
            label.set_fontweight("bold" if chosen == place else "normal")

    return show


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
