"""`winkel evaluate` and `winkel rollout`: returns of trained and of fixed policies."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from winkel.analysis.statistics import student_interval
from winkel.commands.options import EnvName, File, OfRun, progress_bar, say
from winkel.envs import make_batch
from winkel.errors import InputError, require_integer
from winkel.files import ensure_folder
from winkel.runs.policies import make_policy, rollout
from winkel.runs.record import RunRecord, save_run
from winkel.runs.results import load
from winkel.runs.spec import MAX_SEED, run_folder, versions
from winkel.training.programs import start_jax


@dataclass(frozen=True, kw_only=True)
class Evaluate(OfRun):
    """Play greedy episodes of trained agents, and print their returns."""

    episodes: int = 100
    """Episodes of each run."""
    world_seed: int = 0
    """Seed of the environments."""

    seed: int | None = None
    """Only this one of several runs."""
    policy: File = None
    """Also write the greedy policy, of the first run by default, as a file that needs NumPy only:
    FILE.npz, for `winkel.numpy_policy.load`."""

    def run(self) -> None:
        """Print a line for each run."""
        start_jax()
        found = load(self.path, self.env)
        one = self.seed is not None or self.policy is not None
        for run in (found.of(self.seed),) if one else found.runs:
            returns = run.evaluate(self.episodes, self.world_seed, say)
            say(f"seed {run.config['seed']}: {_describe(returns)}")
            if self.policy is not None:
                run.export_policy(self.policy, returns)
                say(f"wrote {self.policy}")


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Run a fixed policy and print, and if asked keep, every episode."""

    env: EnvName
    """An id (deep_sea/20, deep_sea:size=100) or an experiment (catch: all its settings at once)."""
    policy: str = "random"
    """'random', or 'action:K' for always action K."""
    episodes: int = 100
    """Episodes of each setting."""
    seed: int = 0
    """Seed of the policy and of the environment."""
    out: Path | None = None
    """Folder to keep the runs in, for `winkel score` and `winkel export bsuite`."""

    def run(self) -> None:
        """Run the policy, print a line for each setting, save the episodes."""
        require_integer("seed", self.seed, at_least=0, at_most=MAX_SEED)
        start_jax()
        require_integer("--episodes", self.episodes, at_least=1)
        batch = make_batch(self.env)
        policy, agent = make_policy(self.policy, batch.env), self.policy.replace(":", "-")
        folders: list[Path] = []
        if self.out is not None:
            ensure_folder(self.out)
            folders = [run_folder(self.out, env, agent, self.seed) for env in batch.ids]
        for folder in folders:
            if folder.exists():
                raise InputError(f"{folder} exists; choose another --out or --seed")
        with progress_bar() as bar:
            shown = bar.add_task(f"{self.env}, {self.policy}", total=self.episodes)
            tables = rollout(
                batch, policy, self.episodes, self.seed, lambda n: bar.update(shown, completed=n)
            )
        for env, episodes in zip(batch.ids, tables, strict=True):
            returns, lengths = episodes["return"], episodes["length"]
            say(
                f"{env:32} return {returns.mean():9.3f} ± {returns.std():.3f}   "
                f"length {lengths.mean():8.1f}"
            )
        for number, folder in enumerate(folders):
            config = {
                "env": batch.ids[number],
                "agent": agent,
                "seed": self.seed,
                "setting": dict(batch.settings[number]),
                "episodes": self.episodes,
                "versions": versions(),
            }
            save_run(folder, RunRecord(config, tables[number]))
        if folders:
            say(f"kept {len(folders)} runs in {self.out}")


def _describe(returns: np.ndarray) -> str:
    """Describe returns in a line; a single one has no interval."""
    mean, low, high = student_interval(returns, 0.95)
    interval = f" (95 % interval {low:.4g} to {high:.4g})" if len(returns) > 1 else ""
    ends = f"from {returns.min():.4g} to {returns.max():.4g}"
    return f"mean return {mean:.4g}{interval}, {ends}, {len(returns)} episodes"
