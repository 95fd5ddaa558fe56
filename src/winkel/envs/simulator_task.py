"""Tasks whose environment is a simulator: Gymnasium, dm_env, VizDoom, or a user's own.

Making one starts the simulator once, to learn its shapes. If an agent needs the range of returns
and the user sets none, γ and the rewards of a random policy give it.
"""

import dataclasses
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from winkel.envs.base import Task
from winkel.errors import InputError, require_integer
from winkel.simulators import names
from winkel.simulators.base import Layout
from winkel.simulators.pool import TIMEOUT, Pool
from winkel.types import Dense, Image, Observation

MAX_ENVS = 10_000
"""Most environments, and most processes, of a run."""
DOOM_ENVS = 32
"""Environments of a run in VizDoom by default, as in the paper."""
RANDOM_STEPS = 1_000
"""Steps of a random policy from which a range of returns is estimated."""
UNKNOWN = (-1.0, 1.0)
"""The range of returns if a random policy meets no reward."""
MARGIN = 0.1
"""Fraction of an estimated range that is added at each end."""


_MOST = 2**31 - 1


class EnvShape(NamedTuple):
    """What networks depend on: the form of observations, and the number of actions."""

    observation: Observation
    num_actions: int


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatorTask(Task):
    """A simulator, which runs in worker processes.

    Attributes:
        maker: makes one.
        num_envs: environments per run.
        workers: processes for all environments; None: by the number of CPUs.
        timeout: seconds that a worker may take to make, reset or step its environments.
        named: whether the user has named it; if not, a run's folder has.
        notice: gets a sentence before rewards are measured.
    """

    maker: Any
    num_envs: int = 1
    workers: int | None = None
    timeout: float = TIMEOUT
    named: bool = True
    notice: Callable[[str], None] = lambda _: None

    compiled: ClassVar[bool] = False

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of all actions if the maker has them, else none."""
        return tuple(getattr(self.maker, "action_names", ()))

    def pool(self, seeds: list[int], notice: Callable[[str], None]) -> Pool:
        """Start an environment for each seed.

        What a folder names is started only if the name does not choose which code runs.
        """
        if not self.named and names.chooses_code(self.id):
            raise InputError(
                f"the run names the environment {self.id!r}, which winkel starts only if you name "
                f"it: add --env {shlex.quote(self.id)} (in Python: winkel.load(…, env={self.id!r}))"
            )
        return Pool(
            self.maker, seeds, self.workers, name=self.id, timeout=self.timeout,
            search_here=self.named, notice=notice,
        )  # fmt: skip

    @cached_property
    def rewards(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Lowest and highest rewards of a random policy, within episodes and at their ends."""
        self.notice(
            f"measuring rewards of a random policy in {RANDOM_STEPS:,} steps of {self.id}; "
            "--z-min and --z-max make it unnecessary"
        )
        with dataclasses.replace(self, workers=1).pool([0], self.notice) as pool:
            return _measure_rewards(pool)

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

    def describe(self) -> dict[str, Any]:
        """Return the entries of a run's config from which `registry.remake` makes it again."""
        form = self.env.observation
        frames = isinstance(form, Image)
        host = {
            "num_envs": self.num_envs,
            "shape": list(form.frame if frames else form.shape),
            "dtype": "uint8" if frames else "float32",
            "stack": form.stack if frames else 1,
            "actions": self.env.num_actions,
            "facts": list(self.facts),
            "probes": list(self.probes),
        }
        return super().describe() | {"host": host}


def make_simulator_task(
    name: str,
    *,
    num_envs: int | None = None,
    workers: int | None = None,
    timeout: float = TIMEOUT,
    notice: Callable[[str], None] = lambda _: None,
) -> SimulatorTask:
    """Start the simulator of a name once to learn its shapes."""
    if num_envs is None:
        num_envs = DOOM_ENVS if name.startswith("doom:") else 1
    require_integer("num_envs", num_envs, at_least=1, at_most=MAX_ENVS)
    if workers is not None:
        require_integer("workers", workers, at_least=0, at_most=MAX_ENVS)
    task_id, maker = names.parse(name)
    with Pool(maker, [0], 1, name=task_id, timeout=timeout) as pool:
        return SimulatorTask(
            id=task_id,
            env=EnvShape(_to_observation(pool.layout), pool.num_actions),
            maker=maker,
            facts=pool.facts,
            probes=pool.probes,
            num_envs=num_envs,
            workers=workers,
            timeout=timeout,
            notice=notice,
        )


def remake_simulator(config: Mapping[str, Any]) -> SimulatorTask:
    """Make the task of a run again from the run's config, without starting the simulator.

    The config is of a folder, which may be a stranger's: see `SimulatorTask.pool`.
    """
    host = config["host"]
    layout = Layout(tuple(host["shape"]), host["dtype"], host["stack"])
    facts, probes = tuple(host["facts"]), tuple(host["probes"])
    counts = (*layout.shape, layout.stack, host["actions"], host["num_envs"])
    counted = all(type(count) is int and 0 < count <= _MOST for count in counts)
    named = all(type(name) is str for name in (*facts, *probes))
    if layout.dtype == "uint8":
        formed = len(layout.shape) in (2, 3)
    else:
        formed = layout.dtype == "float32" and layout.shape != () and layout.stack == 1
    if not (counted and named and formed and math.prod(layout.shape) * layout.stack <= _MOST):
        raise InputError(f"need the shapes of {config['env']} in its config, got {host!r:.120}")
    return SimulatorTask(
        id=config["env"],
        env=EnvShape(_to_observation(layout), host["actions"]),
        maker=names.parse(config["env"])[1],
        facts=facts,
        probes=probes,
        num_envs=host["num_envs"],
        named=False,
    )


def confirm(task: Task, env: str) -> Task:
    """Return the task of a run, now named by the user as `env`; raise if that is another one."""
    named, own = env, task.id
    if isinstance(task, SimulatorTask):
        (named, _), (own, _) = names.parse(env), names.parse(task.id)
        task = dataclasses.replace(task, named=True)
    if named != own:
        raise InputError(f"need the environment of the run, {own!r}, got {named!r}")
    return task


def _to_observation(layout: Layout) -> Observation:
    """Return the form of an agent's observations of a simulator."""
    if layout.dtype == "uint8":
        return Image(frame=layout.shape, stack=layout.stack)
    return Dense(layout.shape)


def estimate_range(
    running: tuple[float, float], final: tuple[float, float], gamma: float
) -> tuple[float, float]:
    """Return the range of returns as if rewards within an episode were paid at every step.

    `running` and `final` are the lowest and the highest reward within episodes and on their last
    transitions. The range has a margin except at 0; it is `UNKNOWN` if all rewards are 0.
    """
    if gamma >= 1.0:
        raise InputError("need gamma < 1 to estimate the range of returns, got 1")
    low, high = (running[end] / (1.0 - gamma) + final[end] for end in (0, 1))
    if low == high:
        return UNKNOWN
    margin = MARGIN * (high - low)
    return low - margin * (low < 0.0), high + margin * (high > 0.0)


def _measure_rewards(pool: Pool) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the lowest and highest rewards of a random policy, within episodes and at their ends.

    0 is always between them.
    """
    rng = np.random.default_rng(0)
    pool.reset()
    running, final = [0.0], [0.0]
    for _ in range(RANDOM_STEPS):
        steps = pool.step(rng.integers(pool.num_actions, size=len(pool)))
        ended = steps.boundary & (steps.discount == 0.0)
        running += steps.reward[~ended].tolist()
        final += steps.reward[ended].tolist()
    return (min(running), max(running)), (min(final), max(final))
