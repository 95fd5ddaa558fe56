"""What adds up in the episodes of simulators, and which episodes have ended."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from winkel.simulators import Moves, Pool

Arrays = dict[str, np.ndarray]
SLACK = 1e-4
"""Of the support, that a return may be beyond it by rounding."""


@dataclass
class Tallies:
    """Of every environment: return, length and facts so far, and the discounted return.

    Attributes:
        gammas: of every environment.
        facts: their names.
        supports: the range `[E, 2]` in which discounted returns are taken to lie.
        lowest: the lowest discounted return of an episode from its start, of every environment.
        highest: the highest.
        outside: episodes whose discounted return was not in that range.
    """

    gammas: np.ndarray
    facts: tuple[str, ...]
    supports: np.ndarray
    lowest: np.ndarray = field(init=False)
    highest: np.ndarray = field(init=False)
    outside: np.ndarray = field(init=False)
    _total: np.ndarray = field(init=False)
    _discounted: np.ndarray = field(init=False)
    _decay: np.ndarray = field(init=False)
    _length: np.ndarray = field(init=False)
    _facts: np.ndarray = field(init=False)
    _ended: list[dict[str, np.ndarray]] = field(init=False, default_factory=list)

    @classmethod
    def of(cls, pool: Pool, hypers: Sequence[Any]) -> "Tallies":
        """Nothing yet; environments of a pool stand run by run, with each run's settings."""
        each = len(pool) // len(hypers)
        ends = [
            (getattr(hyper, "z_min", -np.inf), getattr(hyper, "z_max", np.inf)) for hyper in hypers
        ]
        return cls(
            gammas=np.repeat(np.array([hyper.gamma for hyper in hypers], np.float64), each),
            facts=pool.facts,
            supports=np.repeat(np.array(ends, np.float64), each, axis=0),
        )

    def __post_init__(self) -> None:
        count = len(self.gammas)
        self._total = np.zeros(count, np.float32)
        self._discounted, self._decay = np.zeros(count), np.ones(count)
        self._length = np.zeros(count, np.int64)
        self._facts = np.zeros((count, len(self.facts)))
        self.lowest, self.highest = np.full(count, np.inf), np.full(count, -np.inf)
        self.outside = np.zeros(count, np.int64)

    def add(self, moves: Moves, env_steps: int) -> None:
        """One move of every environment, the last of which is step `env_steps` of its run."""
        self._total += moves.reward
        self._discounted += self._decay * moves.reward
        self._decay *= self.gammas
        self._length += 1
        for i, name in enumerate(self.facts):
            self._facts[:, i] += moves.facts[name]
        if not moves.boundary.any():
            return
        rows = np.flatnonzero(moves.boundary & ~moves.lost)
        returns, (low, high) = self._discounted[rows], self.supports[rows].T
        slack = SLACK * (high - low)
        self.lowest[rows] = np.minimum(self.lowest[rows], returns)
        self.highest[rows] = np.maximum(self.highest[rows], returns)
        self.outside[rows] += (returns < low - slack) | (returns > high + slack)
        self._ended.append(
            {
                "env": rows,
                "return": self._total[rows].astype(np.float64),
                "length": self._length[rows],
                "env_steps": np.full(len(rows), env_steps, np.int64),
            }
            | {name: _whole(self._facts[rows, i]) for i, name in enumerate(self.facts)}
        )
        begun = moves.boundary
        self._total[begun], self._discounted[begun], self._decay[begun] = 0.0, 0.0, 1.0
        self._length[begun], self._facts[begun] = 0, 0.0

    def left_support(self, run: int, num_envs: int) -> str | None:
        """A sentence on episodes whose return was outside of the support, None without any."""
        own = slice(run * num_envs, (run + 1) * num_envs)
        if not self.outside[own].any():
            return None
        low, high = self.supports[run * num_envs]
        return (
            f"the discounted return of {self.outside[own].sum():,} episodes was outside of "
            f"[{low:.4g}, {high:.4g}]: they were from {self.lowest[own].min():.4g} to "
            f"{self.highest[own].max():.4g}; set --z-min and --z-max"
        )

    def take(self) -> Callable[[int, int], Arrays]:
        """Episodes that have ended since the last time, by run and its number of environments."""
        names = ("env", "return", "length", "env_steps", *self.facts)
        empty = {name: np.zeros(0, np.float64 if name == "return" else np.int64) for name in names}
        parts = [empty, *self._ended]
        table = {name: np.concatenate([part[name] for part in parts]) for name in names}
        self._ended = []

        def of(run: int, num_envs: int) -> Arrays:
            own = table["env"] // num_envs == run
            return {name: table[name][own] for name in names if name != "env"}

        return of


def _whole(facts: np.ndarray) -> np.ndarray:
    """Counts as whole numbers, other facts as they are."""
    rounded = np.round(facts)
    return rounded.astype(np.int64) if np.array_equal(rounded, facts) else facts
