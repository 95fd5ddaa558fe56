"""What a sweep is asked for: which environments, agents and seeds, and for how long."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from winkel.envs.bsuite.sweep import EXPERIMENTS
from winkel.envs.registry import parse
from winkel.errors import InputError, require_integer
from winkel.runs.train import checked_seeds


class Item(NamedTuple):
    """One run of a sweep."""

    env: str
    agent: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What to run.

    Attributes:
        envs: ids of environments.
        agents: names of agents or variants.
        seeds: which.
        episodes: horizon of each run; None for bsuite's own.
        until: stop each run after so many episodes, although schedules go by the horizon.
        padded: settings of one experiment share one shape and one program.
        packed: settings of several experiments do, as `PACKS` has them together.
        fields: settings that differ from the agents' own, for those that have them.
    """

    envs: tuple[str, ...]
    agents: tuple[str, ...]
    seeds: tuple[int, ...]
    episodes: int | None = None
    until: int | None = None
    padded: bool = False
    packed: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_seeds(self.seeds)
        for what, names in (("environments", self.envs), ("agents", self.agents)):
            if not names or len(set(names)) != len(names):
                raise InputError(f"need different {what}, at least one, got {', '.join(names)}")

    def items(self) -> list[Item]:
        """All runs."""
        return [
            Item(env=env, agent=agent, seed=seed)
            for agent in self.agents
            for env in self.envs
            for seed in self.seeds
        ]


def bsuite_envs(experiments: Sequence[str] | None = None) -> tuple[str, ...]:
    """The ids of some of bsuite's experiments, or of all."""
    names = list(EXPERIMENTS) if experiments is None else list(experiments)
    for name in names:
        if name not in EXPERIMENTS:
            parse(name)  # raises, and suggests
            raise InputError(f"need an experiment such as catch, got {name!r}")
    return tuple(env for name in names for env in EXPERIMENTS[name].ids)


def deep_sea_envs(sizes: Sequence[int]) -> tuple[str, ...]:
    """Deep seas of these sizes."""
    return tuple(f"deep_sea:size={require_integer('size', size, at_least=2)}" for size in sizes)
