"""Deep exploration with distributional reinforcement learning, in JAX.

Names are imported on first use: the workers of `winkel.simulators` do not import JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from winkel.version import __version__

if TYPE_CHECKING:
    from winkel.runs.results import load
    from winkel.runs.train import train
    from winkel.types import Atoms

__all__ = ["Atoms", "__version__", "load", "train"]

_HOMES = {
    "Atoms": "winkel.types",
    "load": "winkel.runs.results",
    "train": "winkel.runs.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
