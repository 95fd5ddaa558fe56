"""Return distributions that an agent predicts at one observation, a panel for each action."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.envs.base import Task
from winkel.errors import InputError
from winkel.figures import style
from winkel.files import Arrays
from winkel.play.episodes import newest_frame, to_arrays
from winkel.runs.record import RunRecord
from winkel.types import OneHot

MAX_NAMED = 4
"""Up to so many members have a colour and a name each; more are drawn with their mixture."""
_MAX_COLUMNS = 4
_STRIP = 0.17  # height of the strip with a member's atoms, in units of the cdf
_OTHERS = (style.QUANTILE, style.CATEGORICAL, style.MIXTURE, style.ACCENT)


def find_observation(task: Task, at: str) -> np.ndarray:
    """Return the observation of a one-hot index or of ROW,COLUMN in a compiled environment."""
    observation, parts = task.env.observation, at.split(",")
    numbers = at.isascii() and all(part.isdecimal() for part in parts)
    if not isinstance(observation, OneHot) or not numbers:
        raise InputError(f"need --at start, or an index or ROW,COLUMN of a one-hot, got {at!r}")
    index = tuple(int(part) for part in parts)
    shape = observation.shape if len(index) > 1 else (observation.size,)
    side = task.setting.get("size", max(shape))  # a sweep pads small environments to its largest
    within = tuple(min(side, n) for n in shape) if len(index) > 1 else shape
    if len(index) != len(shape) or any(i >= n for i, n in zip(index, within, strict=True)):
        raise InputError(f"need --at within {' x '.join(map(str, within))}, got {at}")
    return np.asarray(np.ravel_multi_index(index, shape), np.int32)


def inspection_arrays(run: RunRecord, obs: np.ndarray) -> Arrays:
    """Return the agent's estimates at an observation, as `draw` needs them."""
    task, estimates = run.task, run.estimates(obs)
    shown = to_arrays(task, [newest_frame(task.env.observation, obs)], max_numbers=0)
    names = task.action_names or [f"action {action}" for action in range(len(estimates.value))]
    return {
        **estimates._asdict(),
        **estimates.members._asdict(),
        "members": np.array(run.agent.member_names()),
        "observation": shown["pictures"][0],
        "actions": np.array(names),
    }


def draw(arrays: Arrays) -> Figure:
    """Draw cdfs of all members for each action, its value, and which action is the best.

    `locations` and `probs` are [members, actions, atoms] in any order; `value`, `disagreement` and
    `bonus` [actions], NaN for an agent without them; `members` and `actions` are names;
    `observation` is a picture. Up to `MAX_NAMED` members also show their atoms, as high as masses.
    """
    locations, probs = arrays["locations"], arrays["probs"]
    for name in ("locations", "probs", "value"):
        if not np.isfinite(arrays[name]).all():
            raise InputError(f"need finite {name}, got NaN or infinity: the agent has diverged")
    actions = locations.shape[1]
    rows = math.ceil((actions + 1) / _MAX_COLUMNS)
    columns = math.ceil((actions + 1) / rows)
    figure = style.new_figure(height=0.45 + 1.4 * rows)
    grid = figure.add_gridspec(rows, columns)
    places = list(np.ndindex(rows, columns))
    shown = figure.add_subplot(grid[places.pop(columns - 1)])
    shown.imshow(arrays["observation"], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    shown.set(title="observation", xticks=[], yticks=[])
    shown.spines[:].set_visible(True)
    bonus, best = arrays["bonus"], int(arrays["value"].argmax())
    marks = {best: "highest value"}
    if np.isfinite(bonus).all() and np.ptp(bonus) > 0:
        most = int(bonus.argmax())
        marks[most] = "highest value and bonus" if most == best else "largest bonus"
    panels: list[Axes] = []
    for action, (row, column) in enumerate(places[:actions]):
        first = panels[0] if panels else None
        axes = figure.add_subplot(grid[row, column], sharex=first, sharey=first)
        panels.append(axes)
        axes.set_xlim(*_limits(arrays))
        _draw_members(axes, locations[:, action], probs[:, action], arrays["members"].tolist())
        value = arrays["value"][action]
        axes.plot([value] * 2, [0, 1], "--", color=style.INK, linewidth=0.8, label="value")
        _write_title(axes, arrays, action, marks.get(action, ""))
        lowest = (row + 1, column) not in places[:actions]
        axes.tick_params(labelleft=column == 0, labelbottom=lowest)
        axes.set_ylabel("cdf" if column == 0 else "")
    panels[0].locator_params(axis="x", nbins=5)
    panels[0].set_yticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
    figure.supxlabel("return", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), handlelength=1.6)
    return figure


def _limits(arrays: Arrays) -> tuple[float, float]:
    """Return limits that hold all atoms but the lightest, and every value."""
    kept = arrays["locations"][arrays["probs"] > 0.001]
    ends = np.concatenate([kept, arrays["value"]])
    low, high = float(ends.min()), float(ends.max())
    margin = 0.05 * (high - low) or 0.1 * abs(low) or 1.0
    return low - margin, high + margin


def _draw_members(axes: Axes, z: np.ndarray, probs: np.ndarray, names: list[str]) -> None:
    """Draw cdfs [members, atoms]: few with their atoms below, many faint beside their mixture."""
    if len(names) > MAX_NAMED:
        for member, (at, mass) in enumerate(zip(z, probs, strict=True)):
            label = None if member else f"each of {len(names)} members"
            axes.ecdf(at, mass, color="#9CC9E3", linewidth=0.5, label=label)
        axes.ecdf(z.ravel(), probs.ravel(), color=style.QUANTILE, linewidth=1.5, label="mixture")
        axes.set_ylim(-0.04, 1.04)
        return
    colours = [style.PROJECTIONS.get(name) for name in names]
    if None in colours or len(set(names)) < len(names):
        colours = [*_OTHERS]
    for member, (at, mass) in enumerate(zip(z, probs, strict=True)):
        axes.ecdf(at, mass, color=colours[member], linewidth=1.0, label=names[member])
        floor = -_STRIP * (member + 1)
        top = floor + 0.75 * _STRIP * mass / mass.max()
        axes.vlines(at, floor, top, colours[member], linewidth=0.5)
    axes.set_ylim(-_STRIP * (len(names) + 0.15), 1.04)


def _write_title(axes: Axes, arrays: Arrays, action: int, mark: str) -> None:
    """Write the action and what it is best at, with its numbers below."""
    texts = [
        f"{name} {arrays[name][action]:.3g}".replace("-", "−")
        for name in ("value", "bonus", "disagreement")
        if not np.isnan(arrays[name][action])
    ]
    lines = [", ".join(texts[:2]), *texts[2:]]
    axes.annotate(
        "\n".join(lines), (0, 1), (0, 3), "axes fraction", "offset points",
        fontsize=6.5, va="bottom", linespacing=1.1,
    )  # fmt: skip
    above, weight = 4 + 7.5 * len(lines), "bold" if mark else "normal"
    axes.set_title(str(arrays["actions"][action]), loc="left", pad=above, weight=weight)
    axes.set_title(mark, loc="right", pad=above, fontsize=6.5, style="italic")
