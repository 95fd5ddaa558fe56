"""What a session is asked for: how to train, and which runs."""

from dataclasses import dataclass
from typing import NamedTuple

from winkel.envs.host import HostTask
from winkel.envs.registry import Task, longest_episode
from winkel.errors import InputError, require_integer
from winkel.runs.recording import Recorder
from winkel.runs.spec import Configured
from winkel.training.lanes import Plan
from winkel.training.steps import Horizon

DEFAULT_SNAPSHOTS = 6


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to train, none of which shapes what is learned.

    Evaluations and snapshots happen at the first end of a chunk after their time.
    """

    evaluate_every: int | None = None
    """Episodes (or steps, where the horizon counts steps) between greedy evaluations."""
    evaluation_episodes: int = 1
    """Greedy episodes of each evaluation."""
    snapshots: int = DEFAULT_SNAPSHOTS
    """Looks at all countable observations, from the start to the end; 0 for none."""
    checkpoint_seconds: float = 60.0
    """Least time between checkpoints, 0 for one after every chunk; at the end there is one anyway.
    It is longer where writing them would take more than a twentieth of the time."""
    chunk_steps: int = 100
    """Steps between two looks at the lanes."""
    log_every: int = 1
    """Chunks of a run for each line of its metrics; the last has one in any case."""
    shrink: int | None = None
    """When no run waits and half of the lanes are idle, go on in half as many, down to this number;
    None: never. Numbers of lanes round differently."""
    ahead: bool = False
    """Compile in the background what will be needed, and change to it when it is ready."""
    rest: bool = False
    """Leave out what settled agents need not learn: PE-DQN's bonus, when β has fallen to 0 in all
    lanes. Records are the same; what the bonus is afterwards, nobody learns."""

    devices: int = 1
    """Of this machine, that lanes are spread over. Each runs its share as a program of its own."""

    def __post_init__(self) -> None:
        require_integer("devices", self.devices, at_least=1)
        if self.evaluate_every is not None:
            require_integer("evaluate_every", self.evaluate_every, at_least=1)
        require_integer("evaluation_episodes", self.evaluation_episodes, at_least=1)
        require_integer("snapshots", self.snapshots, at_least=0)
        require_integer("chunk_steps", self.chunk_steps, at_least=1)
        require_integer("log_every", self.log_every, at_least=1)
        if self.shrink is not None:
            require_integer("shrink", self.shrink, at_least=1)
        if not self.checkpoint_seconds >= 0:
            raise InputError(f"need checkpoint_seconds >= 0, got {self.checkpoint_seconds}")


class Planned(NamedTuple):
    """A run to be made, and where its records go.

    Attributes:
        task: the environment's setting; all runs of a session share its shapes.
        configured: the agent; all runs of a session share its static settings.
        horizon: when schedules end.
        stop: when the run stops before that.
        recorder: what keeps its records.
    """

    task: Task | HostTask
    configured: Configured
    horizon: Horizon
    stop: Horizon | None
    recorder: Recorder

    @property
    def most_steps(self) -> int | None:
        """That the run can have: all its episodes as long as can be. None where nobody knows."""
        end = self.stop or self.horizon
        if isinstance(self.task, HostTask):
            return None
        return min(int(end.episodes) * longest_episode(self.task.id), int(end.steps))

    def plan(self) -> Plan:
        """The same for `Lanes`, from its beginning."""
        packing = self.task.packing
        return Plan(
            params=self.task.params,
            hyper=self.configured.hyper,
            horizon=self.horizon,
            seed=self.recorder.config["seed"],
            copy=self.task.copy,
            fan_in=self.task.inputs,
            stop=self.stop,
            available=None if packing is None else packing.actions,
            facts=None if packing is None else packing.facts,
            most_steps=self.most_steps,
        )
