"""How shards stand, as small files in the shared folder: a driver shows them, whoever runs them."""

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from winkel.cluster.manifest import Shard
from winkel.runs.folder import write_text
from winkel.runs.status import Status

SHARDS = "shards"
"""Folder, beside the runs, of what runners of shards tell each other: locks and progress."""
PAUSE = 1.0
"""Seconds between two writings."""


def lock_path(out: Path, shard: Shard) -> Path:
    """Held by whoever runs the shard."""
    return out / SHARDS / f"{shard.id}.lock"


def progress_path(out: Path, shard: Shard) -> Path:
    """What the shard's last runner told."""
    return out / SHARDS / f"{shard.id}.json"


@dataclass
class Telling:
    """Writes how a shard's runs stand, now and then."""

    out: Path
    shard: Shard
    _told: float = field(init=False, default=-math.inf)

    def __call__(self, statuses: list[Status]) -> None:
        """After a chunk; the last one, when all have ended, is always written."""
        ended = all(status.state != "running" for status in statuses)
        if not ended and time.monotonic() - self._told < PAUSE:
            return
        self._told = time.monotonic()
        rows = [{name: _plain(value) for name, value in s._asdict().items()} for s in statuses]
        write_text(progress_path(self.out, self.shard), json.dumps({"runs": rows}) + "\n")


def told(out: Path, shard: Shard) -> list[Status]:
    """How the runs of a shard stood when last told; none before that."""
    try:
        rows = json.loads(progress_path(out, shard).read_bytes())["runs"]
        return [Status(**(row | _nan(row))) for row in rows]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _nan(row: dict[str, Any]) -> dict[str, float]:
    return {"recent_return": float("nan")} if row["recent_return"] is None else {}
