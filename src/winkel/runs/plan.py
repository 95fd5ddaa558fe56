"""Plans: experiments in an order, for a machine that is there for a short time only.

A plan is a TOML file with a table `[[piece]]` for each sweep. What it asks for and has not yet been
made is found from its runs: those in a folder of runs, and the compact records beside the plan.
"""

import re
import time
import tomllib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from winkel.errors import InputError, suggest
from winkel.runs.sweep import Group

LEAST_BUDGET = 60.0
"""Seconds; less would be spent on compiling programs and saving runs."""
SAVING = 0.05
"""Share of a budget that is left for saving runs at its end."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Piece(NamedTuple):
    """One sweep of a plan."""

    name: str
    kind: str
    """An experiment of `winkel sweep`."""
    options: dict[str, Any]
    """Options of `winkel sweep` and fields of the agents, lists as tuples."""
    minutes: float | None = None
    """What it took, measured on the machine that the plan is for."""


class BudgetSpent(KeyboardInterrupt):
    """The time is over. Like Ctrl-C, it ends a session once its runs are saved."""


def read_plan(path: Path, kinds: Collection[str]) -> list[Piece]:
    """Read the pieces of a plan; `kinds` are the known experiments."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not TOML ({error})") from error
    tables = content.get("piece")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"need tables [[piece]] in {path}, got {', '.join(content) or 'nothing'}")
    pieces: list[Piece] = []
    for number, table in enumerate(tables, start=1):
        where = f"piece {number} of {path}"
        name, kind = table.pop("name", None), table.pop("kind", None)
        minutes = table.pop("minutes", None)
        if not isinstance(name, str) or name in {piece.name for piece in pieces}:
            raise InputError(f"need a name of its own for {where}, got {name!r}")
        if kind not in kinds:
            hint = suggest(str(kind), kinds, f"known are {', '.join(kinds)}")
            raise InputError(f"unknown kind {kind!r} in {where}; {hint}")
        if minutes is not None and not isinstance(minutes, int | float):
            raise InputError(f"need a number of minutes in {where}, got {minutes!r}")
        options = {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
        pieces.append(Piece(name, kind, options, minutes))
    return pieces


def read_budget(text: str | None) -> float:
    """Seconds of a text such as '25m', '90s' or '1.5h'; infinity for None."""
    if text is None:
        return float("inf")
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if parts is None:
        raise InputError(f"need a budget such as 25m, 90s or 1.5h, got {text!r}")
    seconds = float(parts[1]) * _UNITS[parts[2]]
    if seconds < LEAST_BUDGET:
        raise InputError(
            f"need a budget of at least {LEAST_BUDGET / 60:g}m, got {text}: "
            "compiling and saving would take all of it"
        )
    return seconds


def stop_in_time(
    seconds: float, show: Callable[..., None], clock: Callable[[], float] = time.monotonic
) -> Callable[..., None]:
    """Wrap a function that is called after each chunk: raise `BudgetSpent` once time is over."""
    end = clock() + seconds

    def check(*arguments: Any) -> None:
        show(*arguments)
        if clock() >= end:
            raise BudgetSpent

    return check


def leave_out(groups: Sequence[Group], done: Collection[str]) -> list[Group]:
    """Leave out the runs with these fingerprints. Rounding stays that of the whole group."""
    left = [
        group._replace(runs=[run for run in group.runs if run.config["fingerprint"] not in done])
        for group in groups
    ]
    return [group for group in left if group.runs]
