"""Many copies of an environment, stepped together in worker processes."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from winkel.errors import InputError, require_integer
from winkel.simulators.base import Spec
from winkel.simulators.stepping import Copies, Maker, row_dtype
from winkel.simulators.workers import WorkerPool


class StepBatch(NamedTuple):
    """Result of one step of every environment (see `Step`), in arrays that the caller may keep.

    Attributes:
        obs_next: observations that the transitions end in, before any reset.
        obs: observations to act on next: the same, or the first ones of new episodes.
        lost: whether the worker was lost. Then `obs` begins a new episode, and the rest is no
            transition: reward 0, discount 1, a boundary.
    """

    obs_next: Shaped[np.ndarray, "E *shape"]
    obs: Shaped[np.ndarray, "E *shape"]
    reward: Float[np.ndarray, "E"]
    discount: Float[np.ndarray, "E"]
    boundary: Bool[np.ndarray, "E"]
    facts: dict[str, Float[np.ndarray, "E"]]
    probes: Float[np.ndarray, "E P"]
    lost: Bool[np.ndarray, "E"]


class _InProcess:
    """All environments in this process. Same interface as `WorkerPool`."""

    def __init__(self, maker: Maker, seeds: Sequence[int]):
        self._seeds: Sequence[int | None] = seeds
        self._copies = Copies(maker, range(len(seeds)))
        self.spec = self._copies.spec
        self.rows = np.zeros(len(seeds), row_dtype(self.spec))
        self.close = self._copies.close
        self.pids: list[int] = []
        self._copies.attach(self.rows)

    def reset(self) -> None:
        self._copies.reset(self._seeds)
        self._seeds = [None] * len(self._seeds)

    def step(self) -> None:
        pass

    def wait(self) -> list[int]:
        self._copies.step()
        return []


class Pool:
    """One environment for each seed, stepped together.

    Call `reset`, then `step_async` and `step_wait` in turn; between the two, this process and the
    simulators run at the same time. If an environment raises or returns a wrong value, `InputError`
    is raised and the pool is closed. A worker that dies or hangs is replaced.

    Args:
        maker: makes one environment; picklable unless `num_workers` is 0.
        seeds: of the environments, each given at its first reset.
        num_workers: processes; by default one per environment or CPU, whichever are fewer. With 0,
            all environments are in this process, for debuggers; it dies with them.
        timeout: seconds that a step may take before its worker is killed and replaced.
        restarts: how often each worker is replaced before that is an error.
        notice: is called with a sentence whenever one is.

    The attributes `layout`, `num_actions`, `facts` and `probes` are those of the `Simulator`.
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
        self._workers: WorkerPool | _InProcess | None = None
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
            self._workers = _InProcess(maker, seeds)
        else:
            num_workers = min(num_workers, len(seeds))
            self._workers = WorkerPool(maker, seeds, num_workers, timeout, restarts, notice)
        spec: Spec = self._workers.spec
        self.layout, self.num_actions, self.facts, self.probes = spec

    def __len__(self) -> int:
        return self._num

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return self._open().pids

    def reset(self) -> Shaped[np.ndarray, "E *shape"]:
        """Begin an episode everywhere, also in the middle of a step."""
        workers = self._open()
        try:
            if self._waiting:
                workers.wait()
            workers.reset()
        except InputError:
            self.close()
            raise
        self._waiting = False
        return workers.rows["obs"].copy()

    def step_async(self, actions: Int[np.ndarray, "E"]) -> None:
        """Let every environment make its action, and do not wait."""
        workers = self._open()
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
        workers.rows["action"] = actions
        workers.step()
        self._waiting = True

    def step_wait(self) -> StepBatch:
        """Wait until all environments have made their actions, and return the results."""
        workers = self._open()
        if not self._waiting:
            raise InputError("need step_async before step_wait")
        try:
            replaced = workers.wait()
        except InputError:
            self.close()
            raise
        self._waiting = False
        rows = workers.rows
        lost = np.zeros(self._num, bool)
        if replaced:  # the reset has written both observations
            lost[replaced] = True
            for name, value in (("reward", 0), ("discount", 1), ("facts", 0), ("probes", 0)):
                rows[name][lost] = value
            rows["boundary"][lost] = True
        facts = rows["facts"].copy()
        return StepBatch(
            obs_next=rows["next_obs"].copy(),
            obs=rows["obs"].copy(),
            reward=rows["reward"].copy(),
            discount=rows["discount"].copy(),
            boundary=rows["boundary"].copy(),
            facts={name: facts[:, i] for i, name in enumerate(self.facts)},
            probes=rows["probes"].copy(),
            lost=lost,
        )

    def step(self, actions: Int[np.ndarray, "E"]) -> StepBatch:
        """Make the actions and wait."""
        self.step_async(actions)
        return self.step_wait()

    def close(self) -> None:
        """End all workers and what they started. Closing again does nothing."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> WorkerPool | _InProcess:
        if self._workers is None:
            raise InputError("need an open pool, this one is closed")
        return self._workers


def _num_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
