"""Act with a policy file that winkel has written (`run.export_policy`, `winkel evaluate`).

This module needs NumPy and nothing else; it may be copied alone next to the file:

    policy = load("policy.npz")
    action = policy(obs)        # of one observation; of a batch an array of actions

The file is data only. Loading it runs no code.
"""

import json
import math
import zipfile
import zlib
from os import PathLike
from typing import Any

import numpy as np

FORMAT = 1
"""Version of the files."""


class Policy:
    """A greedy policy. `about` is what the file says: environment, agent, seed, returns …"""

    def __init__(self, about: dict[str, Any], arrays: dict[str, np.ndarray]):
        self.about = about
        self.shape = tuple(about["shape"])
        self.num_actions: int = about["num_actions"]
        self._arrays = arrays

    def __call__(self, obs: Any) -> Any:
        """Return the action of highest value: an int, or an array of them for a batch."""
        actions = self.values(obs).argmax(axis=-1)
        return int(actions) if actions.ndim == 0 else actions

    def values(self, obs: Any) -> np.ndarray:
        """Return the values of all actions, `[A]`, or `[N, A]` for a batch."""
        array, table = np.asarray(obs), self._arrays.get("table")
        if table is not None and array.ndim < 2 and array.dtype.kind in "iu":
            return table[array]  # indices of cells instead of grids
        single = array.shape == self.shape
        if array.dtype.kind not in "fiub" or not (single or array.shape[1:] == self.shape):
            raise ValueError(
                f"need numbers of shape {list(self.shape)}, or a batch of such observations, got "
                f"{array.dtype} of shape {list(array.shape)}"
            )
        flat = array.reshape(-1, math.prod(self.shape)).astype(np.float32)
        if "torso_weight" in self._arrays:
            flat = self._run_torso(flat.reshape(-1, *self.shape))
        if table is None:
            found = self._run_networks(flat)
        else:  # the last row is for a grid without a one
            found = table[np.where(flat.any(axis=1), flat.argmax(axis=1), flat.shape[1])]
        return found[0] if single else found

    def _run_torso(self, planes: np.ndarray) -> np.ndarray:
        """Return the features of planes `[N, H, W, C]`: filters of 3 × 3 and a rectifier.

        Channels of symbols are replaced by one channel for each symbol.
        """
        if self.about["symbols"] is not None:
            counts = enumerate(self.about["symbols"])
            ones = [planes[..., i, None] == np.arange(count) for i, count in counts]
            planes = np.concatenate(ones, axis=-1).astype(np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(planes, (3, 3), axis=(1, 2))
        weight = self._arrays["torso_weight"]
        x = np.moveaxis(windows, 3, -1).reshape(-1, len(weight)) @ weight
        return np.maximum(x + self._arrays["torso_bias"], 0.0).reshape(len(planes), -1)

    def _run_networks(self, obs: np.ndarray) -> np.ndarray:
        """Return the mean over members of the means that their outputs stand for."""
        members, outputs = self.about["members"], self._run("network", obs)
        if self.about["prior_members"]:
            outputs[self.about["prior_members"]] += self._run("prior", obs)
        outputs = outputs.reshape(len(members), len(obs), self.num_actions, -1)
        return np.mean([_mean(*pair) for pair in zip(outputs, members, strict=True)], axis=0)

    def _run(self, name: str, obs: np.ndarray) -> np.ndarray:
        """Return the outputs `[M, N, A · K]` of an ensemble of perceptrons."""
        x, depth = obs[None], 0
        while f"{name}_weight_{depth}" in self._arrays:
            x = np.maximum(x, 0.0) if depth else x
            bias = self._arrays[f"{name}_bias_{depth}"]
            x = x @ self._arrays[f"{name}_weight_{depth}"] + bias[:, None]
            depth += 1
        return x


def _mean(theta: np.ndarray, member: dict[str, Any]) -> np.ndarray:
    """Return the mean of the distribution that outputs `[N, A, K]` stand for."""
    if member["kind"] == "expectile":
        return np.sort(theta, axis=-1)[..., theta.shape[-1] // 2]
    if member["kind"] == "categorical":
        weights = np.exp(theta - theta.max(axis=-1, keepdims=True))
        low, high = member["support"]
        locations = np.linspace(low, high, theta.shape[-1], dtype=np.float32)
        return (weights * locations).sum(axis=-1) / weights.sum(axis=-1)
    return theta.mean(axis=-1)


def load(path: "str | PathLike[str]") -> Policy:
    """Load a policy file; raise `ValueError` if it is none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("about")))
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']}, not {FORMAT}")
        policy = Policy(about, arrays)
        if policy.values(np.zeros(policy.shape)).shape != (policy.num_actions,):
            raise ValueError("its arrays do not fit")
        return policy
    except (
        AttributeError, EOFError, LookupError, TypeError, ValueError, zipfile.BadZipFile, zlib.error
    ) as error:  # fmt: skip
        raise ValueError(f"{path} is not a policy file of winkel ({error})") from error
