"""The arrays that the pool and its workers share, one row for each environment.

They lie in a file without a name, so that nothing can be left behind: it is gone with the last
process that has it open, however that process ends.
"""

import mmap
import os
import tempfile
from typing import Any, NamedTuple

import numpy as np

from winkel.simulators.base import Traits

_ALIGNMENT = 64  # bytes: rows of different arrays never share a cache line


class Arrays(NamedTuple):
    """Rows of all environments: the actions go in, everything else comes out."""

    actions: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    boundaries: np.ndarray
    next_obs: np.ndarray
    obs: np.ndarray
    facts: np.ndarray
    probes: np.ndarray


def _kinds(traits: Traits) -> dict[str, tuple[tuple[int, ...], str]]:
    """Row shape and type of each array."""
    observation = (traits.layout.shape, traits.layout.dtype)
    return {
        "actions": ((), "int32"),
        "rewards": ((), "float32"),
        "discounts": ((), "float32"),
        "boundaries": ((), "bool"),
        "next_obs": observation,
        "obs": observation,
        "facts": ((len(traits.facts),), "float32"),
        "probes": ((len(traits.probes),), "float32"),
    }


def _extents(traits: Traits, num: int) -> list[int]:
    """Bytes of each array, rounded up."""
    extents = []
    for shape, dtype in _kinds(traits).values():
        used = num * int(np.prod(shape)) * np.dtype(dtype).itemsize
        extents.append(-(-used // _ALIGNMENT) * _ALIGNMENT)
    return extents


def arrays_in(buffer: Any, traits: Traits, num: int) -> Arrays:
    """The arrays of `num` environments that lie in a buffer of `num_bytes`."""
    views, start = {}, 0
    kinds = _kinds(traits).items()
    for (name, (shape, dtype)), extent in zip(kinds, _extents(traits, num), strict=True):
        count = num * int(np.prod(shape))
        flat = np.frombuffer(buffer, dtype, count, start) if count else np.zeros(0, dtype)
        views[name] = flat.reshape(num, *shape)
        start += extent
    return Arrays(**views)


def num_bytes(traits: Traits, num: int) -> int:
    """Room that the arrays of `num` environments need."""
    return sum(_extents(traits, num))


def private(traits: Traits, num: int) -> Arrays:
    """Arrays that only this process sees."""
    return arrays_in(bytearray(num_bytes(traits, num)), traits, num)


def nameless_file() -> int:
    """Descriptor of an empty file without a name, in memory where the system offers that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("winkel")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def shared(file: int, traits: Traits, num: int) -> Arrays:
    """Arrays in a nameless file, which is made large enough; they outlive its descriptor."""
    size = num_bytes(traits, num)
    if os.fstat(file).st_size < size:
        os.ftruncate(file, size)
    return arrays_in(mmap.mmap(file, size), traits, num)
