"""`winkel play`: a film of a trained agent."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from winkel.commands.terminal import progress_bar, say
from winkel.errors import InputError
from winkel.experiments.play import CUT, MOST_STEPS, clock_of, load_one, play
from winkel.experiments.worlds import task_of, world_of
from winkel.figures import playback
from winkel.io.video import check_video, write_video


@dataclass(frozen=True, kw_only=True)
class Play:
    """Record episodes: what the agent sees, and value and bonus of every action beside it."""

    path: tyro.conf.Positional[Path]
    """Folder of a run, or of several of one agent and environment."""
    seed: int | None = None
    """Which of several runs; the first by default."""
    episodes: int = 1
    """How many."""
    policy: Literal["greedy", "exploring"] = "greedy"
    """The action of highest value, or as the agent acted when training ended."""
    out: Path | None = None
    """FILE.gif, or FILE.mp4 where ffmpeg is installed; play.gif in the run's folder by default."""
    fps: int = 35
    """Frames a second; a GIF has at most 50."""
    every: int = 1
    """Show one step of so many, and the last."""
    world_seed: int = 0
    """Of the environment, and of what the agent draws to explore."""
    steps: int = MOST_STEPS
    """Cut an episode after so many."""
    mnist_dir: Path | None = None
    """Folder with MNIST's IDX files."""

    def run(self) -> None:
        """Play, write the film and say how it went."""
        for name in ("episodes", "every", "steps"):
            if getattr(self, name) < 1:
                raise InputError(f"need --{name} >= 1, got {getattr(self, name)}")
        if self.out is not None:
            check_video(self.out, self.fps)
        trained, folder = load_one(self.path, self.seed, self.mnist_dir)
        out = folder / "play.gif" if self.out is None else self.out
        check_video(out, self.fps)
        task = task_of(trained.config, self.mnist_dir)
        with progress_bar() as progress, world_of(task, self.world_seed, say) as world:
            bar = progress.add_task("play", total=None)
            played = play(
                trained,
                task,
                world,
                episodes=self.episodes,
                clock=clock_of(folder) if self.policy == "exploring" else None,
                seed=self.world_seed,
                every=self.every,
                most_steps=self.steps,
                progress=lambda steps: progress.update(bar, completed=steps),
            )
            config = trained.config
            title = f"{config['agent']} in {config['env']}, seed {config['seed']}"
            drawn = playback.frames(played, title, self.fps)
            bar = progress.add_task("draw", total=playback.count(played, self.fps))
            frames = progress.track(drawn, task_id=bar)
            write_video(out, frames, self.fps, playback.palette(played))
        for moment in np.flatnonzero(played["action"] < 0):
            episode, length = played["episode"][moment], played["step"][moment]
            cut = ", cut there" if played["state"][moment] == CUT else ""
            say(f"episode {episode}: return {played['return'][moment]:.4g}, length {length}{cut}")
        say(f"wrote {out}")
