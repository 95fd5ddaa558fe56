"""`winkel list`: what can be named."""

from dataclasses import dataclass
from typing import Literal

import tyro

from winkel.commands.terminal import say
from winkel.envs import EXPERIMENTS
from winkel.envs.bsuite.families import FAMILIES
from winkel.figures import FIGURES
from winkel.projections import PROJECTIONS


@dataclass(frozen=True, kw_only=True)
class List:
    """List what can be named on the command line."""

    what: tyro.conf.Positional[Literal["envs", "projections", "figures"]]
    """Which table."""

    def run(self) -> None:
        """Print one line for each entry."""
        if self.what == "envs":
            _list_environments()
            return
        entries = PROJECTIONS if self.what == "projections" else FIGURES
        for name, entry in entries.items():
            summary = (entry.__doc__ or "").strip().splitlines()[0]
            say(f"{name:12} {summary}")


def _list_environments() -> None:
    for name, experiment in EXPERIMENTS.items():
        keys = ", ".join(FAMILIES[experiment.family].defaults)
        ids = f"{name}/0 … {name}/{len(experiment.settings) - 1}"
        say(f"{ids:50} {experiment.num_episodes:6d} episodes  tags {', '.join(experiment.tags)}")
        say(f"{'':50} override {name}:{'key=value'} with {keys}")
    total = sum(len(experiment.settings) for experiment in EXPERIMENTS.values())
    say(f"{len(EXPERIMENTS)} experiments, {total} settings")
