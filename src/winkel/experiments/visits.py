"""Where the environments of runs have been, by tenth of training: from the probes x and y."""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from winkel.envs.host import HostTask
from winkel.errors import InputError
from winkel.files import load_arrays, save_arrays
from winkel.runs.planned import Planned
from winkel.runs.recording import is_begun
from winkel.runs.trained import Arrays
from winkel.simulators import Moves
from winkel.simulators.vizdoom import DoomMaker
from winkel.training.steps import Horizon

VISITS = "visits.npz"
PROBES = ("x", "y")
TENTHS = 10
MOST_CELLS = 128
"""Along either side of a map; where places need more, cells become twice as large."""
DOOM_CELL = 16.0
"""To begin with, in VizDoom: the player's radius, and small enough for the whole level."""
SAVE_SECONDS = 60.0
PANELS = 5
"""Of a map, over training."""
_UNITS = ((10**6, " M"), (10**3, " k"), (1, ""))
_FLUSH = 4096  # places that are kept before they are counted
_AXES = {"visits": 3, "extent": 1, "cell": 0, "episodes": 0}


@dataclass
class Visits:
    """Counts of steps in square cells, whose sides are powers of two that grow with the places.

    Nobody need know beforehand how large a world is, and nothing is lost but fineness.

    Attributes:
        end: when the run ends.
        counts: by tenth of the run, row (y) and column (x).
        cell: side of a cell; 0 to find one at the first places.
        low: the first column and row, in cells from the origin.
        episodes: that have ended.
    """

    end: Horizon
    counts: Int[np.ndarray, "tenths rows columns"] = field(
        default_factory=lambda: np.zeros((TENTHS, 0, 0), np.int64)
    )
    cell: float = 0.0
    low: tuple[int, int] = (0, 0)
    episodes: int = 0
    _kept: list[np.ndarray] = field(init=False, default_factory=list)
    _tenth: int = field(init=False, default=0)
    _num_kept: int = field(init=False, default=0)

    def add(self, places: Float[np.ndarray, "places 2"], before: int, ended: int) -> None:
        """Places after a move that begins when a run has made `before` steps; episodes it ends.

        What comes after the end of the run does not count.
        """
        progress = max(before / int(self.end.steps), self.episodes / int(self.end.episodes))
        if progress >= 1.0:
            return
        tenth = int(TENTHS * progress)
        if tenth != self._tenth or self._num_kept >= _FLUSH:
            self.flush()
        self._tenth = tenth
        self._kept.append(places)
        self._num_kept += len(places)
        self.episodes += ended

    def flush(self) -> None:
        """Count the places that are kept."""
        kept = np.concatenate([np.zeros((0, 2)), *self._kept])
        kept, self._kept, self._num_kept = kept[np.isfinite(kept).all(axis=1)], [], 0
        if not len(kept):
            return
        self.cell = self.cell or _first_cell(kept)
        tenth, row, column = np.nonzero(self.counts)
        old = np.column_stack([column, row]) + self.low
        new = np.floor(kept / self.cell).astype(np.int64)
        cells = np.concatenate([old, new])
        while np.ptp(cells, axis=0).max() >= MOST_CELLS:
            self.cell, cells = 2.0 * self.cell, cells // 2
        low = cells.min(axis=0)
        columns, rows = np.ptp(cells, axis=0) + 1
        amounts = np.concatenate([self.counts[tenth, row, column], np.ones(len(new), np.int64)])
        tenths = np.concatenate([tenth, np.full(len(new), self._tenth)])
        self.counts = np.zeros((TENTHS, rows, columns), np.int64)
        np.add.at(self.counts, (tenths, *(cells - low).T[::-1]), amounts)
        self.low = int(low[0]), int(low[1])

    def arrays(self) -> Arrays:
        """`visits`, what they fill as `extent` (left, right, bottom, top), and what goes on."""
        self.flush()
        _, rows, columns = self.counts.shape
        left, bottom = self.low
        corners = np.array([left, left + columns, bottom, bottom + rows], float)
        return {
            "visits": self.counts,
            "extent": self.cell * corners,
            "cell": np.asarray(self.cell),
            "episodes": np.asarray(self.episodes),
        }

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], end: Horizon) -> "Visits":
        """As they were."""
        cell = float(arrays["cell"])
        left, _, bottom, _ = np.round(arrays["extent"] / cell).astype(int).tolist()
        return cls(
            end=end,
            counts=arrays["visits"].astype(np.int64),
            cell=cell,
            low=(left, bottom),
            episodes=int(arrays["episodes"]),
        )


def _first_cell(places: np.ndarray) -> float:
    span = float(np.ptp(places, axis=0).max()) or 1e-6 * (float(np.abs(places).max()) or 1.0)
    return 2.0 ** math.ceil(math.log2(span / MOST_CELLS))


@contextlib.contextmanager
def watching(
    runs: Sequence[Planned], notice: Callable[[str], None]
) -> Iterator[Callable[[Moves, int], None] | None]:
    """What a session's `watch` may be to leave `visits.npz` with its runs; None if none tell.

    Those of resumed runs are added to. They are saved at other moments than checkpoints: a run that
    was killed may have counted a minute's steps twice or not at all.
    """
    task = runs[0].task
    folders = [run.recorder.folder for run in runs]
    if not isinstance(task, HostTask) or not {*PROBES} <= {*task.probes} or None in folders:
        yield None
        return
    columns = [task.probes.index(name) for name in PROBES]
    cell = DOOM_CELL if isinstance(task.maker, DoomMaker) else 0.0
    visits = [
        _begun(folder, run.stop or run.horizon, cell, notice)
        for folder, run in zip(folders, runs, strict=True)
        if folder is not None
    ]
    num_envs, saved_at = task.num_envs, time.monotonic()

    def save() -> None:
        for folder, visit in zip(folders, visits, strict=True):
            if folder is not None and folder.is_dir() and (arrays := visit.arrays())["visits"].size:
                save_arrays(folder / VISITS, arrays)

    def watch(moves: Moves, steps: int) -> None:
        nonlocal saved_at
        places = moves.probes[:, columns].astype(np.float64)
        ended = moves.boundary & ~moves.lost
        for run, visit in enumerate(visits):
            own = slice(run * num_envs, (run + 1) * num_envs)
            there = places[own][~moves.lost[own]]
            visit.add(there, steps - num_envs, int(ended[own].sum()))
        if time.monotonic() - saved_at >= SAVE_SECONDS:
            save()
            saved_at = time.monotonic()

    try:
        yield watch
    finally:
        save()


def _begun(folder: Path, end: Horizon, cell: float, notice: Callable[[str], None]) -> Visits:
    path = folder / VISITS
    if is_begun(folder) and path.is_file():
        try:
            return Visits.of(load_arrays(path, _AXES), end)
        except InputError as error:
            notice(f"{error}; where the run was before is forgotten")
    return Visits(end=end, cell=cell)


def map_arrays(folder: Path, config: Mapping[str, Any], maker: Any) -> tuple[str, Arrays] | None:
    """What a map of a run needs, and which figure it is: 'map' with walls, 'places' without.

    None if the run left no visits. A panel is a fifth of training.
    """
    path = folder / VISITS
    if not path.is_file():
        return None
    found = load_arrays(path, _AXES)
    visits = found["visits"].reshape(PANELS, -1, *found["visits"].shape[1:]).sum(axis=1)
    made = np.flatnonzero(visits.any(axis=(1, 2)))[-1] + 1
    arrays = {
        "visits": visits[:made],
        "extent": found["extent"],
        "titles": np.array(_titles(config, int(made))),
        "notes": np.array([], str),
    }
    if isinstance(maker, DoomMaker):
        with contextlib.suppress(InputError):  # another WAD: there are places, but no walls
            walls, starts, goal = maker.floor_plan()
            return "map", arrays | {"segments": walls, "starts": starts, "goal": goal}
    return "places", arrays


def _titles(config: Mapping[str, Any], made: int) -> list[str]:
    """Names of the panels made so far: by steps where the run's length is known in steps.

    The last one of a run that stopped on the way has a beginning only.
    """
    horizon = config["horizon"]
    steps, by_episodes = horizon["steps"], horizon["episodes"] or config.get("until")
    if by_episodes or steps is None:
        ends, unit = [str(100 * i // PANELS) for i in range(PANELS + 1)], " % of training"
    else:
        ends, unit = _step_ends(steps)
    titles = [f"{a}–{b}{unit}" for a, b in itertools.pairwise(ends)][:made]
    if config.get("status") != "finished":
        titles[-1] = f"from {ends[made - 1]}{unit} on"
    return titles


def _step_ends(steps: int) -> tuple[list[str], str]:
    """Where panels begin and end, in a unit that fits."""
    size, unit = next((size, unit) for size, unit in _UNITS if steps >= 10 * size or size == 1)
    return [f"{steps * i / PANELS / size:.4g}" for i in range(PANELS + 1)], f"{unit} steps"
