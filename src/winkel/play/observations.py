"""Observations as pictures, or as a few numbers where there is nothing to see."""

import math
from collections.abc import Sequence

import numpy as np

from winkel.types import Image, Observation, OneHot

MAX_NUMBERS = 16
"""Up to so many numbers are shown as numbers, or in one row of a picture."""


def newest_frame(observation: Observation, obs: np.ndarray) -> np.ndarray:
    """Return the newest frame of a stack, and any other observation as it is."""
    return np.array(obs[-1] if isinstance(observation, Image) else obs)


def to_arrays(
    observation: Observation,
    kept: Sequence[np.ndarray],
    side: int | None = None,
    inputs: int | None = None,
    max_numbers: int = MAX_NUMBERS,
) -> dict[str, np.ndarray]:
    """Convert observations to what a film shows.

    Args:
        observation: their form.
        kept: the observations, by `newest_frame`.
        side: of a square grid that is padded to a larger one.
        inputs: how many numbers count, the first ones, if numbers are padded.
        max_numbers: up to so many numbers are returned as numbers.

    Returns:
        `pictures`, uint8 [observations, rows, columns] or with a last axis of red, green and blue,
        and `cells` if they are grids and not frames; or `numbers` [observations, numbers].
    """
    stacked = np.stack(kept)
    if isinstance(observation, Image):
        return {"pictures": _gray_or_colour(stacked)}
    if isinstance(observation, OneHot):
        ones = np.arange(observation.size) == stacked[:, None]
        stacked = ones.reshape(-1, *observation.shape).astype(np.uint8)
    else:
        if inputs is not None:
            stacked = stacked.reshape(len(stacked), -1)[:, :inputs]
        if stacked[0].size <= max_numbers:
            return {"numbers": stacked.reshape(len(stacked), -1).astype(np.float64)}
    grids = _to_grids(stacked, side)
    low, high = float(grids.min()), float(grids.max())
    dark = (grids - low) / (high - low or 1.0)
    return {"pictures": np.round(255 * (1.0 - dark)).astype(np.uint8), "cells": np.asarray(True)}


def _gray_or_colour(frames: np.ndarray) -> np.ndarray:
    """Average over the channels unless there are three."""
    if frames.ndim == 3 or frames.shape[-1] == 3:
        return frames
    return np.round(frames.mean(axis=-1)).astype(np.uint8)


def _to_grids(stacked: np.ndarray, side: int | None) -> np.ndarray:
    """Give two axes to each observation: its own, else rows that make it nearly square."""
    shape = stacked.shape[1:]
    if len(shape) >= 2 and shape[0] > 1:
        grids = stacked.reshape(len(stacked), shape[0], -1)
        return grids[:, :side, :side] if len(shape) == 2 else grids
    flat = stacked.reshape(len(stacked), -1)
    count = flat.shape[1]
    columns = count if count <= MAX_NUMBERS else math.ceil(math.sqrt(count))
    padding = -count % columns
    flat = np.pad(flat, ((0, 0), (0, padding)), constant_values=flat.min())
    return flat.reshape(len(flat), -1, columns)
