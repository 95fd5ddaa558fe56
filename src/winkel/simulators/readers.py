"""How observations of other libraries become arrays: one layout and one function to read them.

A uint8 array of rank 2 (height, width) or 3 (height, width, channels, or channels first if they are
at most 4) whose picture has sides of at least 8 is a picture and stays uint8. All else becomes
float32 numbers as they are, unscaled.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from winkel.simulators.base import Layout

DEFAULT_STACK = 4
"""Frames that an agent sees of a picture, unless `stack` says otherwise."""

_SMALLEST_SIDE = 8
_MOST_CHANNELS = 4


class Reader(NamedTuple):
    """What observations look like once read, and how to read one."""

    layout: Layout
    read: Callable[[Any], Any]


def array_reader(shape: tuple[int, ...], dtype: Any, stack: int) -> Reader:
    """For arrays of this shape and type; a single number is read as an array of one."""
    if np.dtype(dtype) == np.uint8:
        if len(shape) in (2, 3) and min(shape[:2]) >= _SMALLEST_SIDE:
            return Reader(Layout(shape, "uint8", stack), np.asarray)
        if len(shape) == 3 and shape[0] <= _MOST_CHANNELS and min(shape[1:]) >= _SMALLEST_SIDE:
            return Reader(Layout((*shape[1:], shape[0]), "uint8", stack), _channels_last)
    return Reader(Layout(shape or (1,), "float32"), np.asarray)


def one_hot_reader(num: int, first: int) -> Reader:
    """For the whole numbers first … first + num − 1."""

    def read(obs: Any) -> np.ndarray:
        vector = np.zeros(num, np.float32)
        index = int(obs) - first
        if not 0 <= index < num:
            raise ValueError(f"observation {obs} is not one of {first} … {first + num - 1}")
        vector[index] = 1.0
        return vector

    return Reader(Layout((num,), "float32"), read)


def _channels_last(obs: Any) -> np.ndarray:
    obs = np.asarray(obs)
    return np.moveaxis(obs, 0, -1) if obs.ndim == 3 else obs
