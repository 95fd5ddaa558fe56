"""Tasks whose environment is a simulator: Gymnasium, dm_env, VizDoom, or a user's own.

Making one starts the simulator once, to learn its shapes.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from winkel.envs.outside import RANDOM_STEPS, OutsideTask, Rewards, check_named, reward_ends
from winkel.errors import LARGEST, InputError, require_integer
from winkel.simulators import names
from winkel.simulators.base import Layout
from winkel.simulators.names import Factory, identify
from winkel.simulators.pool import TIMEOUT, Pool
from winkel.types import Dense, Image, Observation

MAX_ENVS = 10_000
"""Most environments, and most processes, of a run."""
DOOM_ENVS = 32
"""Environments of a run in VizDoom by default, as in the paper."""


class EnvShape(NamedTuple):
    """What networks depend on: the form of observations, and the number of actions."""

    observation: Observation
    num_actions: int


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

    def pool(self, seeds: list[int], notice: Callable[[str], None]) -> Pool:
        """Start an environment for each seed."""
        if not self.named and self.id.startswith(names.FACTORY):
            names.ask_for_factory(self.id)
        check_named(self.id, self.named)
        return Pool(
            self.maker, seeds, self.workers, name=self.id, timeout=self.timeout,
            search_here=self.named, notice=notice,
        )  # fmt: skip

    def with_one_worker(self) -> "SimulatorTask":
        """Return the same task with one process at most; with none if it has none."""
        return dataclasses.replace(self, workers=_at_most_one(self.workers))

    def named_as(self, env: Any) -> "SimulatorTask":
        """Return the task that the user names with a name, an object or a factory."""
        given = identify(env)
        if isinstance(given, str):
            return dataclasses.replace(self, named=True, id=names.split(given)[0])
        workers = None if given.can_travel else 0
        return dataclasses.replace(
            self, named=True, id=given.name, maker=given.maker, workers=workers
        )

    def measure_rewards(self) -> Rewards:
        """Return the rewards of a random policy in one environment."""
        rng = np.random.default_rng(0)
        rewards: list[float] = []
        ended: list[bool] = []
        with self.with_one_worker().pool([0], self.notice) as pool:
            pool.reset()
            for _ in range(RANDOM_STEPS):
                step = pool.step(rng.integers(pool.num_actions, size=len(pool)))
                rewards += step.reward.tolist()
                ended += (step.boundary & (step.discount == 0.0)).tolist()
        return reward_ends(np.array(rewards), np.array(ended))

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
    env: str | Factory,
    *,
    num_envs: int | None = None,
    workers: int | None = None,
    timeout: float = TIMEOUT,
    notice: Callable[[str], None] = lambda _: None,
) -> SimulatorTask:
    """Start the simulator of a name or of a factory once to learn its shapes."""
    task_id, maker = (env.name, env.maker) if isinstance(env, Factory) else names.parse(env)
    if num_envs is None:
        num_envs = DOOM_ENVS if task_id.startswith("doom:") else 1
    require_integer("num_envs", num_envs, at_least=1, at_most=MAX_ENVS)
    if workers is not None:
        require_integer("workers", workers, at_least=0, at_most=MAX_ENVS)
    if isinstance(env, Factory) and not env.can_travel:
        if workers:
            raise InputError(
                f"need workers=0 for {task_id}, which other processes cannot load, got {workers}"
            )
        workers = 0
    with Pool(maker, [0], _at_most_one(workers), name=task_id, timeout=timeout) as pool:
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
    counted = all(type(count) is int and 0 < count <= LARGEST for count in counts)
    named = all(type(name) is str for name in (*facts, *probes))
    if layout.dtype == "uint8":
        formed = len(layout.shape) in (2, 3)
    else:
        formed = layout.dtype == "float32" and layout.shape != () and layout.stack == 1
    if not (counted and named and formed and math.prod(layout.shape) * layout.stack <= LARGEST):
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


def _at_most_one(workers: int | None) -> int:
    return 1 if workers is None else min(1, workers)


def _to_observation(layout: Layout) -> Observation:
    """Return the form of an agent's observations of a simulator."""
    if layout.dtype == "uint8":
        return Image(frame=layout.shape, stack=layout.stack)
    return Dense(layout.shape)
