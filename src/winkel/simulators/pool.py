"""Many copies of an environment, stepped together in worker processes."""

import errno
import os
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.random import SeedSequence

from winkel.errors import InputError, require_integer
from winkel.simulators.base import Maker, Notice, SimulatorDied, SimulatorSpec
from winkel.simulators.worker_main import Copies, map_rows
from winkel.simulators.workers import MAKING, RESET, STEP, Worker, close_workers, open_memory

TIMEOUT = 120.0
MAX_RESTARTS = 5
"""How often each worker is replaced before that is an error."""


class StepBatch(NamedTuple):
    """Result of one step of every environment (see `Step`), in arrays that the caller may keep."""

    next_obs: Shaped[np.ndarray, "E *shape"]
    """Observations that the transitions end in, before any reset."""
    obs: Shaped[np.ndarray, "E *shape"]
    """Observations to act on next: the same, or the first ones of new episodes."""
    reward: Float[np.ndarray, "E"]
    discount: Float[np.ndarray, "E"]
    boundary: Bool[np.ndarray, "E"]
    facts: dict[str, Float[np.ndarray, "E"]]
    probes: Float[np.ndarray, "E P"]
    lost: Bool[np.ndarray, "E"]
    """Whether the worker was lost. Then `obs` begins a new episode, and the rest is no
    transition: reward 0, discount 1, a boundary."""


class Pool(AbstractContextManager["Pool"]):
    """One environment for each seed, stepped together.

    Call `reset`, then `step_async` and `step_wait` in turn; between the two, this process and the
    simulators run at the same time. An environment that raises or returns a wrong value closes the
    pool with an `InputError`. A worker that dies, or that hangs in a step, is replaced.

    Args:
        maker: makes one environment; unless `num_workers` is 0 picklable, of an importable module.
        seeds: of the environments, each given at its first reset.
        num_workers: processes; by default one per environment or CPU, whichever are fewer. With 0,
            all environments are in this process, for debuggers; it dies and hangs with them.
        name: of the environment, with which errors and notices begin.
        timeout: seconds that a worker may take to make, reset or step its environments.
        search_here: whether workers find modules of the current folder.
        notice: gets a sentence if a worker is replaced, or if closing raises.
    """

    def __init__(
        self,
        maker: Maker,
        seeds: Sequence[int],
        num_workers: int | None = None,
        *,
        name: str = "",
        timeout: float = TIMEOUT,
        search_here: bool = True,
        notice: Notice = lambda _: None,
    ):
        self._seeds = [require_integer("a seed", seed, 0, 2**63 - 1) for seed in seeds]
        if not self._seeds:
            raise InputError("need at least one seed, got none")
        if not timeout > 0:
            raise InputError(f"need timeout > 0, in seconds, got {timeout}")
        self._timeout = timeout
        self._prefix = prefix = f"{name}: " if name else ""
        self._notice = lambda text: notice(prefix + text)  # without self, which is to be forgotten
        if num_workers is None:
            affinity = getattr(os, "sched_getaffinity", None)  # which macOS lacks
            num_workers = len(affinity(0)) if affinity else os.cpu_count() or 1
        num_workers = min(require_integer("num_workers", num_workers, at_least=0), len(self))
        self._waiting: bool | None = None  # None before the first reset
        self._workers: list[Worker | Copies] = []
        descriptors: list[int] = []
        self._finalizer = weakref.finalize(
            self, close_workers, self._workers, descriptors, os.getpid(), self._notice
        )
        try:
            descriptors.append(memory := open_memory())
            descriptors.extend(lifeline := os.pipe())
            if num_workers == 0:
                self._workers.append(Copies(maker, range(len(self)), memory, len(self)))
            bounds = np.linspace(0, len(self), num_workers + 1).astype(int).tolist()
            passed = memory, lifeline[0]
            for i, ends in enumerate(pairwise(bounds)):
                own = range(*ends)
                self._workers.append(Worker(i, own, maker, len(self), passed, search_here))
            specs: list[SimulatorSpec] = []
            for worker in self._workers:
                specs += worker.receive(timeout, MAKING)
            kinds = [f"{s.num_actions} actions with {s.layout}" for s in dict.fromkeys(specs)]
            if len(kinds) > 1:
                raise InputError(f"need environments of one kind, got {' and '.join(kinds)}")
            self.layout, self.num_actions, self.facts, self.probes = specs[0]
            self._rows = map_rows(memory, specs[0], len(self))
        except BaseException as error:
            self.close()
            if isinstance(error, SimulatorDied):
                raise InputError(f"{prefix}a worker {error}") from None
            if isinstance(error, OSError):
                raise _cannot_start(error) from error
            raise

    def __len__(self) -> int:
        return len(self._seeds)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        self._require_open()
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def reset(self) -> Shaped[np.ndarray, "E *shape"]:
        """Begin an episode everywhere, also in the middle of a step."""
        self._require_open()
        if self._waiting:
            self._wait(STEP)
        first = self._waiting is None
        for worker in self._workers:
            worker.send([self._seeds[number] if first else None for number in worker.numbers])
        self._wait(RESET)
        self._waiting = False
        return self._rows["obs"].copy()

    def step_async(self, actions: Int[np.ndarray, "E"]) -> None:
        """Let every environment make its action, and do not wait."""
        self._require_open()
        if self._waiting is not False:
            before = "step_wait" if self._waiting else "reset"
            raise InputError(f"need {before} before step_async")
        actions = np.asarray(actions)
        if actions.shape != (len(self),) or actions.dtype.kind not in "iu":
            wanted = f"{len(self)} whole numbers as actions"
            raise InputError(f"need {wanted}, got {actions.dtype} {actions.shape}")
        if actions.min() < 0 or actions.max() >= self.num_actions:
            raise InputError(f"need actions in 0 … {self.num_actions - 1}, got {actions}")
        self._rows["action"] = actions
        for worker in self._workers:
            worker.send()
        self._waiting = True

    def step_wait(self) -> StepBatch:
        """Wait until all environments have made their actions, and return the results."""
        self._require_open()
        if not self._waiting:
            raise InputError("need step_async before step_wait")
        replaced = self._wait(STEP)
        self._waiting = False
        rows, lost = self._rows, np.zeros(len(self), bool)
        if replaced:  # the reset has written both observations
            lost[replaced] = True
            for name, value in (("reward", 0), ("discount", 1), ("facts", 0), ("probes", 0)):
                rows[name][lost] = value
            rows["boundary"][lost] = True
        results: dict[str, Any] = {n: rows[n].copy() for n in StepBatch._fields if n != "lost"}
        results["facts"] = dict(zip(self.facts, results["facts"].T, strict=True))
        return StepBatch(**results, lost=lost)

    def step(self, actions: Int[np.ndarray, "E"]) -> StepBatch:
        """Make the actions and wait."""
        self.step_async(actions)
        return self.step_wait()

    def close(self) -> None:
        """End all workers and what they started. Closing again does nothing."""
        self._finalizer()
        self._rows = np.zeros(0)  # releases the memory

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise InputError("need an open pool, this one is closed")

    def _wait(self, doing: str) -> list[int]:
        """Wait for all answers; return the environments whose worker was lost and replaced."""
        lost: list[int] = []
        try:
            for worker in self._workers:
                try:
                    worker.receive(self._timeout, doing)
                except SimulatorDied as error:
                    self._replace(worker, str(error))
                    lost.extend(worker.numbers)
        except BaseException as error:  # after an interrupt, too: some answers would come later
            self.close()
            if isinstance(error, InputError):
                error.args = (f"{self._prefix}{error}",)
            raise
        return lost

    def _replace(self, worker: Worker | Copies, how: str) -> None:
        """Start a worker again until it has reset its environments."""
        while True:
            if worker.restarts == MAX_RESTARTS:
                raise InputError(
                    f"{worker} {how}, after {worker.restarts} restarts, the most that are allowed"
                )
            worker.restarts += 1
            self._notice(
                f"{worker} {how}; its episodes begin anew "
                f"(restart {worker.restarts} of at most {MAX_RESTARTS})"
            )
            try:
                worker.start()
                worker.receive(self._timeout, MAKING)
                # Another seed for each environment, so that a failure is not repeated.
                derived = [SeedSequence((self._seeds[n], worker.restarts)) for n in worker.numbers]
                worker.send([int(seed.generate_state(1)[0]) >> 1 for seed in derived])
                worker.receive(self._timeout, RESET)
                return
            except SimulatorDied as lost:
                how = str(lost)
            except OSError as error:
                raise _cannot_start(error) from error


def _cannot_start(error: OSError) -> InputError:
    full = error.errno in (errno.EMFILE, errno.ENFILE)
    right = "; need a higher limit (ulimit -n) or fewer --workers" if full else ""
    return InputError(f"cannot start worker processes: {error.strerror or error}{right}")
