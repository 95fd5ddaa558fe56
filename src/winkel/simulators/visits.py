"""Count where the environments of runs have been, by tenth of training, from the probes x and y."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from winkel.errors import InputError
from winkel.files import load_arrays, save_arrays
from winkel.simulators.pool import StepBatch

VISITS = "visits.npz"
PROBES = ("x", "y")
TENTHS = 10
MAX_CELLS = 128
"""Most cells along either side of a map; if places need more, cells become twice as large."""
SAVE_SECONDS = 60.0
_BUFFER = 4096  # places that are kept before they are counted
_AXES = {"visits": 3, "extent": 1, "cell": 0, "episodes": 0}


@dataclass
class Visits:
    """Counts of steps in square cells, whose sides are powers of two that grow with the places.

    The size of the world need not be known in advance.

    Attributes:
        max_steps: steps of the whole run.
        max_episodes: episodes of the whole run; it ends with whichever is reached first.
        cell: side of a cell; 0 to derive it from the first places.
        counts: by tenth of the run, row (y) and column (x).
        low: the first column and row, in cells from the origin.
        episodes: number of episodes that have ended.
    """

    max_steps: int
    max_episodes: int
    cell: float = 0.0
    counts: Int[np.ndarray, "tenths rows columns"] = field(
        default_factory=lambda: np.zeros((TENTHS, 0, 0), np.int64)
    )
    low: tuple[int, int] = (0, 0)
    episodes: int = 0
    _buffer: list[np.ndarray] = field(init=False, default_factory=list)
    _num_buffered: int = field(init=False, default=0)
    _tenth: int = field(init=False, default=0)

    def add(self, places: Float[np.ndarray, "places 2"], steps: int, ended: int) -> None:
        """Count where the environments are after a step; `steps` were made before it.

        `ended` is the number of episodes that end with it. Nothing counts after the run's end.
        """
        progress = max(steps / self.max_steps, self.episodes / self.max_episodes)
        if progress >= 1.0:
            return
        tenth = int(TENTHS * progress)
        if tenth != self._tenth or self._num_buffered >= _BUFFER:
            self._count()
        self._tenth = tenth
        self._buffer.append(places)
        self._num_buffered += len(places)
        self.episodes += ended

    def _count(self) -> None:
        """Count the places of the buffer, in larger cells if need be."""
        places = np.concatenate([np.zeros((0, 2)), *self._buffer])
        places = places[np.isfinite(places).all(axis=1)]
        self._buffer, self._num_buffered = [], 0
        if not len(places):
            return
        self.cell = self.cell or _first_cell(places)
        tenths, rows, columns = np.nonzero(self.counts)
        amounts = np.append(self.counts[tenths, rows, columns], np.ones(len(places), np.int64))
        tenths = np.append(tenths, np.full(len(places), self._tenth))
        new = np.floor(places / self.cell).astype(np.int64)
        cells = np.concatenate([np.column_stack([columns, rows]) + self.low, new])
        while np.ptp(cells, axis=0).max() >= MAX_CELLS:
            self.cell, cells = 2.0 * self.cell, cells // 2
        low = cells.min(axis=0)
        self.low = int(low[0]), int(low[1])
        self.counts = np.zeros((TENTHS, *(np.ptp(cells, axis=0) + 1)[::-1]), np.int64)
        np.add.at(self.counts, (tenths, *(cells - low).T[::-1]), amounts)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return `visits`, their `extent` (left, right, bottom, top), `cell` and `episodes`."""
        self._count()
        _, rows, columns = self.counts.shape
        left, bottom = self.low
        corners = np.array([left, left + columns, bottom, bottom + rows], float)
        return {
            "visits": self.counts,
            "extent": self.cell * corners,
            "cell": np.asarray(self.cell),
            "episodes": np.asarray(self.episodes),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from what `arrays` returned."""
        self.cell, self.episodes = float(arrays["cell"]), int(arrays["episodes"])
        self.counts = arrays["visits"].astype(np.int64)
        left, _, bottom, _ = np.round(arrays["extent"] / self.cell).astype(int).tolist()
        self.low = left, bottom


def _first_cell(places: np.ndarray) -> float:
    span = float(np.ptp(places, axis=0).max()) or 1e-6 * (float(np.abs(places).max()) or 1.0)
    return 2.0 ** math.ceil(math.log2(span / MAX_CELLS))


@contextlib.contextmanager
def watch_visits(
    task: Any, runs: Sequence[tuple[Path, int, int, bool]], notice: Callable[[str], None]
) -> Iterator[Callable[[StepBatch, int], None] | None]:
    """Return a function for `watch` of a session that leaves `visits.npz` with its runs.

    None if the task has no probes x and y. Each of the `runs` is its folder, number of steps,
    number of episodes, and whether it is resumed. Counts are saved at other times than checkpoints:
    a killed run may count up to a minute's steps twice or not at all.
    """
    if not {*PROBES} <= {*task.probes} or not runs:
        yield None
        return
    columns = [task.probes.index(name) for name in PROBES]
    cell = getattr(task.maker, "map_cell", 0.0)
    counters: dict[Path, Visits] = {}
    for folder, max_steps, max_episodes, resumed in runs:
        counters[folder] = Visits(max_steps, max_episodes, cell)
        if resumed and (folder / VISITS).is_file():
            try:
                counters[folder].restore(load_visits(folder))
            except InputError as error:
                notice(f"{error}; earlier visits are lost")
    saved_at = time.monotonic()

    def save() -> None:
        for folder, visits in counters.items():
            if folder.is_dir() and (arrays := visits.arrays())["visits"].size:
                save_arrays(folder / VISITS, arrays)

    def watch(batch: StepBatch, steps: int) -> None:
        nonlocal saved_at
        places = batch.probes[:, columns].astype(np.float64)
        for run, visits in enumerate(counters.values()):
            own = slice(run * task.num_envs, (run + 1) * task.num_envs)
            kept = ~batch.lost[own]
            ended = int((batch.boundary[own] & kept).sum())
            visits.add(places[own][kept], steps - task.num_envs, ended)
        if time.monotonic() - saved_at >= SAVE_SECONDS:
            save()
            saved_at = time.monotonic()

    try:
        yield watch
    finally:
        save()


def load_visits(folder: Path) -> dict[str, np.ndarray]:
    """Load `visits.npz` of a run."""
    return load_arrays(folder / VISITS, _AXES)
