"""`winkel evaluate` and `winkel policy`: how good trained agents are, and a policy as a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from winkel.analysis.statistics import student_interval
from winkel.commands.terminal import say
from winkel.runs.results import load
from winkel.training.programs import start_jax


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Play greedy episodes of trained agents, and print their returns."""

    path: tyro.conf.Positional[Path]
    """Folder of a run, or of several of one agent and environment."""
    episodes: int = 100
    """Episodes of each run."""
    world_seed: int = 0
    """Seed of the environments."""
    env: str | None = None
    """The environment, if its name chooses which code runs, as in `winkel play`."""
    code: tuple[str, ...] = ()
    """Agents and projections of the run, module:Name, that are imported because you name them."""

    def run(self) -> None:
        """Print a line for each run."""
        start_jax()
        for run in load(self.path, self.env).runs:
            returns = run.evaluate(self.episodes, self.world_seed, say)
            say(f"seed {run.config['seed']}: {_describe(returns)}")


@dataclass(frozen=True, kw_only=True)
class Policy(Evaluate):
    """Write the greedy policy of a run, with its returns, as a file that needs NumPy only."""

    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """FILE.npz, for `winkel.numpy_policy.load`."""
    seed: int | None = None
    """Which of several runs; the first by default."""

    def run(self) -> None:
        """Evaluate the run and write the file."""
        start_jax()
        run = load(self.path, self.env).of(self.seed)
        returns = run.evaluate(self.episodes, self.world_seed, say)
        run.export_policy(self.out, returns)
        say(f"wrote {self.out}: {_describe(returns)}")


def _describe(returns: np.ndarray) -> str:
    """Describe returns in a line; a single one has no interval."""
    mean, low, high = student_interval(returns, 0.95)
    interval = f" (95 % interval {low:.4g} to {high:.4g})" if len(returns) > 1 else ""
    ends = f"from {returns.min():.4g} to {returns.max():.4g}"
    return f"mean return {mean:.4g}{interval}, {ends}, {len(returns)} episodes"
