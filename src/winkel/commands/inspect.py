"""`winkel inspect`: what a trained agent believes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from winkel.commands.figure import Format
from winkel.commands.terminal import say
from winkel.envs.host import HostTask
from winkel.envs.registry import Task
from winkel.errors import InputError
from winkel.experiments.looks import newest
from winkel.experiments.play import load_one, seen_after
from winkel.experiments.visits import map_arrays
from winkel.experiments.worlds import action_names, task_of, world_of
from winkel.figures import MAPS, RUN_FIGURES, style
from winkel.files import ensure_folder, save_arrays
from winkel.runs.trained import Trained
from winkel.types import Estimates, OneHot


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Draw return distributions, value, disagreement and bonus; heat maps or a map where known."""

    path: tyro.conf.Positional[Path]
    """Folder of a run, or of several of one agent and environment."""
    seed: int | None = None
    """Which of several runs; the first by default."""
    at: str = "start"
    """Where: 'start' (the first observation of an episode), the index of a one-hot observation, for
    deep sea ROW,COLUMN, or for a simulator after so many greedy STEPS."""
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
        trained, folder = load_one(self.path, self.seed, self.mnist_dir)
        task = task_of(trained.config, self.mnist_dir)
        out = self.out or self.path
        ensure_folder(out)
        if isinstance(task, HostTask):
            obs = simulated_at(trained, task, self.at)
        else:
            obs = observation_at(task, self.at)
        estimates = trained.estimates(obs)
        arrays = distribution_arrays(trained, estimates, obs) | action_names(task)
        for path in draw("inspect", arrays, out, self.formats):
            say(f"wrote {path}")
        if isinstance(task, HostTask):
            been = map_arrays(folder, trained.config, task.maker)
        else:
            been = ("heatmaps", heatmap_arrays(trained, task)) if has_heatmaps(trained) else None
        for path in draw(*been, out, self.formats) if been is not None else ():
            say(f"wrote {path}")
        _print_estimates(estimates, arrays)


def draw(name: str, arrays: dict[str, np.ndarray], out: Path, formats: tuple[Format, ...]) -> Any:
    """Save arrays and the figure of them; the files written."""
    save_arrays(out / f"{name}.npz", arrays)
    with style.paper_style():
        return [
            out / f"{name}.npz",
            *style.save((RUN_FIGURES | MAPS)[name].draw(arrays), out / name, formats),
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


def simulated_at(trained: Trained, task: HostTask, at: str) -> np.ndarray:
    """The observation that a user means, in a simulator that is started for it, with seed 0."""
    if at != "start" and not at.isdecimal():
        raise InputError(f"need --at start, or a number of greedy steps, got {at!r}")
    with world_of(task, notice=say) as world:
        return seen_after(trained, world, 0 if at == "start" else int(at))


def distribution_arrays(
    trained: Trained, estimates: Estimates, obs: np.ndarray
) -> dict[str, np.ndarray]:
    """What the figure of one observation needs."""
    return {
        "locations": np.asarray(estimates.members.locations),
        "probs": np.asarray(estimates.members.probs),
        "value": np.asarray(estimates.value),
        "disagreement": np.asarray(estimates.disagreement),
        "bonus": np.asarray(estimates.bonus),
        "members": np.array(trained.agent.member_names()),
        "observation": newest(trained.agent.spec.observation, obs),
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


def _print_estimates(estimates: Estimates, arrays: dict[str, np.ndarray]) -> None:
    for action, value in enumerate(estimates.value):
        name = arrays["actions"][action] if "actions" in arrays else f"action {action}"
        say(
            f"{name}: value {value:.3f}, disagreement "
            f"{estimates.disagreement[action]:.3f}, bonus {estimates.bonus[action]:.3f}"
        )
