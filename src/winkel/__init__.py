"""Deep exploration with distributional reinforcement learning, in JAX."""

from winkel.experiments.train import train
from winkel.experiments.trained import load
from winkel.types import Atoms
from winkel.version import __version__

__all__ = ["Atoms", "__version__", "load", "train"]
