"""`winkel play`: a film of a trained agent."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from winkel.commands.options import File, OfRun, progress_bar, say
from winkel.errors import InputError, require_integer
from winkel.numpy_policy import Policy
from winkel.play.episodes import CUT, MAX_STEPS, load_one, open_environment, play, task_of
from winkel.play.film import check_film, write_film
from winkel.play.zoo import PREFIX, load_zoo
from winkel.runs.record import RunRecord
from winkel.simulators.pool import TIMEOUT
from winkel.training.programs import start_jax


@dataclass(frozen=True, kw_only=True)
class Play(OfRun):
    """Film episodes: what the agent observes, with value and bonus of every action beside it."""

    path: tyro.conf.Positional[Path]
    """Folder of a run, or of several of one agent and environment; or one of `winkel list zoo`."""
    seed: int | None = None
    """Which of several runs; the first by default."""
    episodes: int = 1
    """Number of episodes."""
    policy: Literal["greedy", "exploring"] = "greedy"
    """The action of highest value, or as the agent acted when training ended."""
    out: File = None
    """FILE.gif; play.gif in the run's folder by default, in the current one for the zoo."""
    fps: int = 35
    """Frames a second, at most 50."""
    every: int = 1
    """Show every so many steps, and the last."""
    world_seed: int = 0
    """Seed of the environment, and of exploration."""
    steps: int = MAX_STEPS
    """Cut an episode after so many steps."""
    timeout: float = TIMEOUT
    """Seconds that a simulator may take to start, for a reset and for a step."""

    def run(self) -> None:
        """Play, write the film and print return and length of each episode."""
        start_jax()
        for name in ("episodes", "every", "steps"):
            require_integer(f"--{name}", getattr(self, name), at_least=1)
        if self.out is not None:
            check_film(self.out, self.fps)
        run: RunRecord | Policy
        folder, clock = Path(), None
        if str(self.path).startswith(PREFIX):
            if self.seed is not None or self.policy == "exploring":
                raise InputError(f"need a run for --seed and --policy exploring, got {self.path}")
            run = load_zoo(str(self.path))
            config = run.about
        else:
            run = load_one(self.path, self.seed, self.env)
            folder, config = run.folder, run.config
            clock = run.clock if self.policy == "exploring" else None
        task, out = task_of(run), self.out or folder / "play.gif"
        check_film(out, self.fps)
        with (
            progress_bar() as progress,
            open_environment(task, self.world_seed, say, self.timeout) as env,
        ):
            bar = progress.add_task("play", total=None)
            played = play(
                run,
                env,
                episodes=self.episodes,
                clock=clock,
                seed=self.world_seed,
                every=self.every,
                max_steps=self.steps,
                progress=lambda steps: progress.update(bar, completed=steps),
            )
            title = f"{config['agent']} in {task.id}, seed {config['seed']}"
            write_film(
                out,
                played,
                title,
                self.fps,
                lambda frames: progress.track(frames, description="draw"),
            )
        for moment in np.flatnonzero(played["action"] < 0):
            episode, length = played["episode"][moment], played["step"][moment]
            cut = ", cut there" if played["state"][moment] == CUT else ""
            say(f"episode {episode}: return {played['return'][moment]:.4g}, length {length}{cut}")
        say(f"wrote {out}")
