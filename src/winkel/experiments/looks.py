"""Observations as pictures for people, or as a few numbers where there is nothing to see."""

import math
from dataclasses import dataclass, field

import numpy as np

from winkel.types import Image, Observation, OneHot

FEW = 16
"""So many numbers are shown as such, more of them as a picture."""


@dataclass
class Look:
    """Collects observations of one kind.

    Attributes:
        observation: what they are.
        side: of a square grid, where it is padded to a larger one.
        inputs: numbers that count, the first ones, where plain numbers are padded.
    """

    observation: Observation
    side: int | None = None
    inputs: int | None = None
    _kept: list[np.ndarray] = field(init=False, default_factory=list)

    def add(self, obs: np.ndarray) -> None:
        """One more; of a stack of frames only the newest is kept."""
        self._kept.append(np.array(obs[-1] if isinstance(self.observation, Image) else obs))

    def arrays(self) -> dict[str, np.ndarray]:
        """`pictures`, uint8 [observations, rows, columns] or with a last axis of red, green and
        blue; `cells`, if they are no frames but grids; or `numbers` [observations, numbers].
        """
        kept = np.stack(self._kept)
        if isinstance(self.observation, Image):
            return {"pictures": _levels(kept)}
        if isinstance(self.observation, OneHot):
            hot = np.arange(self.observation.size) == kept[:, None]
            kept = hot.reshape(-1, *self.observation.shape).astype(np.uint8)
        elif self.inputs is not None:
            kept = kept.reshape(len(kept), -1)[:, : self.inputs]
        if kept[0].size <= FEW and not isinstance(self.observation, OneHot):
            return {"numbers": kept.reshape(len(kept), -1).astype(np.float64)}
        return {"pictures": _inked(self._grids(kept)), "cells": np.asarray(True)}

    def _grids(self, kept: np.ndarray) -> np.ndarray:
        """Two axes each: what has them, else rows that together are nearly square."""
        shape = kept.shape[1:]
        if len(shape) >= 2 and shape[0] > 1:
            grids = kept.reshape(len(kept), shape[0], -1)
            return grids[:, : self.side, : self.side] if len(shape) == 2 else grids
        flat = kept.reshape(len(kept), -1)
        count = flat.shape[1]
        columns = count if count <= FEW else math.ceil(math.sqrt(count))
        rows = math.ceil(count / columns)
        padded = np.full((len(flat), rows * columns), flat.min(), flat.dtype)
        padded[:, :count] = flat
        return padded.reshape(-1, rows, columns)


def _levels(frames: np.ndarray) -> np.ndarray:
    """Frames with one channel or three; others are averaged over."""
    if frames.ndim == 3 or frames.shape[-1] == 3:
        return frames
    return np.round(frames.mean(axis=-1)).astype(np.uint8)


def _inked(grids: np.ndarray) -> np.ndarray:
    """The highest number black, the lowest white."""
    low, high = float(grids.min()), float(grids.max())
    share = (grids - low) / (high - low or 1.0)
    return np.round(255 * (1.0 - share)).astype(np.uint8)


def newest(observation: Observation, obs: np.ndarray) -> np.ndarray:
    """One observation as a picture of two axes: gray levels of a frame, else its numbers."""
    if isinstance(observation, Image):
        frame = _levels(np.asarray(obs)[-1:])[0]
        return frame if frame.ndim == 2 else np.round(frame.mean(axis=-1)).astype(np.uint8)
    picture = np.asarray(observation.dense(obs))
    return picture.reshape(picture.shape[0], -1) if picture.ndim > 1 else picture.reshape(1, -1)
