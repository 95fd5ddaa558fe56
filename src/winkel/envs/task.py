"""Tasks: an environment with everything that a run must know about it.

`CompiledTask` is an environment of `winkel.envs`, which runs inside the compiled program.
`SimulatorTask` (`simulator_task.py`) runs in worker processes. Both have the interface of `Task`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from winkel.envs.base import Environment
from winkel.envs.bsuite.family import Family
from winkel.types import Observation


class EnvShape(NamedTuple):
    """What networks depend on: the form of observations, and the number of actions."""

    observation: Observation
    num_actions: int


class Packing(NamedTuple):
    """Shape of a setting alone, if it is padded to the shape of a pack.

    Attributes:
        pack: name of the pack in `PACKS`.
        inputs: size of its observations.
        actions: number of its actions; None if all settings of the pack have as many.
        facts: names of its facts.
    """

    pack: str
    inputs: int
    actions: int | None
    facts: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Task(ABC):
    """An environment with everything that a run must know about it.

    Attributes:
        id: canonical name.
        env: form of observations and number of actions; in a `CompiledTask` also its functions.
        facts: names of numbers that add up over an episode.
        params: last argument of `env.reset` and `env.step`; empty for simulators.
        setting: the parameters as plain numbers; empty for simulators.
        padded: whether it is padded to the shape of its experiment.
        packing: shape of the setting alone, if it is padded to the shape of a pack.
        copy: number of equal settings before it in bsuite: 3 for cartpole/3. With the same seed,
            copies must be different runs.
        num_envs: environments per run.
        num_episodes: how many episodes bsuite runs, or None.
        longest_episode: upper bound on the steps of an episode, or None if unknown.
        num_pairs: number of state-action pairs that episodes can visit, or None if unknown.
        probes: names of numbers that a simulator reports at every step.
        compiled: whether it runs inside the compiled program.
    """

    id: str
    env: Any
    facts: tuple[str, ...]
    params: Any = ()
    setting: Mapping[str, Any] = field(default_factory=dict)
    padded: bool = False
    packing: Packing | None = None
    copy: int = 0
    num_envs: int = 1
    num_episodes: int | None = None
    longest_episode: int | None = None
    num_pairs: int | None = None
    probes: tuple[str, ...] = ()

    compiled: ClassVar[bool]

    @property
    def inputs(self) -> int:
        """Size of an observation without padding."""
        return math.prod(self.env.observation.shape)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of all actions, or none."""
        return ()

    @property
    def range_origin(self) -> str | None:
        """How `return_range` was estimated, or None if it was not."""
        return None

    @abstractmethod
    def return_range(self, gamma: float) -> tuple[float, float]:
        """Return the range of discounted returns; raise `InputError` if it is unknown."""

    def describe(self) -> dict[str, Any]:
        """Return the entries of a run's config from which `registry.remake` makes it again."""
        return {"env": self.id, "setting": dict(self.setting), "padded": self.padded}


@dataclass(frozen=True, eq=False, kw_only=True)
class CompiledTask(Task):
    """An environment of `winkel.envs` with the parameters of one setting.

    Attributes:
        env: its functions.
        family: what is known about this kind of environment.
    """

    env: Environment
    family: Family

    compiled: ClassVar[bool] = True

    @property
    def inputs(self) -> int:
        """Size of an observation without padding."""
        if self.packing is not None:
            return self.packing.inputs
        return self.family.num_inputs(self.setting, self.env)

    def return_range(self, gamma: float) -> tuple[float, float]:
        """Return the range of discounted returns, which the family knows."""
        return self.family.return_range(self.setting, gamma)

    def describe(self) -> dict[str, Any]:
        """Return the entries of a run's config from which `registry.remake` makes it again."""
        entries = super().describe()
        if self.packing is not None:
            entries["packed"] = {
                "pack": self.packing.pack,
                "inputs": math.prod(self.env.observation.shape),
                "actions": self.env.num_actions,
            }
        return entries


class TaskBatch(NamedTuple):
    """Settings that share one environment: arrays of `params` have a first axis over them."""

    ids: tuple[str, ...]
    env: Environment
    params: Any
    settings: tuple[Mapping[str, Any], ...]
    num_episodes: tuple[int, ...]
