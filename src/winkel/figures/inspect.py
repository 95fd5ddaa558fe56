"""The return distributions that an agent predicts at one observation, a panel for each action."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.errors import InputError
from winkel.figures import shapes, style
from winkel.files import Arrays

NEEDS = {
    "locations": 3, "probs": 3, "value": 1, "disagreement": 1, "bonus": 1, "observation": 2,
}  # fmt: skip

FEW = 4
"""Up to this many members have a colour and a name each; more are a bundle and its mixture."""

_TAIL = 0.005  # the mass on either side of each distribution that may lie beyond the axis
_MOST_COLUMNS = 4
_MASS_TOLERANCE = 1e-3
_COLOURS = (style.QUANTILE, style.CATEGORICAL, style.MIXTURE, style.ACCENT)
_STRIP = 0.17  # height of one member's strip of masses, in units of the cdf


def draw(results: Arrays) -> Figure:
    """Cdfs of all members for each action, their value, and which action is the best.

    `locations` and `probs` are [members, actions, atoms] in any order, the other arrays [actions];
    `bonus` is NaN for an agent without one. `observation` is a picture (the gray levels of a frame
    where it is uint8, else numbers of which the highest is black), or 0 by 0 for none. `members`
    and `actions` are their names, where they are given. Up to `FEW` members also show their atoms
    below the cdfs, as high as their masses (the largest of a strip fills it): quantile models move
    equal masses, categorical ones weigh equal distances.
    """
    _check(results)
    locations, probs = results["locations"], results["probs"]
    members, actions, _ = locations.shape
    names = shapes.names_of(results, "members", [f"member {i + 1}" for i in range(members)])
    titles = shapes.names_of(results, "actions", [f"action {i}" for i in range(actions)])
    picture = results["observation"]
    cells = actions + (picture.size > 0)
    rows = math.ceil(cells / _MOST_COLUMNS)
    columns = math.ceil(cells / rows)
    figure = style.new_figure(height=0.45 + 1.4 * rows)
    grid = figure.add_gridspec(rows, columns)
    places = list(np.ndindex(rows, columns))
    if picture.size:
        _draw_observation(figure.add_subplot(grid[places.pop(columns - 1)]), picture)
    reach = _reach(results)
    marks = _marks(results["value"], results["bonus"])
    panels: list[Axes] = []
    for action, (row, column) in zip(range(actions), places, strict=False):
        first = panels[0] if panels else None
        axes = figure.add_subplot(grid[row, column], sharex=first, sharey=first)
        panels.append(axes)
        if members <= FEW:
            _draw_few(axes, locations[:, action], probs[:, action], names, reach)
        else:
            _draw_many(axes, locations[:, action], probs[:, action], reach)
        value = results["value"][action]
        axes.plot([value] * 2, [0, 1], "--", color=style.INK, linewidth=0.8, label="value")
        _write_title(axes, titles[action], results, action, marks.get(action, ""))
        lowest = (row + 1, column) not in places[:actions]
        axes.tick_params(labelleft=column == 0, labelbottom=lowest)
        axes.set_ylabel("cdf" if column == 0 else "")
    panels[0].set_xlim(*reach)
    panels[0].locator_params(axis="x", nbins=5)
    panels[0].set_yticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
    figure.supxlabel("return", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), handlelength=1.6)
    return figure


def _check(results: Arrays) -> None:
    locations, probs = results["locations"], results["probs"]
    if locations.ndim != 3 or 0 in locations.shape:
        raise InputError(f"need [members, actions, atoms], got locations {list(locations.shape)}")
    right = dict.fromkeys(("value", "disagreement", "bonus"), locations.shape[1:2])
    for name, shape in {"probs": locations.shape, **right}.items():
        if results[name].shape != shape:
            raise InputError(
                f"need shape {list(shape)} for {name}, as locations are {list(locations.shape)}, "
                f"got {list(results[name].shape)}"
            )
    if results["observation"].ndim != 2:
        raise InputError(f"need two axes for observation, got {results['observation'].ndim}")
    for name in ("locations", "probs", "value"):
        if not np.isfinite(results[name]).all():
            bad = results[name][~np.isfinite(results[name])]
            raise InputError(f"need finite {name}, got {bad[0]} ({bad.size} such numbers)")
    off = np.abs(probs.sum(axis=-1) - 1.0).max()
    if (probs < 0).any() or off > _MASS_TOLERANCE:
        raise InputError(
            f"need probs >= 0 that sum to one over atoms, got a least of {probs.min():.3g} and "
            f"a sum off by {off:.3g}"
        )


def _marks(value: np.ndarray, bonus: np.ndarray) -> dict[int, str]:
    """Words for the action of the highest value and for that of the largest bonus."""
    marks = {int(value.argmax()): "highest value"}
    if np.isfinite(bonus).all() and np.ptp(bonus) > 0:
        most = int(bonus.argmax())
        marks[most] = f"{marks[most]} and bonus" if most in marks else "largest bonus"
    return marks


def _reach(results: Arrays) -> tuple[float, float]:
    """Limits that hold all but a tail of each member's mass, and every value."""
    z, probs = results["locations"], results["probs"]
    order = np.argsort(z, axis=-1)
    z = np.take_along_axis(z, order, axis=-1)
    below = np.cumsum(np.take_along_axis(probs, order, axis=-1), axis=-1)
    inside = (below > _TAIL) & (below - np.take_along_axis(probs, order, -1) < 1.0 - _TAIL)
    ends = np.concatenate([z[inside], results["value"]])
    low, high = float(ends.min()), float(ends.max())
    margin = 0.05 * (high - low) or 0.1 * abs(low) or 1.0
    return low - margin, high + margin


def _cdf(z: np.ndarray, probs: np.ndarray, reach: tuple[float, float]) -> tuple[np.ndarray, ...]:
    """Where the cdf steps and its height from there on, from 0 to 1 across the axis."""
    order = np.argsort(z, kind="stable")
    z, height = z[order], np.cumsum(probs[order])
    ends = [min(reach[0], z[0])], [max(reach[1], z[-1])]
    return np.concatenate([ends[0], z, ends[1]]), np.concatenate([[0.0], height, height[-1:]])


def _draw_few(
    axes: Axes,
    locations: np.ndarray,
    probs: np.ndarray,
    names: list[str],
    reach: tuple[float, float],
) -> None:
    """A cdf in the member's colour, and its atoms in a strip below."""
    for index, (z, mass, colour) in enumerate(zip(locations, probs, _colours(names), strict=True)):
        axes.step(
            *_cdf(z, mass, reach), where="post", color=colour, linewidth=1.0, label=names[index]
        )
        floor = -_STRIP * (index + 1)
        tops = floor + 0.75 * _STRIP * mass / mass.max()
        axes.vlines(z, floor, tops, color=colour, linewidth=0.5)
    axes.set_ylim(-_STRIP * (len(locations) + 0.15), 1.04)


def _colours(names: list[str]) -> list[str]:
    """The two projections keep their colour in all figures; others take what is left."""
    known = {"quantile": style.QUANTILE, "categorical": style.CATEGORICAL}
    chosen = {name: known[name] for name in names if name in known}
    free = [colour for colour in _COLOURS if colour not in chosen.values()]
    return [chosen.pop(name) if name in chosen else free.pop(0) for name in names]


def _draw_many(
    axes: Axes, locations: np.ndarray, probs: np.ndarray, reach: tuple[float, float]
) -> None:
    for index, (z, mass) in enumerate(zip(locations, probs, strict=True)):
        label = f"each of {len(locations)} members" if index == 0 else None
        axes.step(*_cdf(z, mass, reach), where="post", color="#9CC9E3", linewidth=0.5, label=label)
    mixture = _cdf(locations.ravel(), probs.ravel() / len(probs), reach)
    axes.step(*mixture, where="post", color=style.QUANTILE, linewidth=1.5, label="mixture")
    axes.set_ylim(-0.04, 1.04)


def _write_title(axes: Axes, title: str, results: Arrays, action: int, mark: str) -> None:
    """The action and what it is best at, its numbers below."""
    numbers = {
        name: f"{name} {results[name][action]:.3g}".replace("-", "−")
        for name in ("value", "bonus", "disagreement")
        if not np.isnan(results[name][action])
    }
    below = numbers.pop("disagreement", "")
    lines = [", ".join(numbers.values()), *([below] if below else [])]
    axes.annotate(
        "\n".join(lines), (0, 1), (0, 3), xycoords="axes fraction",
        textcoords="offset points", fontsize=6.5, va="bottom", linespacing=1.1,
    )  # fmt: skip
    above = 4 + 7.5 * len(lines)
    axes.set_title(title, loc="left", pad=above, weight="bold" if mark else "normal")
    axes.set_title(mark, loc="right", pad=above, fontsize=6.5, style="italic")


def _draw_observation(axes: Axes, picture: np.ndarray) -> None:
    if picture.dtype == np.uint8:  # a frame
        axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    else:
        axes.imshow(picture.astype(np.float64), cmap="Greys", interpolation="nearest")
    axes.set_title("observation", pad=4)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
