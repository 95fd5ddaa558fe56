"""Write the greedy policy of a run as a file for `winkel.numpy_policy`."""

import json
import math
import shlex
from dataclasses import asdict
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from winkel.envs.outside import OutsideTask
from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.files import save_arrays
from winkel.networks import Ensemble
from winkel.numpy_policy import FORMAT
from winkel.projections import Categorical, Expectile, Quantile
from winkel.runs.spec import RunSpec, configure
from winkel.training.steps import UNLIMITED
from winkel.types import Image, Planes


def save_policy(path: Path, run: Any, returns: np.ndarray | None = None) -> None:
    """Save the policy of a run that is loaded with its agent, and returns of greedy episodes.

    Observations of one cell in a grid give a table of values, whatever the agent; other numbers
    give the networks of the values, on planes with their torso. Padding to other settings is left
    out.
    """
    if path.suffix != ".npz":
        raise InputError(f"need a file name that ends in .npz, got {path}")
    spec: RunSpec = run.spec
    seen = spec.agent.spec.observation
    if isinstance(seen, Image):
        raise InputError(
            f"need observations of numbers for a policy file, {run.task.id} has images"
        )
    task = make(run.task.id) if run.task.padded or run.task.pack else run.task
    about: dict[str, Any] = {
        "format": FORMAT,
        "one_hot": spec.agent.spec.one_hot,
        "shape": list(task.env.observation.shape),
        "num_actions": task.env.num_actions,
        "agent": spec.label,
        "seed": spec.seed,
        "command": train_command(spec),
        "task": task.describe(),
    }
    if returns is not None:
        mean, std = float(returns.mean()), float(returns.std())
        about["returns"] = {"mean": mean, "std": std, "episodes": len(returns)}
    if about["one_hot"]:
        size = math.prod(seen.shape)
        cells = np.arange(size).reshape(seen.shape)[tuple(map(slice, about["shape"]))]
        arrays = {"table": run.values(np.append(cells, size))}
    else:
        found = spec.agent.value_networks(run.learner, spec.hyper)
        about["members"] = [_describe(projection) for projection in found.projections]
        about["prior_members"] = []
        arrays = {}
        if isinstance(seen, Planes):
            filters, about["symbols"] = run.learner.shared.params.torso.filters, seen.values
            arrays = {
                "torso_weight": np.asarray(filters.weight),
                "torso_bias": np.asarray(filters.bias),
            }
        arrays |= _layers("network", found.networks, about)
        if found.prior is not None:
            arrays |= _layers("prior", found.prior, about, float(found.prior_scale))
            prior_members = found.prior_members
            every = range(len(found.projections))
            about["prior_members"] = list(every if prior_members is None else prior_members)
    save_arrays(path, arrays | {"about": np.array(json.dumps(about))})


def _layers(
    name: str, network: Ensemble, about: dict[str, Any], scale: float = 1.0
) -> dict[str, np.ndarray]:
    """Return weights and biases of all members, without padding; the last ones are scaled."""
    arrays: dict[str, np.ndarray] = {}
    for depth, layer in enumerate(network.layers):
        weight, bias = np.asarray(layer.weight), np.asarray(layer.bias)
        if depth == 0 and "symbols" not in about:
            weight = weight[:, : math.prod(about["shape"])]
        if depth == len(network.layers) - 1:
            width = about["num_actions"] * (network.columns or bias.shape[-1] // network.rows)
            weight, bias = (np.float32(scale) * x[..., :width] for x in (weight, bias))
        arrays |= {f"{name}_weight_{depth}": weight, f"{name}_bias_{depth}": bias}
    return arrays


def _describe(projection: Any) -> dict[str, Any]:
    """Say how the mean of a member's distribution follows from its outputs."""
    if isinstance(projection, Categorical):
        return {"kind": "categorical", "support": [projection.z_min, projection.z_max]}
    for kinds, name in (((Quantile, NoneType), "mean"), (Expectile, "expectile")):
        if isinstance(projection, kinds):
            return {"kind": name}
    raise InputError(f"need a projection of winkel for a policy file, got {projection!r:.60}")


def train_command(spec: RunSpec) -> str:
    """Return the command that makes a run, with all fields that are not the agent's defaults."""
    task, settings = spec.task, asdict(spec.agent.config) | spec.hyper._asdict()
    support = {z: settings[z] for z in ("z_min", "z_max") if z in settings}
    support = support if isinstance(task, OutsideTask) else {}
    agent, hyper = configure(spec.algorithm, support, task)
    defaults = asdict(agent.config) | hyper._asdict()
    options = {name: n for name, n in spec.horizon._asdict().items() if n != UNLIMITED}
    more = {"until": spec.until, "first_seed": spec.seed, "num_envs": getattr(task, "num_envs", 1)}
    usual = {"until": None, "first_seed": 0, "num_envs": 1} | defaults
    options |= {name: x for name, x in (more | settings).items() if x != usual[name]} | support
    words = ["winkel", "train", task.id, "--agent", spec.algorithm]
    for name, value in options.items():
        text = ",".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", text]
    return shlex.join(words)
