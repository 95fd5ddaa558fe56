"""`winkel sweep --plan`: the sweeps of a file, as far as a budget of time goes."""

import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from winkel.commands.options import check_runs, console, make_table, say, write_option
from winkel.errors import InputError, MissingDataError
from winkel.runs import plan as plans
from winkel.runs.compact import compact_fingerprints, write_compact
from winkel.runs.record import CONFIG, load_run
from winkel.runs.spec import RunSpec, convert
from winkel.training.programs import start_jax

if TYPE_CHECKING:
    from winkel.commands.sweep import SweepCommand

BESIDE_PLAN = ("plan", "budget", "out", "dry_run", "allow_failures")
"""Options that stand beside --plan."""
PIECE_OPTIONS = (
    "agents", "seeds", "first_seed", "experiments", "sizes", "episodes", "until", "solved_streak",
    "label", "paper", "lanes", "pack", "compact_lanes", "freeze_bonus",
    "snapshots", "chunk_steps", "evaluate_every", "checkpoint_seconds",
)  # fmt: skip
"""Options of `winkel sweep` that a piece may have, beside fields of its agents."""


def run_plan(command: "SweepCommand", path: Path, kinds: Collection[str]) -> None:
    """Make the runs of a plan that are missing, in its order, until the budget is spent."""
    plain = type(command)()
    others = [name for name in vars(plain) if name not in (*BESIDE_PLAN, "fields")]
    misplaced = [name for name in others if getattr(command, name) != getattr(plain, name)]
    for name in [*misplaced, *command.fields]:
        raise InputError(f"need {write_option(name)} in the pieces of {path}, not beside --plan")
    end = time.monotonic() + plans.read_budget(command.budget) * (1 - plans.SAVING)
    start_jax()
    todo = [(piece, *_make_sweep(command, path, piece)) for piece in plans.read_plan(path, kinds)]
    done = compact_fingerprints(path.parent)
    rows = []
    for piece, _, runs in todo:
        known = sum(run.config["fingerprint"] in done for run in runs)
        minutes = "" if piece.minutes is None else f"{piece.minutes:g}"
        rows.append([piece.name, f"{len(runs):,}" if runs else "?", f"{known:,}", minutes])
    console.print(make_table(["piece", "runs", "recorded", "minutes"], rows), crop=False)
    if command.dry_run:
        return
    for piece, sweep, runs in todo:
        if runs and done >= {run.config["fingerprint"] for run in runs}:
            continue
        if end - time.monotonic() < plans.LEAST_BUDGET * (1 - plans.SAVING):
            say(f"the budget is spent; next is {piece.name}")
            break
        say(f"{piece.name}:")
        try:
            sweep.run_here(done, end - time.monotonic())
        except plans.BudgetSpent:
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


def _make_sweep(
    command: "SweepCommand", path: Path, piece: plans.Piece
) -> tuple["SweepCommand", list[RunSpec]]:
    """The command of a piece and its runs, none if they need data that are not here."""
    # On any machine the same chunks, which are part of a run.
    own: dict[str, Any] = {"chunk_steps": 200, "resume": True, "allow_failures": True}
    fields, hints = dict(piece.options), get_type_hints(type(command))
    try:
        for name in fields.keys() & set(PIECE_OPTIONS):
            own[name] = convert(name, fields.pop(name), hints[name])
        made = type(command)(kind=piece.kind, out=command.out, fields=fields, **own)
        made.check_options()
        return made, [run for group in made.groups() for run in group.runs]
    except MissingDataError:
        return made, []
    except InputError as error:
        raise InputError(f"piece {piece.name!r} of {path}: {error}") from error


def _ended(out: Path, runs: list[RunSpec]) -> list[Path]:
    """The folders of runs that have ended."""
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
