"""The zoo: small trained policies that come with winkel, as files for `winkel.numpy_policy`."""

from pathlib import Path

from winkel import numpy_policy
from winkel.errors import InputError, suggest

PREFIX = "zoo:"
"""Begins the names of these policies."""
_FOLDER = Path(__file__).parents[1] / "zoo"


def zoo_names() -> list[str]:
    """Names of all policies, 'zoo:catch' and so on."""
    return sorted(f"{PREFIX}{path.stem}" for path in _FOLDER.glob("*.npz"))


def load_zoo(name: str) -> numpy_policy.Policy:
    """Load a policy by its name."""
    if name not in zoo_names():
        hint = suggest(name, zoo_names(), "see `winkel list zoo`")
        raise InputError(f"no policy {name!r}; {hint}")
    return numpy_policy.load(_FOLDER / f"{name.removeprefix(PREFIX)}.npz")
