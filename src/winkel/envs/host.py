"""Environments outside the accelerator, as tasks: Gymnasium, dm_env, VizDoom, a user's own.

A look at a simulator tells what it shows and which rewards a random policy meets; from these and γ
comes the range of returns where nobody gave one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from winkel.errors import InputError
from winkel.simulators import names
from winkel.simulators.base import Layout
from winkel.simulators.pool import Pool
from winkel.types import Dense, Image, Observation

LOOK = 1_000
"""Steps of a random policy from which a range of returns is estimated."""
UNKNOWN = (-1.0, 1.0)
"""The range of returns where a random policy meets no reward at all."""
MARGIN = 0.1
"""Of an estimated range, added at each end."""

is_name = names.is_name


class Rewards(NamedTuple):
    """The lowest and highest reward that a random policy met, 0 among them.

    Attributes:
        running: within episodes; these may come again and again.
        final: on the last transition of an episode.
    """

    running: tuple[float, float]
    final: tuple[float, float]

    def support(self, gamma: float) -> tuple[float, float]:
        """The range of returns, if every reward within an episode came at every step.

        `UNKNOWN` where all rewards were 0.
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


class HostEnv(NamedTuple):
    """What an agent must know of a simulator."""

    observation: Observation
    num_actions: int


@dataclass(frozen=True)
class HostTask:
    """A simulator by its name, with the face of `Task`.

    Attributes:
        id: its canonical name.
        env: what it shows, and how many actions it has.
        maker: makes one; None for a run that is only looked at.
        facts: names of what adds up over an episode.
        probes: names of numbers worth a look at every step.
        num_envs: environments of each run.
        workers: processes for all of them; None: by the number of CPUs.
        timeout: seconds that a step may take.
        rewards: what a random policy met; None where nobody looked.
    """

    id: str
    env: HostEnv
    maker: Any
    facts: tuple[str, ...]
    probes: tuple[str, ...]
    num_envs: int
    workers: int | None = None
    timeout: float = 60.0
    rewards: Rewards | None = None

    setting: Any = None
    params: Any = ()
    padded: bool = False
    packing: Any = None
    copy: int = 0
    num_episodes: int | None = None
    longest_episode: int | None = None
    num_pairs: int | None = None
    compiled = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "setting", {})

    @property
    def inputs(self) -> int:
        """Numbers in an observation."""
        return int(np.prod(self.env.observation.shape))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Of all actions, where the simulator's maker has them; else none."""
        return tuple(getattr(self.maker, "action_names", ()))

    @property
    def shows(self) -> tuple[tuple[int, ...], str]:
        """Shape and type of what simulators emit: of one frame where there are images."""
        observation = self.env.observation
        if isinstance(observation, Image):
            return observation.frame, "uint8"
        return observation.shape, "float32"

    def pool(self, seeds: list[int], notice: Callable[[str], None]) -> Pool:
        """Simulators with these seeds."""
        return Pool(self.maker, seeds, self.workers, timeout=self.timeout, notice=notice)

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
        return self.rewards.support(gamma)

    def describe(self) -> dict[str, Any]:
        """Return the entries of a run's config from which `remake` makes it again."""
        shape, dtype = self.shows
        observation = self.env.observation
        host = {
            "num_envs": self.num_envs,
            "shape": list(shape),
            "dtype": dtype,
            "stack": observation.stack if isinstance(observation, Image) else 1,
            "actions": self.env.num_actions,
            "facts": list(self.facts),
            "probes": list(self.probes),
        }
        entries = {"env": self.id, "setting": self.setting, "padded": self.padded}
        return entries | {"host": host}


def make_host(
    name: str,
    *,
    num_envs: int = 1,
    workers: int | None = None,
    timeout: float = 60.0,
    look: bool = True,
) -> HostTask:
    """The simulator of a name, looked at once; `look` also meets some of its rewards."""
    named = names.parse(name)
    with Pool(named.maker, [0], num_workers=1, timeout=timeout) as pool:
        return HostTask(
            id=named.id,
            env=HostEnv(observed(pool.layout), pool.num_actions),
            maker=named.maker,
            facts=pool.facts,
            probes=pool.probes,
            num_envs=num_envs,
            workers=workers,
            timeout=timeout,
            rewards=met(pool) if look else None,
        )


def remade(config: Mapping[str, Any]) -> HostTask:
    """The simulator that a run was made in, from its config, without starting it."""
    host = config["host"]
    layout = Layout(tuple(host["shape"]), host["dtype"], host["stack"])
    return HostTask(
        id=config["env"],
        env=HostEnv(observed(layout), host["actions"]),
        maker=names.parse(config["env"]).maker,
        facts=tuple(host["facts"]),
        probes=tuple(host["probes"]),
        num_envs=host["num_envs"],
    )


def observed(layout: Layout) -> Observation:
    """What an agent sees of a simulator."""
    if layout.dtype == "uint8":
        return Image(frame=tuple(layout.shape), stack=layout.stack)
    return Dense(tuple(layout.shape))


def met(pool: Pool, num_steps: int = LOOK) -> Rewards:
    """Rewards that a random policy meets in a pool of one."""
    rng = np.random.default_rng(0)
    pool.reset()
    running, final = [0.0], [0.0]
    for _ in range(num_steps):
        moves = pool.step(rng.integers(pool.num_actions, size=len(pool)))
        ended = moves.boundary & (moves.discount == 0.0)
        running += moves.reward[~ended].tolist()
        final += moves.reward[ended].tolist()
    return Rewards(running=(min(running), max(running)), final=(min(final), max(final)))
