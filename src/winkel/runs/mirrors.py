"""Copies of the metrics' log elsewhere: TensorBoard, Weights & Biases."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from winkel.errors import InputError

Row = Mapping[str, float | int]
STEP = "env_steps"
"""The entry of a row that mirrors use as time."""


class Mirror(NamedTuple):
    """Another place that rows are sent to."""

    write: Callable[[int, Row], None]
    close: Callable[[], None]


MirrorMaker = Callable[[dict[str, Any], Path], tuple[Mirror, ...]]
"""Makes the mirrors of a run from its config and folder."""


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
