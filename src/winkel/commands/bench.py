"""`winkel bench`: updates a second, where the time goes, and how far the floor is."""

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import jax
import tyro

from winkel.commands.terminal import progress_bar, say
from winkel.errors import InputError, require_integer
from winkel.experiments import bench_rows
from winkel.experiments.bench import (
    Combination,
    combinations,
    measured,
)
from winkel.experiments.bench_rows import BENCH, Bench, Call, Row
from winkel.figures import bench as figure
from winkel.figures import style
from winkel.files import ensure_folder
from winkel.runs.machine import copy_bandwidth, device_name, machine_name
from winkel.runs.spec import parse_shared_overrides
from winkel.version import __version__

RESTLESS = 1.5
"""Slowest chunk against the fastest, above which a row deserves doubt."""
_DEFAULTS = {
    "cpu": (("pe_dqn", "bdqn"), ("deep_sea/0",), (1, 4), 20),
    "accelerator": (("pe_dqn",), ("cartpole/0", "deep_sea/20"), (1, 16, 64, 256), 100),
}


@dataclass(frozen=True, kw_only=True)
class BenchCommand:
    """Measure how fast agents train. Any field of the agents is an option: --hidden 64."""

    agents: tuple[str, ...] = ()
    """Names from `winkel list agents`; pe_dqn and bdqn on a CPU, else pe_dqn by default."""
    envs: tuple[str, ...] = ()
    """Ids; deep_sea/0 on a CPU, else cartpole/0 and deep_sea/20 by default."""
    lanes: tuple[int, ...] = ()
    """Runs side by side; 1 and 4 on a CPU, else 1, 16, 64 and 256 by default."""
    atoms: tuple[int, ...] = ()
    """Numbers of atoms K, for agents that have them; one program for each."""
    steps: int | None = None
    """Steps of a chunk; 20 on a CPU, else 100 by default."""
    parts: bool = True
    """Also time learning alone and the environments alone, a program more for each."""
    stored: Annotated[tuple[Path, ...], tyro.conf.arg(name="from")] = ()
    """Measure nothing: table and figure of these bench.json files; of equal rows the last."""
    out: Path = Path("bench")
    """Folder for bench.json, bench.png and bench.pdf."""
    fields: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self) -> None:
        """Measure or read, then show."""
        if self.stored:
            self._from_files()
            return
        full = self._filled()
        fields = parse_shared_overrides(full.agents, list(self.fields))
        wanted = combinations(full.agents, full.envs, full.lanes, self.atoms, fields)
        _refuse_to_replace(self.out)
        ensure_folder(self.out)
        bench, interrupted = _measure(wanted, full)
        _show(bench, self.out)
        if interrupted:
            raise KeyboardInterrupt

    @property
    def command(self) -> str:
        """What to type for the same rows."""
        words = ["winkel", "bench"]
        for name in ("agents", "envs", "lanes", "atoms"):
            values = getattr(self, name)
            words += [f"--{name}", *map(str, values)] if values else []
        words += ["--steps", str(self.steps)] if self.steps is not None else []
        words += [] if self.parts else ["--no-parts"]
        return shlex.join([*words, *self.fields])

    def _filled(self) -> "BenchCommand":
        """With the defaults of this machine."""
        on_cpu = jax.default_backend() == "cpu"
        agents, envs, lanes, steps = _DEFAULTS["cpu" if on_cpu else "accelerator"]
        if self.steps is not None:
            steps = require_integer("steps", self.steps, at_least=1)
        return dataclasses.replace(
            self,
            agents=self.agents or agents,
            envs=self.envs or envs,
            lanes=self.lanes or lanes,
            steps=steps,
        )

    def _from_files(self) -> None:
        given = [*self.agents, *self.envs, *self.lanes, *self.atoms, *self.fields]
        if given or self.steps is not None:
            raise InputError("need --from with --out alone: it measures nothing")
        bench = bench_rows.merged([bench_rows.load(path) for path in self.stored])
        target = self.out / BENCH
        again = len(self.stored) == 1 and target.exists() and target.samefile(self.stored[0])
        if not again:
            _refuse_to_replace(self.out)
        ensure_folder(self.out)
        if not again:
            bench_rows.save(target, bench)
        _show(bench, self.out)


def _refuse_to_replace(out: Path) -> None:
    if (out / BENCH).exists():
        raise InputError(
            f"{out / BENCH} is there already; choose another --out, and put them together with "
            "--from"
        )


def _measure(wanted: list[Combination], full: BenchCommand) -> tuple[Bench, bool]:
    """All rows, each written as it is there; whether the user stopped it before the last."""
    path, steps = full.out / BENCH, int(full.steps or 1)
    call = Call(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=full.command,
        machine=machine_name(),
        jax=jax.__version__,
        winkel=__version__,
    )
    bench = Bench(device=device_name(), calls=(call,), rows=())
    say(f"{bench.device}, jax {call.jax}, {len(wanted)} combinations of {steps} steps")
    bench_rows.save(path, bench)
    interrupted = False
    with progress_bar() as progress:
        task = progress.add_task("compiling the first", total=len(wanted))
        try:
            for row in measured(wanted, steps, full.parts):
                bench = bench._replace(rows=_as_asked((*bench.rows, row), full))
                bench_rows.save(path, bench)
                progress.console.print(_line(row), highlight=False, markup=False, soft_wrap=True)
                progress.update(task, advance=1, description=f"after {row.agent}, {row.env}")
        except KeyboardInterrupt:
            interrupted = True
    # Last, so that its arrays are in no row's peak of memory.
    try:
        speed = copy_bandwidth()
    except Exception as error:
        say(f"no floor: the copy failed ({type(error).__name__})")
        return bench, interrupted
    rows = tuple(dataclasses.replace(row, copy_bytes_per_second=speed) for row in bench.rows)
    bench = bench._replace(rows=rows)
    bench_rows.save(path, bench)
    return bench, interrupted


def _as_asked(rows: Sequence[Row], full: BenchCommand) -> tuple[Row, ...]:
    """In the order of the command, not by size."""

    def rank(row: Row) -> tuple[int, int, int, int]:
        places = full.agents.index(row.agent), full.envs.index(row.env)
        return *places, row.num_atoms or 0, row.lanes

    return tuple(sorted(rows, key=rank))


def _line(row: Row) -> str:
    if row.ms_step is None:
        return f"{bench_rows.name_of(row)}: failed, {row.reason}"
    return (
        f"{bench_rows.name_of(row)}: {row.updates_per_second:,.0f} updates/s, "
        f"{row.ms_step:,.3g} ms a step, compiled in {row.compile_seconds:.1f} s"
    )


def _show(bench: Bench, out: Path) -> None:
    """The table, and the figure where there is one."""
    for line in table(bench.rows):
        say(line)
    if any(row.copy_bytes_per_second is not None for row in bench.rows):
        say(f"floor: Adam's {bench_rows.ADAM_TRAFFIC} numbers a parameter, at {_copies(bench)}")
    if restless := sum(_restless(row) for row in bench.rows):
        say(
            f"note: in {restless} of {len(bench.rows)} rows the slowest chunk took over "
            f"{RESTLESS:g} times the fastest; was something else running?"
        )
    say(f"rows: {out / BENCH}")
    if not any(row.ms_step is not None for row in bench.rows):
        return
    with style.paper_style():
        drawn = figure.draw(bench_rows.arrays(bench))
        if drawn is None:
            say("no figure: no two numbers of lanes, sizes of deep sea or atoms to compare")
            return
        for path in style.save(drawn, out / "bench", ("png", "pdf")):
            say(f"wrote {path}")


def _restless(row: Row) -> bool:
    """Whether chunks differ too much to trust the median."""
    if row.ms_fastest is None or row.ms_slowest is None:
        return False
    return row.ms_slowest > RESTLESS * row.ms_fastest


def _copies(bench: Bench) -> str:
    speeds = sorted({row.copy_bytes_per_second for row in bench.rows} - {None})  # type: ignore[type-var]
    shown = list(dict.fromkeys(f"{speed / 1e9:,.1f}" for speed in speeds if speed is not None))
    return f"{' and '.join(shown)} GB/s of a copy"


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "agent": lambda row: row.agent,
    "environment": lambda row: row.env,
    "fields": lambda row: bench_rows.fields_text(row.fields),
    "K": lambda row: "" if row.num_atoms is None else str(row.num_atoms),
    "lanes": lambda row: f"{row.lanes:,}",
    "updates/s": lambda row: _number(row.updates_per_second),
    "ms a step": lambda row: _number(row.ms_step),
    "environment ms": lambda row: _part(row.environment_ms, row.environment_share),
    "learning ms": lambda row: _part(row.learning_ms, row.learning_share),
    "floor ms": lambda row: _number(row.floor_ms),
    "× floor": lambda row: _number(row.floor_ratio),
    "compile s": lambda row: "" if row.compile_seconds is None else f"{row.compile_seconds:.1f}",
    "memory": lambda row: _memory(row),
    "parameters": lambda row: _size(row.parameter_bytes),
    "": lambda row: "" if row.reason is None else f"{row.status}: {row.reason}",
}
_TEXT = ("agent", "environment", "fields", "")


def table(rows: Sequence[Row]) -> list[str]:
    """Aligned lines, a heading first; columns that would be empty are left out."""
    ordered = bench_rows.in_order(rows)
    columns = []
    for name, show in _COLUMNS.items():
        cells = [show(row) for row in ordered]
        if any(cells):
            width = max(len(text) for text in (name, *cells))
            align = str.ljust if name in _TEXT else str.rjust
            columns.append([align(text, width) for text in (name, *cells)])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def _number(value: float | None) -> str:
    """Three digits that count, and no exponent."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _part(milliseconds: float | None, share: float | None) -> str:
    if milliseconds is None or share is None:
        return ""
    return f"{_number(milliseconds)} ({share:4.0%})"


def _memory(row: Row) -> str:
    return _size(row.peak_bytes) if row.peak_bytes else f"≥ {_size(row.kept_bytes)}"


def _size(value: int | None) -> str:
    if value is None:
        return ""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if value >= unit:
            return f"{_number(value / unit)} {name}"
    return f"{_number(value / 1e3)} kB"
