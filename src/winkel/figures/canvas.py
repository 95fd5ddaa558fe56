"""What frames of a film are drawn with: text, colours, scales and lines, by Pillow."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from PIL import Image, ImageColor, ImageDraw, ImageFont

from winkel.figures import style

PAPER = "#FFFFFF"
Colour = tuple[int, int, int]
_FINE = 3  # lines are drawn so many times larger, then shrunk: their edges become soft


class Box(NamedTuple):
    """A part of a canvas, in pixels."""

    left: int
    top: int
    width: int
    height: int


class Scale(NamedTuple):
    """An axis from one number to a larger one."""

    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray, *, zero: bool = False) -> "Scale":
        """All finite values and, if asked for, 0 unless they are far from it."""
        known = values[np.isfinite(values)]
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
        if zero and min(abs(low), abs(high)) <= high - low:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            room = 0.5 * abs(low) or 1.0
            low, high = low - room, high + room
        return cls(low, high)

    def share(self, values: np.ndarray) -> np.ndarray:
        """Where on the axis, from 0 to 1."""
        return np.clip((values - self.low) / (self.high - self.low), 0.0, 1.0)


def rgb(colour: str, strength: float = 1.0) -> Colour:
    """A colour, or what is left of it on paper."""
    parts = np.array([ImageColor.getrgb(each)[:3] for each in (PAPER, colour)], float)
    red, green, blue = np.round(parts[0] + strength * (parts[1] - parts[0])).astype(int)
    return int(red), int(green), int(blue)


def written(number: float) -> str:
    """Three or four digits of it, without what would be zeros."""
    if not np.isfinite(number):
        return ""
    if number != 0 and not 1e-3 <= abs(number) < 1e4:
        digits, _, exponent = f"{number:.2e}".partition("e")
        text = f"{digits}e{int(exponent)}"
    else:
        text = f"{number:.{4 if abs(number) >= 1 else 3}g}"
    return text.replace("-", "−")


@lru_cache(maxsize=16)
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Matplotlib's sans serif, which is there wherever figures are."""
    name = f"DejaVuSans{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / name, size)


def write(
    draw: ImageDraw.ImageDraw,
    at: tuple[float | int, float | int],
    text: str,
    *,
    size: int = 11,
    colour: str = style.INK,
    anchor: str = "lm",
    bold: bool = False,
) -> None:
    """Text at a place; `anchor` as Pillow has it: 'lm' is left and middle."""
    draw.text(at, text, fill=colour, font=font(size, bold), anchor=anchor)


def fitted(text: str, width: int, size: int, bold: bool = False) -> str:
    """The text, or as much of its beginning as there is room for."""
    if font(size, bold).getlength(text) <= width:
        return text
    while text and font(size, bold).getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…"


def line(
    shares: Float[np.ndarray, " moments"], width: int, height: int, colour: str
) -> tuple[Image.Image, Float[np.ndarray, "moments 2"]]:
    """A line over equal steps from left to right, and where its points are in the picture.

    Shares are heights from 0 to 1; a point that is not a number is left out.
    """
    count = len(shares)
    x = 2 + (width - 5) * np.arange(count) / max(count - 1, 1)
    points = np.column_stack([x, height - 3 - (height - 6) * shares])
    fine = Image.new("RGB", (width * _FINE, height * _FINE), PAPER)
    known = points[np.isfinite(shares)]
    if len(known) > 1:
        corners = [(float(x), float(y)) for x, y in (known + 0.5) * _FINE]
        ImageDraw.Draw(fine).line(corners, fill=colour, width=round(1.5 * _FINE), joint="curve")
    return fine.resize((width, height), Image.Resampling.BOX), points


def dot(colour: str, radius: float = 3.0) -> Image.Image:
    """A point with soft edges, to be pasted by its own transparency."""
    side = 2 * int(radius + 1) + 1
    fine = Image.new("L", (side * _FINE, side * _FINE), 0)
    near, far = (side / 2 - radius) * _FINE, (side / 2 + radius) * _FINE
    ImageDraw.Draw(fine).ellipse((near, near, far, far), fill=255)
    made = Image.new("RGBA", (side, side), rgb(colour))
    made.putalpha(fine.resize((side, side), Image.Resampling.BOX))
    return made


def upscaled(picture: np.ndarray, side: int) -> Image.Image:
    """A picture as large as a square allows, its pixels whole where they can be."""
    image = Image.fromarray(np.ascontiguousarray(picture)).convert("RGB")
    times = side // max(image.size)
    if times >= 1:
        size = image.width * times, image.height * times
        return image.resize(size, Image.Resampling.NEAREST)
    share = side / max(image.size)
    shrunk = max(1, round(image.width * share)), max(1, round(image.height * share))
    return image.resize(shrunk, Image.Resampling.BOX)
