"""From the engine's picture to the 42×42 gray levels that an agent sees."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, UInt8

from winkel.errors import InputError

SIDE = 42
"""Pixels along each side of an observation."""


class Rendering(NamedTuple):
    """How a picture is drawn and made gray.

    Attributes:
        height: pixels that the engine draws, from top to bottom.
        width: the same, from left to right.
        luma: weights of red, green and blue, exact in float32, and so are the gray levels.
        whole: whether gray levels are rounded before they are averaged, halves up.
    """

    height: int
    width: int
    luma: tuple[float, float, float]
    whole: bool

    @property
    def resolution(self) -> str:
        """The engine's name for it."""
        return f"RES_{self.width}X{self.height}"


RENDERINGS = {
    # An 8-bit gray picture of 640×480, resized by averaging: 0.299, 0.587 and 0.114 in 15 bits.
    "paper": Rendering(480, 640, (9798 / 2**15, 19235 / 2**15, 3735 / 2**15), whole=True),
    "fast": Rendering(120, 160, (77 / 2**8, 150 / 2**8, 29 / 2**8), whole=False),
}


class Shrink:
    """Gray levels of a picture, averaged over SIDE × SIDE areas of equal size."""

    def __init__(self, rendering: str):
        if rendering not in RENDERINGS:
            raise InputError(f"need a rendering of {', '.join(RENDERINGS)}, got {rendering!r}")
        self.rendering = RENDERINGS[rendering]
        self._luma = np.array(self.rendering.luma, np.float32)
        self._rows = area_average(self.rendering.height).astype(np.float32)
        self._columns = np.ascontiguousarray(area_average(self.rendering.width).T, np.float32)

    def __call__(self, planes: UInt8[np.ndarray, "3 height width"]) -> UInt8[np.ndarray, "42 42"]:
        """The observation: averages, rounded to the nearest gray level."""
        return np.rint(self._rows @ (self.gray(planes) @ self._columns)).astype(np.uint8)

    def gray(
        self, planes: UInt8[np.ndarray, "3 height width"]
    ) -> Float32[np.ndarray, "height width"]:
        """Gray levels from 0 to 255 of every pixel."""
        levels = self._luma @ planes.reshape(3, -1).astype(np.float32)
        if self.rendering.whole:
            levels += np.float32(0.5)
            np.floor(levels, out=levels)
        return levels.reshape(planes.shape[1:])


def area_average(length: int) -> Float[np.ndarray, "42 length"]:
    """Weights of `length` pixels in each of SIDE cells of equal size; rows add up to 1."""
    edges = np.arange(SIDE + 1) * length / SIDE
    pixel = np.arange(length)
    covered = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
    return np.clip(covered, 0.0, None) * SIDE / length
