"""Tasks whose environment is not winkel's own, and those of simulators among them.

Their range of returns is unknown. If an agent needs it and the user sets none, γ and the rewards of
a random policy give it.
"""

import dataclasses
import math
import shlex
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from winkel.envs.base import Task
from winkel.errors import LARGEST, InputError, require_integer
from winkel.simulators import names
from winkel.simulators.base import Layout, Notice
from winkel.simulators.names import Factory, identify
from winkel.simulators.pool import TIMEOUT, Pool
from winkel.types import Dense, Image

RANDOM_STEPS = 1_000
"""Steps of a random policy from which a range of returns is estimated."""
UNKNOWN = (-1.0, 1.0)
"""The range of returns if a random policy meets no reward."""
MARGIN = 0.1
"""Fraction of an estimated range that is added at each end."""
MAX_ENVS = 10_000
"""Most environments, and most processes, of a run."""
Rewards = tuple[tuple[float, float], tuple[float, float]]
"""Lowest and highest rewards within episodes, and on their last transitions."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OutsideTask(Task):
    """An environment of other code."""

    named: bool = True
    """Whether the user has named it; if not, a run's folder has."""
    notice: Notice = lambda _: None
    """Gets a sentence before rewards are measured."""

    @abstractmethod
    def measure_rewards(self) -> Rewards:
        """Return the rewards of a random policy in `RANDOM_STEPS` steps."""

    @abstractmethod
    def named_as(self, env: Any) -> "OutsideTask":
        """Return the task of what the user names instead, with the shapes of this one."""

    @cached_property
    def rewards(self) -> Rewards:
        """The rewards of a random policy, measured once."""
        self.notice(
            f"measuring rewards of a random policy in {RANDOM_STEPS:,} steps of {self.id}; "
            "--z-min and --z-max make it unnecessary"
        )
        return self.measure_rewards()

    @property
    def range_origin(self) -> str:
        """How the range of returns was estimated."""
        if self.rewards == ((0.0, 0.0), (0.0, 0.0)):
            return "though a random policy met no reward"
        return "by a random policy's rewards"

    def return_range(self, gamma: float) -> tuple[float, float]:
        """Return the range of discounted returns, estimated from the rewards of a random policy."""
        if not self.named:
            return super().return_range(gamma)
        return estimate_range(*self.rewards, gamma)


def check_named(name: str, named: bool) -> None:
    """Raise if only the folder of a run names an environment, and its name chooses code to run."""
    if not named and name.startswith(names.FACTORY):
        names.ask_for_factory(name)
    if not named and names.chooses_code(name):
        raise InputError(
            f"the run names the environment {name!r}, which winkel starts only if you name "
            f"it: add --env {shlex.quote(name)} (in Python: winkel.load(…, env={name!r}))"
        )


def confirm(task: Task, env: Any) -> Task:
    """Return the task of a run, now named by the user as `env`; raise if that is another one."""
    own, named = task.id, env
    if isinstance(task, OutsideTask):
        own, task = names.split(own)[0], task.named_as(env)
        named = task.id
    if named != own:
        raise InputError(f"need the environment of the run, {own!r}, got {named!r}")
    return task


def reward_ends(reward: np.ndarray, ended: np.ndarray) -> Rewards:
    """Return the lowest and highest rewards by whether an episode ended; 0 is between them."""
    running, final = (np.append(reward[which], 0.0) for which in (~ended, ended))
    return (float(running.min()), float(running.max())), (float(final.min()), float(final.max()))


def estimate_range(
    running: tuple[float, float], final: tuple[float, float], gamma: float
) -> tuple[float, float]:
    """Return the range of returns if `running` rewards came at every step, with a margin."""
    if gamma >= 1.0:
        raise InputError("need gamma < 1 to estimate the range of returns, got 1")
    low, high = (running[end] / (1.0 - gamma) + final[end] for end in (0, 1))
    if low == high:
        return UNKNOWN
    margin = MARGIN * (high - low)
    return low - margin * (low < 0.0), high + margin * (high > 0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatorTask(OutsideTask):
    """A simulator, which runs in worker processes."""

    maker: Any
    num_envs: int = 1
    """Environments per run."""
    workers: int | None = None
    """Processes for all environments; None: by the number of CPUs."""
    timeout: float = TIMEOUT
    """Seconds that a worker may take to make, reset or step its environments."""

    compiled: ClassVar[bool] = False

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of all actions if the maker has them, else none."""
        return tuple(getattr(self.maker, "action_names", ()))

    def pool(self, seeds: list[int], notice: Notice) -> Pool:
        """Start an environment for each seed."""
        check_named(self.id, self.named)
        return Pool(
            self.maker, seeds, self.workers, name=self.id, timeout=self.timeout,
            search_here=self.named, notice=notice,
        )  # fmt: skip

    def named_as(self, env: Any) -> "SimulatorTask":
        given = identify(env)
        if isinstance(given, str):
            return dataclasses.replace(self, named=True, id=names.split(given)[0])
        workers = None if given.can_travel else 0
        return dataclasses.replace(
            self, named=True, id=given.name, maker=given.maker, workers=workers
        )

    def measure_rewards(self) -> Rewards:
        rng = np.random.default_rng(0)
        with self.pool([0], self.notice) as pool:
            pool.reset()
            actions = (rng.integers(pool.num_actions, size=1) for _ in range(RANDOM_STEPS))
            steps = [pool.step(action) for action in actions]
        rewards = np.concatenate([step.reward for step in steps])
        ended = [step.boundary & (step.discount == 0.0) for step in steps]
        return reward_ends(rewards, np.concatenate(ended))

    def describe(self) -> dict[str, Any]:
        form = self.env.observation
        shape, stack = (form.frame, form.stack) if isinstance(form, Image) else (form.shape, 1)
        host = {"num_envs": self.num_envs, "shape": list(shape), "dtype": form.dtype}
        host |= {"stack": stack, "actions": self.env.num_actions}
        host |= {"facts": list(self.facts), "probes": list(self.probes)}
        return super().describe() | {"host": host}


def make_simulator_task(
    env: str | Factory,
    *,
    num_envs: int | None = None,
    workers: int | None = None,
    timeout: float = TIMEOUT,
    notice: Notice = lambda _: None,
) -> SimulatorTask:
    """Start the simulator of a name or of a factory once to learn its shapes."""
    task_id, maker = (env.name, env.maker) if isinstance(env, Factory) else names.parse(env)
    if num_envs is None:
        num_envs = 32 if task_id.startswith("doom:") else 1  # as in the paper
    require_integer("num_envs", num_envs, at_least=1, at_most=MAX_ENVS)
    if workers is not None:
        require_integer("workers", workers, at_least=0, at_most=MAX_ENVS)
    if isinstance(env, Factory) and not env.can_travel:
        if workers:
            raise InputError(
                f"need workers=0 for {task_id}, which other processes cannot load, got {workers}"
            )
        workers = 0
    with Pool(maker, [0], workers, name=task_id, timeout=timeout) as pool:
        shape = _shape(pool.layout, pool.num_actions)
    return SimulatorTask(
        id=task_id, env=shape, maker=maker, facts=pool.facts, probes=pool.probes,
        num_envs=num_envs, workers=workers, timeout=timeout, notice=notice,
    )  # fmt: skip


def remake_simulator(config: Mapping[str, Any]) -> SimulatorTask:
    """Make the task of a run again from its config, without starting the simulator."""
    host = config["host"]
    layout = Layout(tuple(host["shape"]), host["dtype"], host["stack"])
    facts, probes = tuple(host["facts"]), tuple(host["probes"])
    counts = (*layout.shape, layout.stack, host["actions"], host["num_envs"])
    counted = all(type(count) is int and 0 < count <= LARGEST for count in counts)
    named = all(type(name) is str for name in (*facts, *probes))
    formed = layout.dtype == "float32" and layout.shape != () and layout.stack == 1
    formed |= layout.dtype == "uint8" and len(layout.shape) in (2, 3)
    if not (counted and named and formed and math.prod(layout.shape) * layout.stack <= LARGEST):
        raise wrong_shapes(config["env"], host)
    maker = names.parse(config["env"])[1]
    return SimulatorTask(
        id=config["env"], env=_shape(layout, host["actions"]), maker=maker, facts=facts,
        probes=probes, num_envs=host["num_envs"], named=False,
    )  # fmt: skip


def wrong_shapes(name: str, entry: Any) -> InputError:
    """Return the error of a config without the shapes of its environment."""
    return InputError(f"need the shapes of {name} in its config, got {entry!r:.120}")


def _shape(layout: Layout, num_actions: int) -> SimpleNamespace:
    """Return what networks depend on: the form of observations, and the number of actions."""
    pictures = layout.dtype == "uint8"
    form = Image(layout.shape, layout.stack) if pictures else Dense(layout.shape)
    return SimpleNamespace(observation=form, num_actions=num_actions)
