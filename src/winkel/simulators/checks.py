"""What simulators return, checked and brought into the types that the pool stores."""

import math
from typing import Any

import numpy as np

from winkel.errors import InputError, require_integer
from winkel.simulators.base import Layout, Traits

_LARGEST = float(np.finfo(np.float32).max)


def check_traits(traits: Traits) -> None:
    """Raise unless an environment of this kind can be run."""
    layout = traits.layout
    if layout.dtype not in ("float32", "uint8"):
        raise InputError(f"need observations of float32 or uint8, got {layout.dtype!r}")
    if not layout.shape or min(layout.shape) < 1:
        raise InputError(f"need observations with at least one number, got shape {layout.shape}")
    if layout.dtype == "float32" and layout.stack != 1:
        raise InputError(f"need uint8 frames to stack, got stack {layout.stack} of float32")
    require_integer("stack", layout.stack, at_least=1)
    require_integer("num_actions", traits.num_actions, at_least=1)


def as_observation(value: Any, layout: Layout) -> np.ndarray:
    """The observation as an array of the layout; scalars and other real numbers will do."""
    array = np.asarray(value)
    if layout.dtype == "uint8":
        if array.dtype != np.uint8:
            raise InputError(f"need frames of uint8, got {array.dtype}")
    elif array.dtype.kind not in "fiub":
        raise InputError(f"need an observation of real numbers, got {_short(value)}")
    if array.shape == () and layout.shape == (1,):
        array = array.reshape(1)
    if array.shape != layout.shape:
        raise InputError(f"need an observation of shape {layout.shape}, got {array.shape}")
    if layout.dtype == "uint8":
        return array
    if array.dtype != np.float32:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise InputError(f"need a finite observation, got {_short(value)}")
    return array


def as_number(value: Any, what: str) -> float:
    """A finite number that float32 can hold."""
    try:
        number = float(value) if np.ndim(value) == 0 and not isinstance(value, str) else None
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise InputError(f"need a {what} that is a number, got {_short(value)}")
    if not math.isfinite(number) or abs(number) > _LARGEST:
        raise InputError(f"need a finite {what}, got {number}")
    return number


def as_discount(value: Any) -> float:
    """A number from 0 to 1."""
    number = as_number(value, "discount")
    if not 0.0 <= number <= 1.0:
        raise InputError(f"need a discount from 0 to 1, got {number}")
    return number


def as_row(values: Any, names: tuple[str, ...], what: str) -> Any:
    """One number for each name."""
    if len(values) != len(names):
        raise InputError(f"need {what} {names}, got {_short(values)}")
    return values


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else text[:100] + " …"
