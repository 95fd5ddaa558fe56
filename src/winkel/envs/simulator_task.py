"""Tasks whose environment is a simulator: Gymnasium, dm_env, VizDoom, or a user's own.

Making one starts the simulator once, to learn its shapes and the rewards of a random policy. These
rewards and γ give the range of returns if the user sets none.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from winkel.envs.task import EnvShape, Task
from winkel.errors import InputError
from winkel.simulators import names
from winkel.simulators.pool import Pool
from winkel.types import Dense, Image, Observation

RANDOM_STEPS = 1_000
"""Steps of a random policy from which a range of returns is estimated."""
UNKNOWN = (-1.0, 1.0)
"""The range of returns if a random policy meets no reward."""
MARGIN = 0.1
"""Fraction of an estimated range that is added at each end."""


class Rewards(NamedTuple):
    """Lowest and highest reward of a random policy; 0 is always between them.

    Attributes:
        running: within episodes; these may come at every step.
        final: on the last transition of an episode.
    """

    running: tuple[float, float]
    final: tuple[float, float]

    def return_range(self, gamma: float) -> tuple[float, float]:
        """Return the range of returns as if rewards within an episode were paid at every step.

        `UNKNOWN` if all rewards were 0.
        """
        if gamma >= 1.0:
            raise InputError("need gamma < 1 to estimate the range of returns, got 1")
        low, high = (
            running / (1.0 - gamma) + final
            for running, final in zip(self.running, self.final, strict=True)
        )
        if low == high:
            return UNKNOWN
        margin = MARGIN * (high - low)
        return low - margin * (low < 0.0), high + margin * (high > 0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatorTask(Task):
    """A simulator, which runs in worker processes.

    Attributes:
        maker: makes one.
        workers: processes for all environments; None: by the number of CPUs.
        rewards: rewards of a random policy, or None if they were not measured.
    """

    maker: Any
    workers: int | None = None
    rewards: Rewards | None = None

    compiled: ClassVar[bool] = False

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of all actions if the maker has them, else none."""
        return tuple(getattr(self.maker, "action_names", ()))

    @property
    def range_origin(self) -> str | None:
        """How `return_range` was estimated, or None if it was not."""
        if self.rewards is None:
            return None
        if self.rewards.running == self.rewards.final == (0.0, 0.0):
            return "though a random policy met no reward"
        return "by a random policy's rewards"

    def return_range(self, gamma: float) -> tuple[float, float]:
        """Estimate the range of discounted returns from the rewards of a random policy."""
        if self.rewards is None:
            raise InputError(
                f"need z_min and z_max, the range of returns in {self.id}, got neither"
            )
        return self.rewards.return_range(gamma)

    def pool(self, seeds: list[int], notice: Callable[[str], None]) -> Pool:
        """Start an environment for each seed."""
        return Pool(self.maker, seeds, self.workers, notice=notice)

    def describe(self) -> dict[str, Any]:
        """Return the entries of a run's config from which `registry.remake` makes it again."""
        form = self.env.observation
        image = isinstance(form, Image)
        host = {
            "num_envs": self.num_envs,
            "shape": list(form.frame if image else form.shape),
            "dtype": "uint8" if image else "float32",
            "stack": form.stack if image else 1,
            "actions": self.env.num_actions,
            "facts": list(self.facts),
            "probes": list(self.probes),
        }
        return super().describe() | {"host": host}


def make_simulator_task(
    name: str, *, num_envs: int = 1, workers: int | None = None, measure_rewards: bool = True
) -> SimulatorTask:
    """Start the simulator of a name once to learn its shapes, and measure its rewards."""
    task_id, maker = names.parse(name)
    with Pool(maker, [0], num_workers=1) as pool:
        return SimulatorTask(
            id=task_id,
            env=EnvShape(_make_observation(*pool.layout), pool.num_actions),
            maker=maker,
            facts=pool.facts,
            probes=pool.probes,
            num_envs=num_envs,
            workers=workers,
            rewards=_measure_rewards(pool) if measure_rewards else None,
        )


def remake_simulator(config: Mapping[str, Any]) -> SimulatorTask:
    """Make the task of a run again from the run's config, without starting the simulator."""
    host = config["host"]
    observation = _make_observation(host["shape"], host["dtype"], host["stack"])
    return SimulatorTask(
        id=config["env"],
        env=EnvShape(observation, host["actions"]),
        maker=names.parse(config["env"])[1],
        facts=tuple(host["facts"]),
        probes=tuple(host["probes"]),
        num_envs=host["num_envs"],
    )


def _make_observation(shape: Iterable[int], dtype: str, stack: int) -> Observation:
    """Return the form of an agent's observations of a simulator with this `Layout`."""
    return Image(tuple(shape), stack) if dtype == "uint8" else Dense(tuple(shape))


def _measure_rewards(pool: Pool) -> Rewards:
    """Run a random policy in a pool of one environment."""
    rng = np.random.default_rng(0)
    pool.reset()
    running, final = [0.0], [0.0]
    for _ in range(RANDOM_STEPS):
        steps = pool.step(rng.integers(pool.num_actions, size=len(pool)))
        ended = steps.boundary & (steps.discount == 0.0)
        running += steps.reward[~ended].tolist()
        final += steps.reward[ended].tolist()
    return Rewards(running=(min(running), max(running)), final=(min(final), max(final)))
