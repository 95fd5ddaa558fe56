"""Scores of different environments made comparable: the calibration of appendix B.1."""

import numpy as np
from jaxtyping import Float

from winkel.errors import InputError


def calibrated(scores: Float[np.ndarray, " trials"]) -> Float[np.ndarray, " trials"]:
    """½ exp(ln 2 (f − μ) / (sup f − μ)): 1 for the best, ½ for an exactly average configuration.

    Half the paper's formula, whose values are 2 and 1 where its text says 1 and 0.5, and ln 2 in
    place of 0.693; the ranking is the same. Where all scores are equal each is exactly average: ½.
    """
    scores = np.asarray(scores, float)
    if not len(scores):
        return scores
    if not np.isfinite(scores).all():
        raise InputError(f"need finite scores to calibrate, got {scores[~np.isfinite(scores)][0]}")
    best, mean = float(np.max(scores)), float(np.mean(scores))
    if np.all(scores == best) or not best > mean:  # the mean of equal numbers may be rounded
        return np.full(len(scores), 0.5)
    return 0.5 * np.exp2((scores - mean) / (best - mean))


def final_scores(
    scores: Float[np.ndarray, "trials envs"],
) -> tuple[Float[np.ndarray, "trials envs"], Float[np.ndarray, " trials"]]:
    """Calibrated scores by environment, and their sum: what a configuration is chosen by."""
    scores = np.asarray(scores, float)
    if not scores.size:
        return scores, np.zeros(len(scores))
    columns = np.stack([calibrated(column) for column in scores.T], axis=1)
    return columns, columns.sum(axis=1)
