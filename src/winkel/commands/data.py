"""`winkel data`: data sets that environments need."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from winkel.commands.terminal import say
from winkel.envs.bsuite.mnist_data import fetch_mnist, mnist_directory


@dataclass(frozen=True, kw_only=True)
class Data:
    """Fetch a data set into the folder that the environments read, and verify it."""

    name: tyro.conf.Positional[Literal["mnist"]]
    """Which one."""
    mnist_dir: Path | None = None
    """Where to put it; else WINKEL_MNIST, else the cache folder."""

    def run(self) -> None:
        """Fetch, verify, and print the folder."""
        directory = mnist_directory(self.mnist_dir)
        fetch_mnist(directory, progress=say)
        say(f"MNIST is in {directory}")
