"""`winkel inspect`: what a trained agent believes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from winkel.commands.figure import Format
from winkel.commands.terminal import say
from winkel.envs.registry import Task, remake
from winkel.errors import InputError
from winkel.experiments.trained import Trained, load
from winkel.figures import RUN_FIGURES, style
from winkel.io.results import ensure_folder, save_arrays
from winkel.types import Estimates, OneHot


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Draw return distributions, value, disagreement and bonus; for deep sea also heat maps."""

    path: tyro.conf.Positional[Path]
    """Folder of a run, or of several of one agent and environment."""
    seed: int | None = None
    """Which of several runs; the first by default."""
    at: str = "start"
    """Where: 'start' (the first observation of an episode), the index of a one-hot observation, or
    for deep sea ROW,COLUMN."""
    out: Path | None = None
    """Folder for pictures and arrays; the run's own by default."""
    formats: tuple[Format, ...] = ("png", "pdf")
    """File formats."""
    mnist_dir: Path | None = None
    """Folder with MNIST's IDX files."""

    def run(self) -> None:
        """Write the pictures and say what they show."""
        if not self.formats:
            raise InputError("need at least one format of png, pdf, svg, got none")
        trained = load(self.path, self.mnist_dir).of(self.seed)
        task = remake(trained.config, self.mnist_dir)
        out = self.out or self.path
        ensure_folder(out)
        obs = observation_at(task, self.at)
        estimates = trained.estimates(obs)
        arrays = distribution_arrays(trained, estimates, obs)
        for path in draw("inspect", arrays, out, self.formats):
            say(f"wrote {path}")
        if has_heatmaps(trained):
            for path in draw("heatmaps", heatmap_arrays(trained, task), out, self.formats):
                say(f"wrote {path}")
        _print_estimates(estimates)


def draw(name: str, arrays: dict[str, np.ndarray], out: Path, formats: tuple[Format, ...]) -> Any:
    """Save arrays and the figure of them; the files written."""
    save_arrays(out / f"{name}.npz", arrays)
    with style.paper_style():
        return [
            out / f"{name}.npz",
            *style.save(RUN_FIGURES[name].draw(arrays), out / name, formats),
        ]


def observation_at(task: Task, at: str) -> np.ndarray:
    """The observation that a user means."""
    if at == "start":
        _, obs = jax.jit(lambda params: task.env.reset(jax.random.key(0), params))(task.params)
        return np.asarray(obs)
    observation = task.env.observation
    parts = at.split(",")
    if not isinstance(observation, OneHot) or not all(part.isdecimal() for part in parts):
        raise InputError(f"need --at start, or an index or ROW,COLUMN of a one-hot, got {at!r}")
    index = tuple(int(part) for part in parts)
    shape = observation.shape if len(index) > 1 else (observation.size,)
    side = task.setting.get("size", max(shape))  # a sweep pads small seas to its largest
    within = tuple(min(side, n) for n in shape) if len(index) > 1 else shape
    if len(index) != len(shape) or any(i >= n for i, n in zip(index, within, strict=True)):
        raise InputError(f"need --at within {' x '.join(map(str, within))}, got {at}")
    return np.asarray(np.ravel_multi_index(index, shape), np.int32)


def distribution_arrays(
    trained: Trained, estimates: Estimates, obs: np.ndarray
) -> dict[str, np.ndarray]:
    """What the figure of one observation needs."""
    observation = trained.agent.spec.observation
    picture = np.asarray(observation.dense(obs))
    picture = picture.reshape(picture.shape[0], -1) if picture.ndim > 1 else picture.reshape(1, -1)
    return {
        "locations": np.asarray(estimates.members.locations),
        "probs": np.asarray(estimates.members.probs),
        "value": np.asarray(estimates.value),
        "disagreement": np.asarray(estimates.disagreement),
        "bonus": np.asarray(estimates.bonus),
        "members": np.array(trained.agent.member_names()),
        "observation": picture,
    }


def has_heatmaps(trained: Trained) -> bool:
    """Whether the run looked at a grid of two actions."""
    return bool(trained.snapshots) and trained.config["env"].startswith("deep_sea")


def heatmap_arrays(trained: Trained, task: Task) -> dict[str, np.ndarray]:
    """What the heat maps need: the snapshots as grids."""
    grid = trained.agent.spec.observation.shape
    snapshots, size = trained.snapshots, int(task.setting["size"])
    arrays = {
        name: snapshots[name].reshape(-1, *grid, trained.agent.spec.num_actions)[:, :size, :size]
        for name in ("visits", "disagreement", "bonus")
    }
    return arrays | {
        "episode": snapshots["episodes"],
        "size": np.asarray(size),
        "right": np.asarray(task.params.right)[:size, :size],
    }


def _print_estimates(estimates: Estimates) -> None:
    for action, value in enumerate(estimates.value):
        say(
            f"action {action}: value {value:.3f}, disagreement "
            f"{estimates.disagreement[action]:.3f}, bonus {estimates.bonus[action]:.3f}"
        )
