"""The workers of a pool: each has some of the environments, and is replaced when it dies."""

import os
import pickle
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from winkel.errors import InputError
from winkel.simulators import channel as messages
from winkel.simulators.memory import nameless_file, shared
from winkel.simulators.process import GoneError, Process
from winkel.simulators.stepping import Maker, agree, from_message

START_TIMEOUT = 120.0
"""Seconds that a worker may take to make its environments, where `timeout` is not longer."""

_PATIENCE = 3.0  # seconds that all workers together have to leave by themselves


class _Worker:
    """A seat in the crew; its process may change."""

    def __init__(self, index: int, rows: range):
        self.index = index
        self.rows = rows
        self.process: Process
        self.pending = False
        self.restarts = 0

    def __str__(self) -> str:
        first, last = self.rows[0], self.rows[-1]
        what = f"environment {first}" if first == last else f"environments {first} to {last}"
        return f"worker {self.index} ({what})"


class Crew:
    """Workers, as even in their number of environments as can be.

    Args:
        maker: picklable; makes one environment.
        seeds: one for each environment.
        num_workers: at least 1, at most one for each environment.
        timeout: seconds that an answer may take before its worker is killed.
        restarts: how often each worker is replaced.
        notice: gets a sentence whenever one is.
    """

    def __init__(
        self,
        maker: Maker,
        seeds: Sequence[int],
        num_workers: int,
        timeout: float,
        restarts: int,
        notice: Callable[[str], None],
    ):
        self._seeds = list(seeds)
        self._timeout = timeout
        self._restarts = restarts
        self._notice = notice
        self._begun = False
        self._order = {"maker": _pickled(maker), "num": len(seeds), "path": _path()}
        bounds = np.linspace(0, len(seeds), num_workers + 1).astype(int).tolist()
        self._workers = [_Worker(i, range(*ends)) for i, ends in enumerate(pairwise(bounds))]
        self._memory = nameless_file()
        self._lifeline, only_ours = os.pipe()
        self.close = weakref.finalize(
            self, _end, self._workers, [self._memory, self._lifeline, only_ours], os.getpid()
        )
        try:
            for worker in self._workers:
                self._start(worker)
            all_traits = [self._made(worker) for worker in self._workers]
            agree(all_traits)
        except GoneError as gone:
            self.close()
            raise InputError(f"a worker {gone} while it made its environments") from None
        except BaseException:
            self.close()
            raise
        self.traits = all_traits[0]
        self.arrays = shared(self._memory, self.traits, len(seeds))

    @property
    def pids(self) -> list[int]:
        """Of the worker processes, each also of the group that holds all that it started."""
        return [worker.process.pid for worker in self._workers]

    def reset(self) -> None:
        """Begin episodes everywhere; seeds are given the first time only."""
        for worker in self._workers:
            seeds = [None if self._begun else self._seeds[row] for row in worker.rows]
            self._send(worker, messages.RESET, seeds)
        self._begun = True
        self.collect()

    def step(self) -> None:
        """Let all workers make the actions in the arrays."""
        for worker in self._workers:
            self._send(worker, messages.STEP)

    def collect(self) -> list[int]:
        """Wait until all have answered; rows of environments that had to be begun anew."""
        lost: list[int] = []
        for worker in self._workers:
            if not worker.pending:
                continue
            try:
                self._answer(worker, self._timeout)
            except GoneError as gone:
                self._replace(worker, str(gone))
                lost.extend(worker.rows)
            worker.pending = False
        return lost

    def _send(self, worker: _Worker, kind: bytes, content: Any = None) -> None:
        worker.pending = True
        worker.process.send(kind, content)

    def _answer(self, worker: _Worker, timeout: float) -> Any:
        kind, content = worker.process.receive(timeout)
        if kind == messages.FAILED:
            raise from_message(content)
        if kind == messages.DIED:
            worker.process.kill(_PATIENCE)
            raise GoneError(f"lost a simulator, {content}")
        return content

    def _start(self, worker: _Worker) -> None:
        loud = worker.index == 0 and not worker.restarts
        worker.process = Process(self._memory, self._lifeline, loud)
        worker.process.send(messages.MAKE, self._order | {"rows": worker.rows})

    def _made(self, worker: _Worker) -> Any:
        return self._answer(worker, max(self._timeout, START_TIMEOUT))

    def _replace(self, worker: _Worker, how: str) -> None:
        while True:
            if worker.restarts == self._restarts:
                raise InputError(
                    f"{worker} {how}, after {worker.restarts} restarts, the most that are allowed"
                )
            worker.restarts += 1
            self._notice(
                f"{worker} {how}; its episodes begin anew "
                f"(restart {worker.restarts} of at most {self._restarts})"
            )
            try:
                self._start(worker)
                self._made(worker)
                fresh = [_derived(self._seeds[row], worker.restarts) for row in worker.rows]
                worker.process.send(messages.RESET, fresh)
                self._answer(worker, self._timeout)
                return
            except GoneError as gone:
                how = str(gone)


def _derived(seed: int, restarts: int) -> int:
    """Another seed for the same environment: what went wrong must not happen again and again."""
    return int(np.random.SeedSequence((seed, restarts)).generate_state(1)[0]) >> 1


def _pickled(maker: Maker) -> bytes:
    name = getattr(maker, "__qualname__", type(maker).__qualname__)
    module = getattr(maker, "__module__", None)
    try:
        body = pickle.dumps(maker)
    except Exception as error:
        raise InputError(
            f"need a maker that can be pickled for workers, got {name}: {error}"
        ) from None
    if module == "__main__":
        raise InputError(
            f"need a maker from a module that workers can import, got {name} of the main script; "
            "move it to a module, name it 'module:function', or use num_workers=0"
        )
    return body


def _path() -> list[str]:
    """Where we find modules, the current folder first: workers have another."""
    here = os.getcwd()
    return [here, *(os.path.abspath(folder) for folder in sys.path if folder not in ("", here))]


def _end(workers: list[_Worker], descriptors: list[int], owner: int) -> None:
    if os.getpid() != owner:  # a fork of our process has no say
        return
    processes = [worker.process for worker in workers if hasattr(worker, "process")]
    for process in processes:
        process.leave()
    deadline = time.monotonic() + _PATIENCE
    for process in processes:
        process.kill(patience=max(0.0, deadline - time.monotonic()))
    for descriptor in descriptors:
        os.close(descriptor)
