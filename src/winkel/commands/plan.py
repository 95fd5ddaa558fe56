"""`winkel sweep --plan`: the sweeps of a file, as far as a budget of time goes.

A plan is a TOML file with a table `[[piece]]` for each sweep. What it asks for and has not yet been
made is found from its runs: those in a folder of runs, and the compact records beside the plan.
"""

import math
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from winkel.commands.options import check_runs, console, make_table, say, write_option
from winkel.errors import InputError, MissingDataError, suggest
from winkel.files import read_toml
from winkel.runs.checkpoint import check_types
from winkel.runs.compact import find_compact, read_compact, write_compact
from winkel.runs.record import CONFIG, load_run
from winkel.runs.spec import RunSpec, convert
from winkel.training.programs import start_jax

if TYPE_CHECKING:
    from winkel.commands.sweep import SweepCommand

LEAST_BUDGET = 60.0
"""Seconds; less would be spent on compiling programs and saving runs."""
SAVING = 0.05
"""Share of a budget that is left for saving runs at its end."""
CHUNK_STEPS = 200
"""On any machine the same chunks, which are part of a run."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
BESIDE_PLAN = ("plan", "budget", "out", "dry_run", "allow_failures", "fields")
"""Options that stand beside --plan."""
NOT_IN_PLANS = ("kind", "resume", "shard", "cluster", "address", "cpus_per_shard", "gpus_per_shard")
"""Options that neither stand there nor in a piece; a piece has all others, and fields of agents."""


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


def run_plan(command: "SweepCommand", path: Path, kinds: Collection[str]) -> None:
    """Make the runs of a plan that are missing, in its order, until the budget is spent."""
    plain = type(command)()
    misplaced = [
        name
        for name, value in vars(command).items()
        if name not in BESIDE_PLAN and value != getattr(plain, name)
    ]
    for name in [*misplaced, *command.fields]:
        if name in NOT_IN_PLANS:
            raise InputError(f"need --plan without {write_option(name)}")
        raise InputError(f"need {write_option(name)} in the pieces of {path}, not beside --plan")
    end = time.monotonic() + read_budget(command.budget) * (1 - SAVING)
    start_jax()
    todo = [(piece, *_make_sweep(command, path, piece)) for piece in read_plan(path, kinds)]
    recorded = map(read_compact, find_compact(path.parent))
    done = {record.config["fingerprint"] for records in recorded for record in records}
    rows = []
    for piece, _, runs in todo:
        known = sum(run.config["fingerprint"] in done for run in runs)
        minutes = "" if piece.minutes is None else f"{piece.minutes:g}"
        rows.append([piece.name, f"{len(runs):,}" if runs else "?", f"{known:,}", minutes])
    console.print(make_table(["piece", "runs", "recorded", "minutes"], rows), crop=False)
    if command.dry_run:
        return

    def check_time(_: object) -> None:
        if time.monotonic() >= end:
            raise BudgetSpent

    for piece, sweep, runs in todo:
        if runs and done >= {run.config["fingerprint"] for run in runs}:
            continue
        if end - time.monotonic() < LEAST_BUDGET * (1 - SAVING):
            say(f"the budget is spent; next is {piece.name}")
            break
        say(f"{piece.name}:")
        try:
            sweep.run_here(done, check_time)
        except BudgetSpent:
            say(f"the budget is spent in {piece.name}; the same command goes on")
            break
        finally:
            new = write_compact(sweep.out, path.parent, _complete(sweep.out, runs, done))
            for where, count in new.items():
                say(f"recorded {count} runs in {where}")
    else:
        say("all pieces are done")
    ended = [folder for _, sweep, runs in todo for folder in _ended(sweep.out, runs)]
    check_runs((load_run(folder) for folder in ended), command.allow_failures)


def read_plan(path: Path, kinds: Collection[str]) -> list[Piece]:
    """Read the pieces of a plan; `kinds` are the known experiments."""
    content = read_toml(path)
    tables = content.get("piece")
    if not isinstance(tables, list):
        raise InputError(f"need tables [[piece]] in {path}, got {', '.join(content) or 'nothing'}")
    pieces: list[Piece] = []
    for number, table in enumerate(tables, start=1):
        where = f"piece {number} of {path}"
        check_types(table, {"name": str, "kind": str}, where, {"minutes": int | float})
        name, kind, minutes = table.pop("name"), table.pop("kind"), table.pop("minutes", None)
        if name in {piece.name for piece in pieces}:
            raise InputError(f"need a name of its own for {where}, got {name!r}")
        if kind not in kinds:
            hint = suggest(kind, kinds, f"known are {', '.join(kinds)}")
            raise InputError(f"unknown kind {kind!r} in {where}; {hint}")
        options = {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
        pieces.append(Piece(name, kind, options, minutes))
    return pieces


def read_budget(text: str | None) -> float:
    """Seconds of a text such as '25m', '90s' or '1.5h'; infinity for None."""
    if text is None:
        return math.inf
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


def _make_sweep(
    command: "SweepCommand", path: Path, piece: Piece
) -> tuple["SweepCommand", list[RunSpec]]:
    """The command of a piece and its runs, none if they need data that are not here."""
    own: dict[str, Any] = {"chunk_steps": CHUNK_STEPS, "resume": True, "allow_failures": True}
    fields, hints = dict(piece.options), get_type_hints(type(command))
    try:
        for name in fields.keys() & hints.keys() - {*BESIDE_PLAN, *NOT_IN_PLANS}:
            own[name] = convert(name, fields.pop(name), hints[name])
        made = type(command)(kind=piece.kind, out=command.out, fields=fields, **own)
        made.check_options()
        return made, [run for group in made.groups()[1] for run in group.runs]
    except MissingDataError:
        return made, []
    except InputError as error:
        raise InputError(f"piece {piece.name!r} of {path}: {error}") from error


def _ended(out: Path, runs: list[RunSpec]) -> list[Path]:
    folders = [run.folder(out) for run in runs]
    return [folder for folder in folders if (folder / CONFIG).is_file()]


def _complete(out: Path, runs: list[RunSpec], done: Collection[str]) -> list[Path]:
    """The folders of settings that have ended with all seeds, here or recorded as `done`.

    The seeds that end first are mostly those that were solved: records of them alone would be
    biased.
    """
    ended = _ended(out, runs)
    under_way = {
        run.folder(out).parent
        for run in runs
        if run.folder(out) not in ended and run.config["fingerprint"] not in done
    }
    return [folder for folder in ended if folder.parent not in under_way]
