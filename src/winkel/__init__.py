"""Deep exploration with distributional reinforcement learning, in JAX."""

from winkel.types import Atoms

__version__ = "0.1.0.dev0"

__all__ = ["Atoms", "__version__"]
