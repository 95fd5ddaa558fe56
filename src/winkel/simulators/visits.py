"""Count where the environments of runs have been, by tenth of training, from the probes x and y."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from winkel.errors import InputError
from winkel.files import load_arrays, save_arrays
from winkel.simulators.base import Notice
from winkel.simulators.pool import StepBatch

VISITS = "visits.npz"
PROBES = ("x", "y")
TENTHS = 10
MAX_CELLS = 128
"""Most cells along either side of a map; if places need more, cells become twice as large."""
SMALLEST_CELL = 2.0**-20
SAVE_SECONDS = 60.0


class Visits:
    """Counts of steps of a run in square cells, which grow with the places."""

    def __init__(self, max_steps: int, max_episodes: int, cell: float = SMALLEST_CELL) -> None:
        self.max_steps, self.max_episodes, self.cell = max_steps, max_episodes, cell
        self.episodes = 0
        # By tenth of the run, row (y) and column (x), in cells from the origin.
        self.counts = Counter[tuple[int, int, int]]()
        self._low, self._high = np.full(2, np.inf), np.full(2, -np.inf)

    def add(self, places: Float[np.ndarray, "places 2"], steps: int, ended: int) -> None:
        """Count places after a step with which `ended` episodes end; `steps` were before it."""
        done = max(steps / self.max_steps, self.episodes / self.max_episodes)
        if done >= 1.0:
            return
        self.episodes += ended
        cells = np.floor(places[np.isfinite(places).all(axis=1)] / self.cell)
        self.counts.update((int(TENTHS * done), int(y), int(x)) for x, y in cells.tolist())
        self._low = cells.min(axis=0, initial=np.inf).clip(max=self._low)
        self._high = cells.max(axis=0, initial=-np.inf).clip(min=self._high)
        while (self._high - self._low).max() >= MAX_CELLS:
            old, self.counts = self.counts, Counter()
            for (tenth, row, column), count in old.items():
                self.counts[tenth, row // 2, column // 2] += count
            self.cell, self._low, self._high = 2.0 * self.cell, self._low // 2, self._high // 2

    def arrays(self) -> dict[str, np.ndarray]:
        """Return `visits`, their `extent` (left, right, bottom, top), `cell` and `episodes`."""
        (left, bottom), (right, top) = self._low, self._high + 1
        visits = np.zeros((TENTHS, int(top - bottom), int(right - left)), np.int64)
        for (tenth, row, column), count in self.counts.items():
            visits[tenth, row - int(bottom), column - int(left)] = count
        extent = self.cell * np.array([left, right, bottom, top])
        numbers = {"cell": np.asarray(self.cell), "episodes": np.asarray(self.episodes)}
        return {"visits": visits, "extent": extent, **numbers}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from what `arrays` returned."""
        self.cell, self.episodes = float(arrays["cell"]), int(arrays["episodes"])
        left, right, bottom, top = np.round(arrays["extent"] / self.cell)
        self._low, self._high = np.array([left, bottom]), np.array([right, top]) - 1
        visits = arrays["visits"]
        for tenth, row, column in np.argwhere(visits).tolist():
            place = tenth, row + int(bottom), column + int(left)
            self.counts[place] = int(visits[tenth, row, column])


@contextlib.contextmanager
def watch_visits(
    task: Any, runs: Sequence[tuple[Path, Any, bool]], notice: Notice
) -> Iterator[Callable[[StepBatch, int], None] | None]:
    """Return a function for `watch` of a session that leaves `visits.npz` with its runs.

    None if the task has no probes x and y. Each of the `runs` is its folder, where it ends, in
    `steps` and `episodes`, and whether it is resumed. Counts are saved at other times than
    checkpoints: a killed run may count up to a minute's steps twice or not at all.
    """
    if not {*PROBES} <= {*task.probes} or not runs:
        yield None
        return
    columns = [task.probes.index(name) for name in PROBES]
    cell = getattr(task.maker, "map_cell", SMALLEST_CELL)
    counters: dict[Path, Visits] = {}
    for folder, end, resumed in runs:
        counters[folder] = Visits(int(end.steps), int(end.episodes), cell)
        if resumed and (folder / VISITS).is_file():
            try:
                counters[folder].restore(load_visits(folder))
            except InputError as error:
                notice(f"{error}; earlier visits are lost")
    saved_at = time.monotonic()

    def save() -> None:
        for folder, visits in counters.items():
            if folder.is_dir() and visits.counts:
                save_arrays(folder / VISITS, visits.arrays())

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
    return load_arrays(folder / VISITS, {"visits": 3, "extent": 1, "cell": 0, "episodes": 0})
