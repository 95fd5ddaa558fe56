"""Deep exploration with distributional reinforcement learning, in JAX.

Names are imported on first use: the workers of `winkel.simulators` do not import JAX, and a command
handles Ctrl-C before it imports anything that takes time.
"""

from winkel.version import __version__

TYPE_CHECKING = False  # type checkers know this name; `typing` takes time to import
if TYPE_CHECKING:
    from winkel.runs.pure import make_bonus, make_train
    from winkel.runs.results import load
    from winkel.runs.train import train
    from winkel.types import Atoms

__all__ = ["Atoms", "__version__", "load", "make_bonus", "make_train", "train"]

_HOMES = {
    "Atoms": "winkel.types",
    "load": "winkel.runs.results",
    "make_bonus": "winkel.runs.pure",
    "make_train": "winkel.runs.pure",
    "train": "winkel.runs.train",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
