"""Frames of a film of an agent: what it sees, value and bonus of each action, and both over time.

Drawn onto a canvas most of which stays the same: a figure for each frame would take a hundred
times as long.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from winkel.errors import InputError
from winkel.figures import canvas, shapes, style
from winkel.figures.canvas import Box, Scale, rgb, write, written
from winkel.files import Arrays

WIDTH = 540
VALUE, BONUS, NUMBERS = style.QUANTILE, style.CATEGORICAL, style.MIXTURE
HOLD = 1.0
"""Seconds that the last frame of an episode is shown."""
NEEDS = ("value", "bonus", "action", "return", "episode", "step", "state", "shown")
ENDS = {1: "the episode has ended", 2: "cut here"}
"""What is said at a last moment, by its `state`."""

_MARGIN, _HEADER, _SIDE = 12, 48, 216
_SEEN = Box(_MARGIN, _HEADER, _SIDE, _SIDE)
_PANEL = Box(2 * _MARGIN + _SIDE, _HEADER, WIDTH - 3 * _MARGIN - _SIDE, _SIDE)
_STRIP, _ABOVE, _LABELS = 48, 22, 46
_HEADING, _INDEX, _TALLEST, _READABLE = 18, 22, 44, 11
_LONGEST = 72  # of an action's name
_NEAR_PAPER = 247
_CELL = 6  # from so many pixels on, cells of a grid are told apart
_MARKED = "#EEEEEE"
_TINT = 0.45  # of a colour, for the actions that were not chosen
_BLENDS = 6  # of each colour with paper, for the soft edges of text and lines


class _Quantity(NamedTuple):
    """What bars and a line are drawn of: [moments, actions], and [moments]."""

    name: str
    over_time: str
    colour: str
    bars: np.ndarray
    line: np.ndarray


def frames(results: Arrays, title: str, fps: int) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """All frames; the last one of each episode is repeated for a while.

    `value` and `bonus` are [moments, actions], NaN at last moments, the bonus everywhere if there
    is none. `action` is -1 at last moments. `shown` are the moments that have a frame, for which
    `pictures` (uint8 [shown, rows, columns] or with three colours) or `numbers` tell what is seen;
    `cells` says that pixels of pictures are the cells of a grid; `actions` are names.
    Scales are the same throughout.
    """
    _check(results)
    quantities = _quantities(results)
    scales = [Scale.of(q.bars, zero=True) for q in quantities]
    lines = [Scale.of(q.line) for q in quantities]
    episode, strips, ground = None, [], None
    for index, moment in enumerate(results["shown"].tolist()):
        if results["episode"][moment] != episode:
            episode = results["episode"][moment]
            within = np.flatnonzero(results["episode"] == episode)
            strips = [_strip(q, s, within) for q, s in zip(quantities, lines, strict=True)]
            ground = _background(results, title, quantities, lines, within)
        assert ground is not None
        image = ground.copy()
        draw = ImageDraw.Draw(image)
        _draw_header(draw, results, moment)
        _draw_seen(image, draw, results, index)
        _draw_actions(draw, results, moment, quantities, scales)
        for place, (line, points) in enumerate(strips):
            at = results["step"][moment]
            _draw_strip(image, draw, quantities[place], place, line, points, int(at), moment)
        frame = np.asarray(image)
        for _ in range(_times(results, moment, fps)):
            yield frame


def count(results: Arrays, fps: int) -> int:
    """How many frames there are."""
    return sum(_times(results, moment, fps) for moment in results["shown"].tolist())


def _times(results: Arrays, moment: int, fps: int) -> int:
    return max(1, round(HOLD * fps)) if results["action"][moment] < 0 else 1


def palette(results: Arrays, most: int = 256) -> UInt8[np.ndarray, "colours 3"]:
    """Colours for all frames: the film's own with their soft edges, then those of the pictures."""
    own = {rgb(canvas.PAPER), rgb(_MARKED)}
    for colour in (style.INK, style.FAINT, VALUE, BONUS, NUMBERS):
        own |= {rgb(colour, strength) for strength in np.linspace(0, 1, _BLENDS + 1)}
        own.add(rgb(colour, _TINT))
    room = most - len(own)
    pictures = results.get("pictures")
    if pictures is None:
        return np.array(sorted(own), np.uint8)
    if pictures.ndim == 3:
        levels = np.unique(pictures)
        if len(levels) > room:
            levels = np.linspace(levels[0], levels[-1], room).round().astype(np.uint8)
        theirs = np.repeat(levels[:, None], 3, axis=1)
    else:
        some = pictures[np.linspace(0, len(pictures) - 1, min(len(pictures), 64)).astype(int)]
        mosaic = Image.fromarray(np.ascontiguousarray(some.reshape(-1, some.shape[2], 3)))
        found = mosaic.quantize(room, Image.Quantize.MEDIANCUT).getpalette() or []
        theirs = np.array(found, np.uint8).reshape(-1, 3)[:room]
    # Pillow looks colours up in steps of four levels: near to paper, another would take its place.
    theirs = theirs[(theirs <= _NEAR_PAPER).any(axis=1)]
    return np.concatenate([np.array(sorted(own), np.uint8), theirs])


def _check(results: Arrays) -> None:
    missing = [name for name in NEEDS if name not in results]
    if missing:
        raise InputError(f"need {', '.join(missing)} to draw frames of, got {', '.join(results)}")
    if "pictures" not in results and "numbers" not in results:
        raise InputError("need pictures or numbers of what is seen, got neither")
    seen = results.get("pictures", results.get("numbers"))
    if len(seen) != len(results["shown"]):  # type: ignore[arg-type]
        raise InputError(
            f"need what is seen at {len(results['shown'])} moments, got {len(seen)}"  # type: ignore[arg-type]
        )


def _quantities(results: Arrays) -> list[_Quantity]:
    value, bonus, action = results["value"], results["bonus"], results["action"]
    over = action < 0
    highest = np.where(over, np.nan, value[np.arange(len(value)), np.argmax(value, axis=1)])
    found = [_Quantity("value", "highest value", VALUE, value, highest)]
    if np.isfinite(bonus[~over]).any():
        taken = np.where(over, np.nan, bonus[np.arange(len(bonus)), np.maximum(action, 0)])
        found.append(_Quantity("bonus", "bonus of the action taken", BONUS, bonus, taken))
    return found


def _strip_box(place: int) -> Box:
    top = _HEADER + _SIDE + _ABOVE + place * (_STRIP + _ABOVE)
    return Box(_MARGIN + _LABELS, top, WIDTH - 2 * _MARGIN - _LABELS, _STRIP)


def _strip(quantity: _Quantity, scale: Scale, within: np.ndarray) -> tuple[Image.Image, np.ndarray]:
    box, known = _strip_box(0), quantity.line[within]
    shares = np.where(np.isnan(known), np.nan, scale.share(known))
    return canvas.line(shares, box.width, box.height, quantity.colour)


def _background(
    results: Arrays,
    title: str,
    quantities: list[_Quantity],
    scales: list[Scale],
    within: np.ndarray,
) -> Image.Image:
    """Everything that stays the same during an episode."""
    lowest = _strip_box(len(quantities) - 1)
    height = lowest.top + lowest.height + 22
    image = Image.new("RGB", (WIDTH, height), canvas.PAPER)
    draw = ImageDraw.Draw(image)
    room = WIDTH - 2 * _MARGIN
    write(draw, (_MARGIN, 14), canvas.fitted(title, room, 13, bold=True), size=13, bold=True)
    for place, (quantity, scale) in enumerate(zip(quantities, scales, strict=True)):
        box = _strip_box(place)
        bottom = box.top + box.height
        draw.line((box.left - 1, box.top, box.left - 1, bottom), fill=style.FAINT)
        draw.line((box.left - 1, bottom, box.left + box.width, bottom), fill=style.FAINT)
        name, colour = quantity.over_time, quantity.colour
        write(draw, (box.left, box.top - 9), name, colour=colour, bold=True)
        for number, y in ((scale.high, box.top + 4), (scale.low, bottom - 4)):
            write(draw, (box.left - 5, y), written(number), anchor="rm", size=10)
    end = lowest.top + lowest.height + 10
    write(draw, (lowest.left, end), "0", size=10)
    last = f"step {results['step'][within[-1]]:,}"
    write(draw, (lowest.left + lowest.width, end), last, size=10, anchor="rm")
    return image


def _draw_header(draw: ImageDraw.ImageDraw, results: Arrays, moment: int) -> None:
    total = int(results["episode"][-1])
    episode = f"episode {results['episode'][moment]} of {total}, " if total > 1 else ""
    write(draw, (_MARGIN, 34), f"{episode}step {results['step'][moment]:,}", size=12)
    number = float(results["return"][moment])
    text = f"return {number:,.0f}" if abs(number) >= 1e4 else f"return {number:.4g}"
    text = text.replace("-", "−")
    write(draw, (WIDTH - _MARGIN, 34), text, size=12, bold=True, anchor="rm")


def _draw_seen(image: Image.Image, draw: ImageDraw.ImageDraw, results: Arrays, index: int) -> None:
    if "pictures" in results:
        picture = canvas.upscaled(results["pictures"][index], _SIDE - 2)
        left = _SEEN.left + (_SIDE - picture.width) // 2
        top = _SEEN.top + (_SIDE - picture.height) // 2
        image.paste(picture, (left, top))
        right, bottom = left + picture.width, top + picture.height
        cell = picture.height // results["pictures"].shape[1]
        if results.get("cells") and cell >= _CELL:
            for x in range(left + cell, right, cell):
                draw.line((x, top, x, bottom), fill=_MARKED)
            for y in range(top + cell, bottom, cell):
                draw.line((left, y, right, y), fill=_MARKED)
        draw.rectangle((left - 1, top - 1, right, bottom), outline=style.FAINT)
        return
    numbers, now = results["numbers"], results["numbers"][index]
    reach = np.abs(numbers).max(axis=0).tolist()
    row = min(_TALLEST, (_SIDE - _HEADING) / len(now))
    write(draw, (_SEEN.left + _INDEX, _SEEN.top + 7), "observation", colour=NUMBERS, bold=True)
    for place, number in enumerate(now.tolist()):
        box = Box(_SEEN.left + _INDEX, round(_SEEN.top + _HEADING + place * row), 0, round(row))
        scale = Scale(-(reach[place] or 1.0), reach[place] or 1.0)
        _draw_bar(draw, box._replace(width=_SIDE - _INDEX), scale, number, rgb(NUMBERS))
        write(draw, (box.left - 5, box.top + row / 2), str(place), size=10, anchor="rm")


def _draw_actions(
    draw: ImageDraw.ImageDraw,
    results: Arrays,
    moment: int,
    quantities: list[_Quantity],
    scales: list[Scale],
) -> None:
    """A row for each action, the chosen one marked."""
    chosen = int(results["action"][moment])
    actions = results["value"].shape[1]
    names, room = _action_names(results, actions)
    row = min(_TALLEST, (_PANEL.height - _HEADING) / actions)
    top, left = _PANEL.top + _HEADING, _PANEL.left + room
    width = (_PANEL.left + _PANEL.width - left) // len(quantities)
    if chosen < 0:
        middle = (_PANEL.left + _PANEL.width / 2, _PANEL.top + _PANEL.height / 2)
        write(draw, middle, ENDS[int(results["state"][moment])], anchor="mm", size=12)
        return
    begin, end = round(top + chosen * row), round(top + (chosen + 1) * row)
    edges = (_PANEL.left, begin, _PANEL.left + _PANEL.width, max(begin, end - 1))
    draw.rectangle(edges, fill=_MARKED)
    if row >= _READABLE:
        for action in range(actions):
            at, bold = (left - 6, top + (action + 0.5) * row), action == chosen
            write(draw, at, names[action], size=10 + bold, anchor="rm", bold=bold)
    for place, (quantity, scale) in enumerate(zip(quantities, scales, strict=True)):
        column = left + place * width
        write(draw, (column, _PANEL.top + 7), quantity.name, colour=quantity.colour, bold=True)
        for action, number in enumerate(quantity.bars[moment].tolist()):
            box = Box(column, round(top + action * row), width - 4, round(row))
            strength = 1.0 if action == chosen else _TINT
            _draw_bar(draw, box, scale, number, rgb(quantity.colour, strength))


def _action_names(results: Arrays, actions: int) -> tuple[list[str], int]:
    """Names, or numbers, and how many pixels they take."""
    numbers = [str(action) for action in range(actions)]
    if "actions" not in results:
        return numbers, _INDEX
    given = shapes.names_of(results, "actions", numbers)
    names = [canvas.fitted(name, _LONGEST, 11, bold=True) for name in given]
    return names, 12 + max(round(canvas.font(11, bold=True).getlength(name)) for name in names)


def _draw_bar(
    draw: ImageDraw.ImageDraw, box: Box, scale: Scale, number: float, colour: canvas.Colour
) -> None:
    """A bar from 0, or from the nearer end of the scale, and its number beside it."""
    if not np.isfinite(number):
        return
    labelled = box.height >= _READABLE
    length = box.width - (_LABELS + 2 if labelled else 0)
    zero, end = (box.left + length * scale.share(np.array([0.0, number]))).tolist()
    inset = 0 if box.height < 4 else max(1, box.height // 5)
    low, high = sorted((round(zero), round(end)))
    top, bottom = box.top + inset, max(box.top + inset, box.top + box.height - inset - 1)
    draw.rectangle((low, top, high, bottom), fill=colour)
    draw.line((round(zero), box.top, round(zero), box.top + box.height - 1), fill=style.FAINT)
    if labelled:
        at = (box.left + box.width, box.top + box.height / 2)
        write(draw, at, written(number), size=10, anchor="rm")


def _draw_strip(
    image: Image.Image,
    draw: ImageDraw.ImageDraw,
    quantity: _Quantity,
    place: int,
    line: Image.Image,
    points: np.ndarray,
    step: int,
    moment: int,
) -> None:
    """The line up to now, with a point at its end."""
    box = _strip_box(place)
    x, y = points[step]
    image.paste(line.crop((0, 0, int(x) + 1, box.height)), (box.left, box.top))
    if not np.isfinite(y):
        return
    point = canvas.dot(quantity.colour)
    at = box.left + round(x) - point.width // 2, box.top + round(y) - point.height // 2
    image.paste(point, at, point)
    number = written(float(quantity.line[moment]))
    write(draw, (box.left + box.width, box.top - 9), number, anchor="rm", bold=True)
