"""The metrics of a run: `metrics.jsonl`, one JSON object per line, with copies elsewhere."""

import contextlib
import importlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from winkel.errors import InputError
from winkel.files import ensure_folder

Row = Mapping[str, float | int]

STEP = "env_steps"
"""The entry of a row that mirrors use as time."""


class Mirror(NamedTuple):
    """Another place that rows are sent to: TensorBoard, Weights & Biases."""

    write: Callable[[int, Row], None]
    close: Callable[[], None]


class MetricsLog:
    """A file of rows that a resumed run can continue.

    A checkpoint stores `position`. A run that resumes from it passes the position on, and the rows
    that were written after the checkpoint are cut off, because the run will write them again.
    """

    def __init__(self, path: Path, position: int = 0, mirrors: Sequence[Mirror] = ()) -> None:
        self.position = position
        """Number of bytes written, by this run and those that it continues."""
        self._path = path
        self._mirrors = tuple(mirrors)
        ensure_folder(path.parent)
        with contextlib.ExitStack() as stack:
            try:
                self._check_position()
                self._file = stack.enter_context(path.open("ab", buffering=0))
                self._file.truncate(position)
            except OSError as error:
                raise InputError(f"cannot write {path}: {error.strerror}") from error
            for mirror in self._mirrors:
                stack.callback(mirror.close)
            self._open = stack.pop_all()

    def write(self, row: Row) -> None:
        """Append a row; NaN and infinities, which JSON lacks, become null in the file."""
        finite = {name: value if math.isfinite(value) else None for name, value in row.items()}
        self._append(json.dumps(finite, allow_nan=False).encode() + b"\n")
        for mirror in self._mirrors:
            mirror.write(int(row[STEP]), row)

    def close(self) -> None:
        """Close the file and the mirrors."""
        self._open.close()

    def _check_position(self) -> None:
        """Raise unless a line of the file ends at the position."""
        content = self._path.read_bytes()[: self.position] if self._path.is_file() else b""
        if len(content) < self.position:
            raise InputError(
                f"{self._path} has {len(content)} bytes, need the {self.position} that were "
                "written before the checkpoint"
            )
        if content and not content.endswith(b"\n"):
            raise InputError(
                f"need a position where a line of {self._path} ends, got {self.position}"
            )

    def _append(self, line: bytes) -> None:
        """Write all of a line or nothing."""
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self.position)
            raise InputError(f"cannot write {self._path}: {error.strerror}") from error
        self.position += len(line)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file, without a last line that a killed writer left unfinished."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError as error:
        raise InputError(f"no such file: {path}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"line {number} of {path} is damaged ({error})") from error
        if not isinstance(row, dict):
            raise InputError(f"need an object in line {number} of {path}, got {row!r:.80}")
        rows.append(row)
    return rows


def tensorboard(folder: Path) -> Mirror:
    """Write rows as TensorBoard's scalars."""
    writer = _package("tensorboardX", "tensorboard").SummaryWriter(str(folder))

    def write(step: int, row: Row) -> None:
        for name, value in row.items():
            if name != STEP:
                writer.add_scalar(name, value, step)

    return Mirror(write, writer.close)


def wandb(project: str, name: str, config: Mapping[str, Any]) -> Mirror:
    """Send rows to a new run on Weights & Biases."""
    package = _package("wandb", "wandb")
    try:
        run = package.init(project=project, name=name, config=dict(config))
    except package.Error as error:
        reason = " ".join(str(error).split())
        raise InputError(f"cannot start a run on Weights & Biases: {reason}") from error
    return Mirror(lambda step, row: run.log(dict(row), step=step), run.finish)


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{name} is missing: pip install winkel[{extra}]") from error
