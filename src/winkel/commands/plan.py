"""`winkel sweep --plan`: the sweeps of a file, as far as a budget of time goes."""

import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from winkel.commands.options import console, make_table, option_names, say, write_option
from winkel.commands.train import check_runs
from winkel.errors import InputError
from winkel.runs.compact import compact_fingerprints, write_compact
from winkel.runs.plan import (
    LEAST_BUDGET,
    SAVING,
    BudgetSpent,
    Piece,
    leave_out,
    read_budget,
    read_plan,
)
from winkel.runs.record import CONFIG, load_run
from winkel.training.programs import start_jax

if TYPE_CHECKING:
    from winkel.commands.sweep import SweepCommand

BESIDE_PLAN = ("plan", "budget", "out", "dry_run", "allow_failures")
"""Options that stand beside --plan; all others are for its pieces."""
CHUNK_STEPS = 200
"""Steps between two reports to the host, on any machine: the number is part of a run."""


def run_plan(command: "SweepCommand", path: Path, kinds: Collection[str]) -> None:
    """Make the runs of a plan that are missing, in its order, until the budget is spent."""
    plain = type(command)()
    others = [name for name in option_names(plain) if name not in (*BESIDE_PLAN, "fields")]
    misplaced = [name for name in others if getattr(command, name) != getattr(plain, name)]
    for name in [*misplaced, *command.fields]:
        raise InputError(f"need {write_option(name)} in the pieces of {path}, not beside --plan")
    end = time.monotonic() + read_budget(command.budget) * (1 - SAVING)
    start_jax()
    pieces = read_plan(path, kinds)
    sweeps = [_make_sweep(command, path, piece) for piece in pieces]
    done = compact_fingerprints(path.parent)
    _print_pieces(pieces, sweeps, done)
    if command.dry_run:
        return
    for piece, sweep in zip(pieces, sweeps, strict=True):
        if not leave_out(sweep.groups(), done):
            continue
        if end - time.monotonic() < LEAST_BUDGET * (1 - SAVING):
            say(f"the budget is spent; next is {piece.name}")
            break
        say(f"{piece.name}:")
        try:
            sweep.run_here(done, end - time.monotonic())
        except BudgetSpent:
            say(f"the budget is spent in {piece.name}; the same command goes on")
            break
        finally:
            _keep(sweep, path.parent)
    else:
        say("all pieces are done")
    ended = [folder for sweep in sweeps for folder in _ended(sweep)]
    check_runs((load_run(folder) for folder in ended), command.allow_failures)


def _make_sweep(command: "SweepCommand", path: Path, piece: Piece) -> "SweepCommand":
    """The command of a piece; raises if it could not run."""
    known = set(option_names(command)) - {*BESIDE_PLAN, "kind", "cluster", "resume", "fields"}
    own = {name: value for name, value in piece.options.items() if name in known}
    try:
        made = type(command)(
            kind=piece.kind,  # type: ignore[arg-type]
            out=command.out,
            resume=True,
            allow_failures=True,
            fields={name: value for name, value in piece.options.items() if name not in known},
            **{"chunk_steps": CHUNK_STEPS} | own,
        )
        made.check_options()
        made.groups()
    except (InputError, TypeError) as error:
        raise InputError(f"piece {piece.name!r} of {path}: {error}") from error
    return made


def _print_pieces(pieces: list[Piece], sweeps: list["SweepCommand"], done: Collection[str]) -> None:
    """Print how many runs of each piece are in the compact records."""
    rows = []
    for piece, sweep in zip(pieces, sweeps, strict=True):
        groups = sweep.groups()
        total = sum(len(group.runs) for group in groups)
        left = sum(len(group.runs) for group in leave_out(groups, done))
        minutes = "" if piece.minutes is None else f"{piece.minutes:g}"
        rows.append([piece.name, f"{total:,}", f"{total - left:,}", minutes])
    console.print(make_table(["piece", "runs", "recorded", "minutes"], rows), crop=False)


def _ended(sweep: "SweepCommand") -> list[Path]:
    """The folders of a sweep's runs that have ended."""
    folders = [run.folder(sweep.out) for group in sweep.groups() for run in group.runs]
    return [folder for folder in folders if (folder / CONFIG).is_file()]


def _keep(sweep: "SweepCommand", results: Path) -> None:
    """Add the runs that have ended to the compact records."""
    for path, count in write_compact(sweep.out, results, _ended(sweep)).items():
        say(f"recorded {count} runs in {path}")
