"""What all commands share: how options are read, and the terminal that they print to.

Help names a value by its type (`--episodes N`, `--out FOLDER`). A list is written with spaces or
with commas: `--sizes 6 8` or `--sizes 6,8`.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from winkel.errors import InputError, suggest
from winkel.runs.record import RunRecord
from winkel.runs.spec import field_names

EnvName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]
Runs = Annotated[
    tyro.conf.Positional[Path],
    tyro.conf.arg(help="Folder that `winkel train`, a sweep or `winkel rollout --out` has filled."),
]
Fields = tyro.conf.Suppress[Mapping[str, Any]]
"""Fields of the agent, from the options that tyro does not know."""
ENV = "The run's own environment, needed if its name chooses which code runs: module:function."
RunEnv = Annotated[str | None, tyro.conf.arg(help=ENV)]
CODE = "Agents and projections of the run, module:Name, that are imported because you name them."
RunCode = Annotated[tuple[str, ...], tyro.conf.arg(help=CODE)]

NAMES: dict[Any, str] = {int: "N", float: "NUMBER", str: "NAME", Path: "FOLDER"}
"""How help calls a value, by its type."""
REGISTRY = ConstructorRegistry()
"""How tyro reads values."""


@REGISTRY.primitive_rule
def _read_one(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if info.type not in NAMES:
        return None
    kind: Any = info.type
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=NAMES[kind],
        # tyro gives [] for an optional argument that is left out before unknown options.
        instance_from_str=lambda words: kind(words[0]) if isinstance(words[0], str) else None,
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


@REGISTRY.primitive_rule
def _read_list(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if info.type_origin is not tuple:
        return None
    kind, _ = get_args(info.type)
    one = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kind, set()))
    assert isinstance(one, PrimitiveConstructorSpec)

    def read(words: list[str]) -> tuple[Any, ...]:
        parts: list[str] = []
        for word in words:  # with = in it, the settings of an environment, key=value,…
            is_list = "," in word and "=" not in word
            parts += filter(None, map(str.strip, word.split(","))) if is_list else [word]
        for part in parts:
            if one.choices is not None and part not in one.choices:
                raise ValueError(f"need {', '.join(one.choices)}, got {part!r}")
        return tuple(one.instance_from_str([part]) for part in parts)

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{one.metavar} …",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [str(value) for value in values],
    )


def check_fields(command: Callable[..., Any], fields: Iterable[str], *agents: str) -> None:
    """Raise unless each option that a command does not have is a field of one of the agents."""
    known = dict.fromkeys(name for agent in agents for name in field_names(agent))
    for field in fields:
        if field not in known:
            hint = f"see `winkel list agents {agents[0]}`"
            raise unknown_option(field, [*inspect.signature(command).parameters, *known], hint)


def unknown_option(name: str, known: Iterable[str], otherwise: str) -> InputError:
    """Describe an option that neither a command nor an agent has."""
    hint = suggest(name, known, otherwise, write_option)
    return InputError(f"unknown option {write_option(name)}; {hint}")


def write_option(name: str) -> str:
    """Write a name as an option."""
    return f"--{name.replace('_', '-')}"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave a pipe that nobody reads to `cli.main`."""
        raise BrokenPipeError


console = _Console()


def say(text: str) -> None:
    """Print a line without colours and wrapping."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def progress_bar() -> Progress:
    """Make a progress bar with counts and the time left."""
    return Progress(
        TextColumn("{task.description:38}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def exit_if_failed(what: str, reasons: Sequence[str], total: int, allowed: bool) -> None:
    """Count what has failed in a line on standard error; exit with status 1 unless allowed."""
    if reasons:
        count = f"{len(reasons)} of {total} {what} failed"
        sys.stderr.write(f"winkel: {count}; the first: {reasons[0]}\n")
        if not allowed:
            raise SystemExit(1)


def check_runs(runs: Iterable[RunRecord], allow_failures: bool) -> None:
    """Exit with status 1 if runs failed, now or in an earlier call, unless that is allowed."""
    configs = [run.config for run in runs]
    reasons = [
        f"{config['agent']} in {config['env']}, seed {config['seed']}: {config.get('reason')}"
        for config in configs
        if config.get("status") == "failed"
    ]
    exit_if_failed("runs", reasons, len(configs), allow_failures)


def make_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None
) -> Table:
    """Make a table of numbers. In a narrow terminal words are wrapped, but not cut."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        words = " ".join([column, *(row[number] for row in rows)]).split()
        table.add_column(column, justify="right", min_width=max(map(len, words), default=0))
    for row in rows:
        table.add_row(*row)
    return table
