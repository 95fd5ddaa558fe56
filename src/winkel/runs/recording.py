"""What is kept of a run while it goes on, in its checkpoints, and at its end as files."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from winkel.errors import InputError
from winkel.files import save_arrays
from winkel.runs.checkpoint import Loaded, has_checkpoint, load_checkpoint, save_checkpoint
from winkel.runs.folder import CONFIG, Run, load_run, save_run
from winkel.runs.metrics import MetricsLog, Mirror

CHECKPOINTS, METRICS = "checkpoint", "metrics.jsonl"
EVALUATIONS, SNAPSHOTS = "evaluations.npz", "snapshots.npz"
_STATE = "state/"
MOST_PARTS = 256
"""Of a column, before they are joined: joining at every chunk would take ever longer."""

Arrays = dict[str, np.ndarray]
Table = dict[str, list[np.ndarray]]


@dataclass
class Recorder:
    """The records of one run; with a folder, also on disk.

    Tables grow by parts: `episodes` by ended episodes, `evaluations` by greedy episodes,
    `snapshots` by looks at all countable observations.
    """

    config: dict[str, Any]
    folder: Path | None
    mirrors: tuple[Mirror, ...] = ()
    episodes: Table = field(default_factory=dict)
    evaluations: Table = field(default_factory=dict)
    snapshots: Table = field(default_factory=dict)
    _log: MetricsLog | None = None

    def add(self, table: str, part: Arrays) -> None:
        """Rows more for one of the tables."""
        rows: Table = getattr(self, table)
        for name, values in part.items():
            parts = rows.setdefault(name, [])
            if len(values) or not parts:
                parts.append(np.asarray(values))
            if len(parts) > MOST_PARTS:
                parts[:] = [np.concatenate(parts)]

    def count(self, table: str) -> int:
        """How many rows a table has."""
        rows: Table = getattr(self, table)
        return sum(map(len, next(iter(rows.values()), [])))

    def rows(self, table: str) -> Arrays:
        """A table so far, its columns by name: the same order after a checkpoint."""
        rows: Table = getattr(self, table)
        for name, parts in rows.items():
            if len(parts) > 1:
                rows[name] = [np.concatenate(parts)]
        return {name: rows[name][0] for name in sorted(rows)}

    def log(self, row: dict[str, float | int]) -> None:
        """A line of metrics."""
        if self.folder is None:
            return
        if self._log is None:
            self._log = MetricsLog(self.folder / METRICS, mirrors=self.mirrors)
        self._log.write(row)

    def checkpoint(self, state: Arrays, outcome: dict[str, Any] | None = None) -> None:
        """Save the run as it is now: its state, all records up to here, how it ended if it has."""
        if self.folder is None:
            return
        arrays = {_STATE + name: array for name, array in state.items()}
        for table in ("episodes", "evaluations", "snapshots"):
            arrays |= {f"{table}/{name}": rows for name, rows in self.rows(table).items()}
        position = 0 if self._log is None else self._log.position
        meta = {"run": self.config, "log_position": position, "outcome": outcome}
        save_checkpoint(self.folder / CHECKPOINTS, arrays, meta)

    def resume(self) -> tuple[Arrays, tuple[str, ...]]:
        """Take up the newest checkpoint's records; its state, and why newer ones were skipped."""
        if self.folder is None:
            raise InputError("need a folder to resume from, got none")
        saved = load_checkpoint(self.folder / CHECKPOINTS)
        check_same_run(self.config, saved.meta.get("run", {}), str(saved.path))
        for newer in sorted((self.folder / CHECKPOINTS).glob("*.ckpt")):
            if newer.name > saved.path.name:  # unreadable; must not count among those that are kept
                newer.rename(newer.with_suffix(".damaged"))
        for table in ("episodes", "evaluations", "snapshots"):
            self.add(table, _named(saved, f"{table}/"))
        self._log = MetricsLog(
            self.folder / METRICS, position=int(saved.meta["log_position"]), mirrors=self.mirrors
        )
        return _named(saved, _STATE), saved.skipped

    def finish(self, outcome: dict[str, Any]) -> Run:
        """Write the records; the config, with how the run ended, comes last."""
        run = Run(config=self.config | outcome, episodes=self.rows("episodes"))
        self.close()
        if self.folder is not None:
            for table, file in (("evaluations", EVALUATIONS), ("snapshots", SNAPSHOTS)):
                if rows := self.rows(table):
                    save_arrays(self.folder / file, rows)
            save_run(self.folder, run)
        return run

    def forget(self) -> None:
        """Free the memory of records that are on disk."""
        for table in (self.episodes, self.evaluations, self.snapshots):
            table.clear()

    def close(self) -> None:
        """Close the metrics' log and its mirrors."""
        if self._log is not None:
            self._log.close()


def conclude(folder: Path, config: dict[str, Any]) -> None:
    """Write the records of a run that had ended, but was killed before they were on disk."""
    if (folder / CONFIG).is_file() or not is_begun(folder):
        return
    outcome = load_checkpoint(folder / CHECKPOINTS).meta.get("outcome")
    if outcome is not None:
        recorder = Recorder(config=config, folder=folder)
        recorder.resume()
        recorder.finish(outcome)


def table_so_far(folder: Path, table: str) -> tuple[Arrays, dict[str, Any]]:
    """A table of a run that has not ended, and its config, as its newest checkpoint has them."""
    saved = load_checkpoint(folder / CHECKPOINTS, only=f"{table}/")
    return _named(saved, f"{table}/"), saved.meta.get("run", {})


def is_complete(folder: Path, config: dict[str, Any]) -> bool:
    """Whether a folder holds this very run, ended. Another run there is an error."""
    if not (folder / CONFIG).is_file():
        return False
    check_same_run(config, load_run(folder).config, str(folder / CONFIG))
    return True


def is_begun(folder: Path) -> bool:
    """Whether a folder holds a run that can be resumed."""
    return has_checkpoint(folder / CHECKPOINTS)


def check_same_run(wanted: dict[str, Any], found: dict[str, Any], where: str) -> None:
    """Raise, naming the first difference, unless both are the same run of the same version."""
    if wanted.get("fingerprint") == found.get("fingerprint"):
        ours, theirs = (config.get("versions", {}).get("winkel") for config in (wanted, found))
        if ours != theirs:
            raise InputError(
                f"{where} was made by winkel {theirs}, this is {ours}; "
                "use that version, or choose another folder"
            )
        return
    different = sorted(
        key
        for key in (wanted.keys() | found.keys())
        - {"fingerprint", "versions", "hardware", "status", "reason"}
        if wanted.get(key) != found.get(key)
    )
    key = different[0] if different else "fingerprint"
    ours, theirs = wanted.get(key), found.get(key)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        ours, theirs = (
            {k: c.get(k, "missing") for k in ours.keys() | theirs} for c in (ours, theirs)
        )
        inner = min(k for k in ours if ours[k] != theirs[k])
        key, ours, theirs = f"{key}.{inner}", ours[inner], theirs[inner]
    raise InputError(
        f"{where} is of another run: {key} is {theirs!r:.60} there and {ours!r:.60} here; "
        "choose another folder"
    )


def _named(saved: Loaded, prefix: str) -> Arrays:
    return {k.removeprefix(prefix): v for k, v in saved.arrays.items() if k.startswith(prefix)}
