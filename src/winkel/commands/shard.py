"""`winkel shard`: run one shard of a sweep."""

import contextlib
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro

from winkel.cluster.shards import STOPPED, read_manifest, run_shard
from winkel.commands.options import check_runs, say
from winkel.commands.train import Display
from winkel.errors import set_exit_message
from winkel.runs.record import load_run
from winkel.runs.spec import run_folder
from winkel.training.programs import start_jax


def shard(
    manifest: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MANIFEST")],
    number: tyro.conf.Positional[int],
    code: tuple[str, ...] = (),
    allow_failures: bool = False,
) -> None:
    """Run one shard of a sweep into the folder of its manifest; run it again to continue it.

    On SIGTERM, SIGUSR1 or Ctrl-C, write checkpoints and exit with status 75.

    Args:
        manifest: Manifest that `winkel sweep … --manifest-only` has written.
        number: Number of the shard, from 0.
        code: Agents and projections of the sweep, module:Name, to import because you name them.
        allow_failures: Exit with status 0 also if runs failed.
    """
    set_exit_message("stopped; run the shard again to continue", STOPPED)
    sweep, out = read_manifest(manifest), manifest.parent
    chosen = sweep.shard(number)
    start_jax()
    say(f"shard {number}: {len(chosen.runs)} runs, {chosen.group}, {chosen.lanes} lanes")
    with stop_at_signals(), Display(f"shard {number}") as display:
        outcome = run_shard(sweep, number, out, display.show, say)
    say_counts(outcome["runs"], outcome["seconds"])
    check_runs((load_run(run_folder(out, *run)) for run in chosen.runs), allow_failures)


def say_counts(runs: Mapping[str, int], seconds: float) -> None:
    """Print how many runs have finished, failed, or had ended before, and the time."""
    counts = f"finished {runs['finished']}, failed {runs['failed']}, found ended {runs['before']}"
    say(f"{counts}; {seconds:,.0f} s")


@contextlib.contextmanager
def stop_at_signals() -> Iterator[None]:
    """Make the first SIGTERM or SIGUSR1 act like Ctrl-C, which stops after a chunk of steps.

    A shell starts background jobs with SIGINT ignored; here it is handled again.
    """

    def stop(*_: Any) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGUSR1)}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
