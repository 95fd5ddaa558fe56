"""Many copies of an environment at once, in worker processes."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from winkel.errors import InputError, require_integer
from winkel.simulators.base import Layout
from winkel.simulators.crew import Crew
from winkel.simulators.memory import private
from winkel.simulators.stepping import Copies, Maker


class Moves(NamedTuple):
    """What one step of every environment brings. The arrays are the receiver's to keep.

    Attributes:
        obs_next: what the transitions end in, before any reset.
        obs: what to act on next: the same, or the first observation of a new episode.
        reward: of the transitions.
        discount: 0 on termination.
        boundary: whether episodes ended, by termination or truncation.
        facts: by name; they add up over an episode.
        probes: by the order of the pool's `probes`.
        lost: where a worker died: `obs` begins a new episode, the rest is no transition and has
            reward 0, discount 1 and a boundary.
    """

    obs_next: Shaped[np.ndarray, "E *shape"]
    obs: Shaped[np.ndarray, "E *shape"]
    reward: Float[np.ndarray, "E"]
    discount: Float[np.ndarray, "E"]
    boundary: Bool[np.ndarray, "E"]
    facts: dict[str, Float[np.ndarray, "E"]]
    probes: Float[np.ndarray, "E P"]
    lost: Bool[np.ndarray, "E"]


class _Alone:
    """All environments in this process, with the methods of a `Crew`."""

    def __init__(self, maker: Maker, seeds: Sequence[int]):
        self._seeds: Sequence[int | None] = seeds
        self._copies = Copies(maker, range(len(seeds)))
        self.traits = self._copies.traits
        self.arrays = private(self.traits, len(seeds))
        self.close = self._copies.close
        self.pids: list[int] = []
        self._copies.attach(self.arrays)

    def reset(self) -> None:
        self._copies.reset(self._seeds)
        self._seeds = [None] * len(self._seeds)

    def step(self) -> None:
        pass

    def collect(self) -> list[int]:
        self._copies.step()
        return []


class Pool:
    """One environment for each seed, stepped together.

    Call `reset`, then `step_async` and `step_wait` in turn; what this process does in between
    happens while the simulators run. An environment that raises, or returns what it should not,
    raises `InputError` and closes the pool. A worker that dies or hangs is replaced.

    Args:
        maker: makes one environment; picklable unless `num_workers` is 0.
        seeds: of the environments, each given at its first reset.
        num_workers: processes; one for each environment or CPU by default, whichever are fewer.
            0 keeps all environments in this process, where a debugger sees them, and which dies
            with them.
        timeout: seconds that a step may take before its worker is killed and replaced.
        restarts: how often each worker is replaced before that is an error.
        notice: gets a sentence whenever one is.
    """

    def __init__(
        self,
        maker: Maker,
        seeds: Sequence[int],
        num_workers: int | None = None,
        *,
        timeout: float = 60.0,
        restarts: int = 5,
        notice: Callable[[str], None] = lambda _: None,
    ):
        self._team: Crew | _Alone | None = None
        seeds = [require_integer("a seed", seed, at_least=0) for seed in seeds]
        if not seeds:
            raise InputError("need at least one seed, got none")
        if not timeout > 0:
            raise InputError(f"need timeout > 0 seconds, got {timeout}")
        require_integer("restarts", restarts, at_least=0)
        if num_workers is None:
            num_workers = _num_cpus()
        require_integer("num_workers", num_workers, at_least=0)
        self._num = len(seeds)
        self._waiting: bool | None = None  # None before the first reset
        if num_workers == 0:
            self._team = _Alone(maker, seeds)
        else:
            workers = min(num_workers, len(seeds))
            self._team = Crew(maker, seeds, workers, timeout, restarts, notice)
        self._traits = self._team.traits

    def __len__(self) -> int:
        return self._num

    @property
    def layout(self) -> Layout:
        """What observations look like."""
        return self._traits.layout

    @property
    def num_actions(self) -> int:
        """A; actions are 0 … A − 1."""
        return self._traits.num_actions

    @property
    def facts(self) -> tuple[str, ...]:
        """Names of what adds up over an episode."""
        return self._traits.facts

    @property
    def probes(self) -> tuple[str, ...]:
        """Names of numbers worth a look at every step."""
        return self._traits.probes

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return self._open().pids

    def reset(self) -> Shaped[np.ndarray, "E *shape"]:
        """Begin an episode everywhere, whatever went on before."""
        team = self._open()
        try:
            if self._waiting:
                team.collect()
            team.reset()
        except InputError:
            self.close()
            raise
        self._waiting = False
        return team.arrays.obs.copy()

    def step_async(self, actions: Int[np.ndarray, "E"]) -> None:
        """Let every environment make its action, and do not wait."""
        team = self._open()
        if self._waiting is not False:
            before = "step_wait" if self._waiting else "reset"
            raise InputError(f"need {before} before step_async")
        actions = np.asarray(actions)
        if actions.shape != (self._num,) or actions.dtype.kind not in "iu":
            raise InputError(
                f"need {self._num} whole numbers as actions, got {actions.dtype} {actions.shape}"
            )
        if actions.min() < 0 or actions.max() >= self.num_actions:
            raise InputError(f"need actions in 0 … {self.num_actions - 1}, got {actions}")
        team.arrays.actions[:] = actions
        team.step()
        self._waiting = True

    def step_wait(self) -> Moves:
        """What the actions brought, once all environments have made them."""
        team = self._open()
        if not self._waiting:
            raise InputError("need step_async before step_wait")
        try:
            rows = team.collect()
        except InputError:
            self.close()
            raise
        self._waiting = False
        arrays = team.arrays
        lost = np.zeros(self._num, bool)
        if rows:
            _lose(team, rows)
            lost[rows] = True
        facts = arrays.facts.copy()
        return Moves(
            obs_next=arrays.next_obs.copy(),
            obs=arrays.obs.copy(),
            reward=arrays.rewards.copy(),
            discount=arrays.discounts.copy(),
            boundary=arrays.boundaries.copy(),
            facts={name: facts[:, i] for i, name in enumerate(self.facts)},
            probes=arrays.probes.copy(),
            lost=lost,
        )

    def step(self, actions: Int[np.ndarray, "E"]) -> Moves:
        """Make the actions and wait."""
        self.step_async(actions)
        return self.step_wait()

    def close(self) -> None:
        """End all workers; nothing is left running. Closing again does nothing."""
        if self._team is not None:
            self._team.close()
            self._team = None

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> "Crew | _Alone":
        if self._team is None:
            raise InputError("need an open pool, this one is closed")
        return self._team


def _lose(team: Crew | _Alone, rows: list[int]) -> None:
    """What stands in the arrays where there was no transition; resets have set both `obs`."""
    team.arrays.rewards[rows] = 0.0
    team.arrays.discounts[rows] = 1.0
    team.arrays.boundaries[rows] = True
    team.arrays.facts[rows] = 0.0
    team.arrays.probes[rows] = 0.0


def _num_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
