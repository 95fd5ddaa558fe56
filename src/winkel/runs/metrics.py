"""The metrics of one run as time passes: a line of JSON for each row, and copies elsewhere."""

import contextlib
import importlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from winkel.errors import InputError, require_integer
from winkel.files import ensure_folder

Row = Mapping[str, float | int | str]

STEP = "env_steps"
"""The entry of a row that mirrors take for the time."""


@runtime_checkable
class Mirror(Protocol):
    """Another place that rows are sent to."""

    def write(self, step: int, row: Row) -> None:
        """Take one row."""

    def close(self) -> None:
        """Send what has not been sent."""


class MetricsLog:
    """A file of rows that a killed run can go on with.

    A checkpoint stores `position`; the run that resumes from it gives it back, and the rows that
    were written after the checkpoint, which it will write again, are cut off.
    """

    def __init__(self, path: Path, position: int = 0, mirrors: Sequence[Mirror] = ()) -> None:
        self._path = path
        self._mirrors = tuple(mirrors)
        self._position = require_integer("position", position, at_least=0)
        ensure_folder(path.parent)
        with contextlib.ExitStack() as stack:
            try:
                self._check_position()
                self._file = stack.enter_context(path.open("ab", buffering=0))
                self._file.truncate(self._position)
            except OSError as error:
                raise InputError(f"cannot write {path}: {error.strerror}") from error
            for mirror in self._mirrors:
                stack.callback(mirror.close)
            self._open = stack.pop_all()

    @property
    def position(self) -> int:
        """How many bytes have been written, by this run and those that it goes on from."""
        return self._position

    def write(self, row: Row) -> None:
        """Add a row; NaN and infinities, which JSON lacks, become null in the file."""
        if self._mirrors and not isinstance(row.get(STEP), int):
            raise InputError(f"need {STEP!r}, a whole number, in each row, got {dict(row)}")
        finite = {name: _finite(value) for name, value in row.items()}
        try:
            line = json.dumps(finite, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise InputError(f"cannot write a row of {self._path} as JSON: {error}") from error
        self._append(line)
        for mirror in self._mirrors:
            mirror.write(int(row[STEP]), row)

    def close(self) -> None:
        """Close the file and the mirrors."""
        self._open.close()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_position(self) -> None:
        size = self._path.stat().st_size if self._path.exists() else 0
        if size < self._position:
            raise InputError(
                f"{self._path} has {size} bytes, need the {self._position} that were written "
                "before the checkpoint"
            )
        if self._position:
            with self._path.open("rb") as file:
                file.seek(self._position - 1)
                if file.read(1) != b"\n":
                    raise InputError(
                        f"need a position where a line of {self._path} ends, got {self._position}"
                    )

    def _append(self, line: bytes) -> None:
        """All of a line or nothing."""
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._position)
            raise InputError(f"cannot write {self._path}: {error.strerror}") from error
        self._position += len(line)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, without a last line that a killed writer left unfinished."""
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
    """Rows as TensorBoard's scalars; text is left out."""
    return _TensorBoard(_package("tensorboardX", "tensorboard").SummaryWriter(str(folder)))


def wandb(project: str, name: str, config: Mapping[str, Any]) -> Mirror:
    """Rows in a new run on Weights & Biases."""
    package = _package("wandb", "wandb")
    try:
        return _WandB(package.init(project=project, name=name, config=dict(config)))
    except package.Error as error:
        reason = " ".join(str(error).split())
        raise InputError(f"cannot start a run on Weights & Biases: {reason}") from error


class _TensorBoard:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, step: int, row: Row) -> None:
        for name, value in row.items():
            if name != STEP and not isinstance(value, str):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _WandB:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, step: int, row: Row) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


def _finite(value: float | int | str) -> float | int | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{name} is missing: pip install winkel[{extra}]") from error
