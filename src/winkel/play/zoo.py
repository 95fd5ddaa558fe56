"""The zoo: small trained policies that come with winkel, as files for `winkel.numpy_policy`."""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from winkel import numpy_policy
from winkel.envs.base import Task
from winkel.envs.registry import remake
from winkel.errors import InputError, suggest
from winkel.types import Atoms, Estimates

PREFIX = "zoo:"
"""Begins the names of these policies."""


@dataclass(frozen=True, eq=False)
class ZooPolicy:
    """A policy with the environment that it was trained in."""

    policy: numpy_policy.Policy
    task: Task
    config: dict[str, Any]
    """Environment, agent and seed."""
    folder: Path = Path()
    clock: None = None

    def estimates(self, obs: Any) -> Estimates:
        """Values of all actions; such a policy knows nothing else."""
        value: Any = self.policy.values(obs)
        members = Atoms(value[None, :, None], np.ones((1, len(value), 1), np.float32))
        nothing: Any = np.full_like(value, np.nan)
        return Estimates(value=value, members=members, disagreement=nothing, bonus=nothing)


def zoo_names() -> list[str]:
    """Names of all policies, 'zoo:catch' and so on."""
    return sorted(f"{PREFIX}{path.stem}" for path in _folder().glob("*.npz"))


def load_zoo(name: str) -> ZooPolicy:
    """Load a policy by its name."""
    if name not in zoo_names():
        raise InputError(
            f"no policy {name!r}; {suggest(name, zoo_names(), 'see `winkel list zoo`')}"
        )
    policy = numpy_policy.load(_folder() / f"{name.removeprefix(PREFIX)}.npz")
    task = remake(policy.about["task"])
    return ZooPolicy(policy, task, {"env": task.id, **policy.about})


def _folder() -> Path:
    return Path(str(resources.files("winkel"))) / "zoo"
